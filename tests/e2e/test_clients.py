"""Everyday tasks, by Debian's unmodified programs and by ours, against our daemons."""

import json
import re
import subprocess

import pytest

from waiting import until


def rows(tools, *words):
    """The table that ovs-vsctl prints, as a list of {column: value}."""
    table = json.loads(tools.vsctl("--format=json", *words))
    return [dict(zip(table["headings"], row)) for row in table["data"]]


def test_bridges_and_ports(tools):
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    tools.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy")
    assert tools.vsctl("list-br") == "br0\nbr1"
    for port in ("p1", "p2"):
        tools.vsctl("add-port", "br0", port, "--", "set", "interface", port, "type=dummy")
    assert tools.vsctl("list-ports", "br0") == "p1\np2"
    assert tools.vsctl("list-ifaces", "br0") == "p1\np2"
    assert tools.vsctl("port-to-br", "p2") == "br0"
    assert tools.vsctl("iface-to-br", "p1") == "br0"
    assert tools.vsctl("br-exists", "br0") == ""
    assert tools.run("ovs-vsctl", "br-exists", "nosuch", check=False).code == 2
    again = tools.run("ovs-vsctl", "add-br", "br0", check=False)
    assert (again.code, again.err) == (1, "ovs-vsctl: cannot create a bridge named br0 because a bridge named br0 already exists\n")
    tools.vsctl("--may-exist", "add-br", "br0")
    tools.vsctl("--may-exist", "add-port", "br0", "p1")
    again = tools.run("ovs-vsctl", "add-port", "br1", "p1", check=False)
    assert (again.code, again.err) == (1, "ovs-vsctl: cannot create a port named p1 because a port named p1 already exists on bridge br0\n")
    text = tools.vsctl("show")
    assert re.search(r"^    Bridge br0\n        datapath_type: dummy\n        Port ", text, re.MULTILINE), text
    assert "        Port p1\n            Interface p1\n                type: dummy\n" in f"{text}\n"
    # When add-port returns, the rows contain the switch's status.
    assert tools.vsctl("get", "interface", "p1", "ofport", "error", "admin_state", "link_state") == "1\n[]\nup\nup"
    assert tools.vsctl("get", "interface", "p2", "ofport") == "2"
    assert re.fullmatch(r'"([0-9a-f]{2}:){5}[0-9a-f]{2}"', tools.vsctl("get", "interface", "p1", "mac_in_use"))
    assert re.fullmatch(r'"[0-9a-f]{16}"', tools.vsctl("get", "bridge", "br0", "datapath_id"))
    tools.vsctl("del-port", "p1")
    tools.vsctl("del-port", "br0", "p2")
    assert tools.vsctl("list-ports", "br0") == ""
    gone = tools.run("ovs-vsctl", "del-port", "p1", check=False)
    assert (gone.code, gone.err) == (1, "ovs-vsctl: no port named p1\n")
    tools.vsctl("--if-exists", "del-port", "p1")
    tools.vsctl("del-br", "br0", "--", "del-br", "br1")
    assert tools.vsctl("list-br") == ""
    assert tools.appctl("dpif/show") == ""


def test_records(tools):
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    tools.vsctl("set", "bridge", "br0", "other-config:a=b", "external-ids:c=d", "fail-mode=secure", "stp_enable=false")
    tools.vsctl("br-set-external-id", "br0", "e", "f")
    assert tools.vsctl("get", "bridge", "br0", "other_config:a", "external_ids", "fail_mode") == "b\n{c=d, e=f}\nsecure"
    tools.vsctl("add", "bridge", "br0", "protocols", "OpenFlow10", "OpenFlow13")
    assert tools.vsctl("get", "bridge", "br0", "protocols") == "[OpenFlow10, OpenFlow13]"
    tools.vsctl("remove", "bridge", "br0", "external_ids", "c", "--", "clear", "bridge", "br0", "fail_mode")
    assert tools.vsctl("get", "bridge", "br0", "external-ids", "fail-mode") == "{e=f}\n[]"
    assert rows(tools, "--columns=name,other_config", "list", "bridge") == [
        {"name": "br0", "other_config": ["map", [["a", "b"]]]}
    ]
    assert rows(tools, "--columns=name", "find", "interface", "type=internal") == [{"name": "br0"}]
    assert rows(tools, "--columns=name", "find", "interface", "type!=internal") == []
    identity = tools.vsctl("--id=@q", "create", "queue", "dscp=3", "--", "create", "qos", "type=linux-htb", "queues:0=@q")
    queue, qos = identity.split("\n")
    tools.vsctl("set", "port", "br0", f"qos={qos}")
    assert tools.vsctl("get", "qos", qos, "queues") == "{0=" + queue + "}"
    tools.vsctl("clear", "port", "br0", "qos", "--", "destroy", "qos", qos, "--", "destroy", "queue", queue)
    for words, problem in (
        (["get", "bridge", "br0", "nosuch"], "ovs-vsctl: Bridge does not contain a column whose name matches \"nosuch\"\n"),
        (["list", "nosuch"], "ovs-vsctl: unknown table \"nosuch\"\n"),
        (["get", "bridge", "nosuch", "name"], "ovs-vsctl: no row \"nosuch\" in table Bridge\n"),
        (["set", "bridge", "br0", "fail_mode=sometimes"], "ovs-vsctl: constraint violation: sometimes is not one of the allowed values ([secure, standalone])\n"),
        (["nosuch"], "ovs-vsctl: unknown command 'nosuch'; use --help for help\n"),
    ):
        output = tools.run("ovs-vsctl", *words, check=False)
        assert (output.code, output.err.split("|")[-1]) == (1, problem), str(output)


def test_wait_until(tools):
    waiting = subprocess.Popen(
        tools.switch.inside([tools.directory / "ovs-vsctl", "wait-until", "bridge", "br0", "datapath_id!=[]"]),
        env=tools.switch.environment,
    )
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    assert waiting.wait(60) == 0
    never = tools.run("ovs-vsctl", "--timeout=1", "wait-until", "bridge", "nosuch", check=False)
    assert never.code == -14 or never.code == 142, str(never)


def test_a_port_that_cannot_be_opened(tools):
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    output = tools.run("ovs-vsctl", "add-port", "br0", "nosuch0", check=False)
    assert "Error detected while setting up 'nosuch0'" in output.err, str(output)
    assert "log" in output.err, str(output)
    assert tools.vsctl("get", "interface", "nosuch0", "ofport") == "-1"
    error = tools.vsctl("get", "interface", "nosuch0", "error")
    assert "nosuch0" in error, error
    assert re.search(r"\|WARN\|.*nosuch0", tools.switch.log())
    # The other ports continue to work, and the port opens when possible.
    tools.vsctl("add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy")
    tools.vsctl("set", "interface", "nosuch0", "type=dummy")
    assert tools.vsctl("get", "interface", "nosuch0", "error") == "[]"
    assert int(tools.vsctl("get", "interface", "nosuch0", "ofport")) > 0


def test_ofport_request(tools):
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    for port, number in (("a", 7), ("b", 1234), ("c", 2)):
        tools.vsctl("add-port", "br0", port, "--", "set", "interface", port, "type=dummy", f"ofport_request={number}")
        assert tools.vsctl("get", "interface", port, "ofport") == str(number)
    text = tools.ofctl("show", "br0")
    assert [int(n) for n in re.findall(r"^ (\d+)\(", text, re.MULTILINE)] == [2, 7, 1234], text
    assert re.search(r"^ LOCAL\(br0\): addr:", text, re.MULTILINE), text
    tools.vsctl("set", "interface", "a", "ofport_request=70")
    until(lambda: tools.vsctl("get", "interface", "a", "ofport") == "70", "the new number")


@pytest.fixture
def bridge(tools):
    tools.switch.add_dummy_bridge("br0", "p1", "p2", "p3")
    return tools


def test_flows(bridge):
    tools = bridge
    tools.ofctl("add-flow", "br0", "priority=5,tcp,in_port=p1,nw_dst=10.0.0.0/8,tp_dst=80,actions=mod_nw_tos:32,output:p2")
    text = "cookie=0x7,in_port=2,actions=normal\ntable=3,ipv6,actions=drop\n# a comment\n\n"
    tools.ofctl("add-flows", "br0", "-", input=text)
    assert tools.flows("br0", "--no-names") == [
        "cookie=0x0, table=0, priority=5,tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80 actions=mod_nw_tos:32,output:2",
        "cookie=0x0, table=3, ipv6 actions=drop",
        "cookie=0x7, table=0, in_port=2 actions=NORMAL",
    ]
    assert "in_port=p1,nw_dst=10.0.0.0/8,tp_dst=80 actions=mod_nw_tos:32,output:p2" in tools.ofctl("--names", "dump-flows", "br0")
    assert tools.flows("br0", "table=3") == ["cookie=0x0, table=3, ipv6 actions=drop"]
    assert len(tools.flows("br0", "cookie=0x7/-1")) == 1
    tools.ofctl("mod-flows", "br0", "tcp,actions=output:3")
    assert any("tp_dst=80 actions=output:3" in flow for flow in tools.flows("br0", "--no-names"))
    tools.ofctl("--strict", "mod-flows", "br0", "priority=5,tcp,actions=output:1")
    assert len(tools.flows("br0")) == 4, "a strict change of a flow that is not there adds it"
    tools.ofctl("--strict", "del-flows", "br0", "priority=5,tcp")
    tools.ofctl("del-flows", "br0", "ip")
    assert [flow.split(" actions")[0] for flow in tools.flows("br0", "--no-names")] == [
        "cookie=0x0, table=3, ipv6",
        "cookie=0x7, table=0, in_port=2",
    ]
    assert "flow_count=2" in tools.ofctl("dump-aggregate", "br0")
    tools.ofctl("replace-flows", "br0", "-", input="in_port=3,actions=1\n")
    assert tools.flows("br0", "--no-names") == ["cookie=0x0, table=0, in_port=3 actions=output:1"]
    file = tools.switch.directory / "flows"
    file.write_text("in_port=3,actions=1\n")
    same = tools.run("ovs-ofctl", "diff-flows", "br0", file, check=False)
    assert (same.code, same.out) == (0, ""), str(same)
    file.write_text("in_port=3,actions=2\n")
    other = tools.run("ovs-ofctl", "diff-flows", "br0", file, check=False)
    assert other.code == 2 and "-in_port=3 actions=output:1" in other.out.replace("p3", "3").replace("p1", "1"), str(other)
    tools.ofctl("del-flows", "br0")
    assert tools.flows("br0") == []


def test_flows_of_openflow_13(bridge):
    tools = bridge
    flow = "table=1,priority=9,dl_vlan=5,actions=pop_vlan,write_metadata:0x1,goto_table:2"
    tools.ofctl("-O", "OpenFlow13", "add-flow", "br0", flow)
    assert tools.flows("br0", "-OOpenFlow13") == ["cookie=0x0, table=1, priority=9,dl_vlan=5 actions=pop_vlan,write_metadata:0x1,goto_table:2"]


@pytest.mark.parametrize("version", ["OpenFlow10", "OpenFlow13"])
def test_ofctl_reports(bridge, version):
    option = f"-O{version}"
    assert "n_tables:254, n_buffers:0" in bridge.ofctl(option, "show", "br0")
    for port in ("p1", "p2", "p3", "LOCAL"):
        assert re.search(rf'port +"?{port}"?: rx pkts=\d+, bytes=\d+', bridge.ofctl(option, "--names", "dump-ports", "br0"))
    assert "rx pkts=0" in bridge.ofctl(option, "dump-ports", "br0", "1")
    assert re.search(r'1\("?p1"?\): addr:', bridge.ofctl(option, "dump-ports-desc", "br0"))
    assert re.search(r"table 0( \(.*\))?:", bridge.ofctl(option, "dump-tables", "br0"))
    assert re.search(r"Manufacturer: .*\nHardware: .*\nSoftware: ", bridge.ofctl(option, "dump-desc", "br0"))
    bridge.ofctl(option, "mod-port", "br0", "p1", "no-forward")
    assert re.search(r"p1.*\n +config: +NO_FWD", bridge.ofctl(option, "show", "br0"))
    bridge.ofctl(option, "probe", "br0")
    assert bridge.ofctl(option, "ping", "br0").count("bytes from") == 10


def test_ofctl_failures(bridge):
    output = bridge.run("ovs-ofctl", "show", "nosuch", check=False)
    assert (output.code, output.err) == (1, "ovs-ofctl: nosuch is not a bridge or a socket\n")
    for flow, part in (
        ("in_port=1,nosuch=3,actions=2", "nosuch"),
        ("tcp,tp_dst=99999,actions=2", "99999"),
        ("in_port=1,actions=nosuch:3", "nosuch"),
        ("in_port=1", "action"),
        ("ip,nw_src=1.2.x.4,actions=2", "1.2.x.4"),
        ("priority=70000,actions=2", "70000"),
    ):
        output = bridge.run("ovs-ofctl", "add-flow", "br0", flow, check=False)
        lines = output.err.rstrip("\n").split("\n")
        assert output.code == 1 and len(lines) == 1 and part in lines[0] and lines[0].startswith("ovs-ofctl: "), str(output)
    assert bridge.flows("br0") == []
    # The error names the line of the file.
    output = bridge.run("ovs-ofctl", "add-flows", "br0", "-", input="actions=1\nactions=nosuch\n", check=False)
    assert output.code == 1 and re.search(r":2: .*nosuch", output.err), str(output)


def test_flushing_connections(bridge):
    tracked = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=6,ct_tp_src=1,ct_tp_dst=2"
    for version in ("OpenFlow10", "OpenFlow13"):
        option = f"-O{version}"
        assert bridge.ofctl(option, "ct-flush-zone", "br0", "5") == ""
        assert bridge.ofctl(option, "ct-flush", "br0") == ""
        assert bridge.ofctl(option, "ct-flush", "br0", "zone=5", tracked, "ct_nw_src=10.0.0.2") == ""
    output = bridge.run("ovs-ofctl", "ct-flush", "br0", "nosuch=1", check=False)
    assert (output.code, output.err) == (1, "ovs-ofctl: Failed to parse CT match: invalid conntrack tuple field: nosuch\n")
    output = bridge.run("ovs-ofctl", "ct-flush-zone", "br0", "65536", check=False)
    assert (output.code, output.err) == (1, 'ovs-ofctl: invalid zone_id "65536"\n')


def test_no_exporters(bridge):
    for command, kind in (("dump-ipfix-bridge", "NXST_IPFIX_BRIDGE"), ("dump-ipfix-flow", "NXST_IPFIX_FLOW")):
        output = bridge.ofctl(command, "br0")
        assert output == f"OFPT_ERROR (xid=0x2): NXST_NOT_CONFIGURED\n{kind} request (xid=0x2):", output


def test_fdb(bridge):
    assert bridge.appctl("fdb/show", "br0") == " Port  VLAN  MAC                Age"
    bridge.ofctl("add-flow", "br0", "actions=normal")
    bridge.appctl("netdev-dummy/receive", "p1", "ffffffffffff0200000000aa1234" + "00" * 46)
    until(lambda: "02:00:00:00:00:aa" in bridge.appctl("fdb/show", "br0"), "the address learned")
    assert re.search(r"^ +1 +0  02:00:00:00:00:aa +\d+$", bridge.appctl("fdb/show", "br0"), re.MULTILINE)
    assert bridge.appctl("fdb/flush", "br0") == "table successfully flushed"
    assert "02:00" not in bridge.appctl("fdb/show", "br0")
    # A static address does not follow its frames.
    assert bridge.appctl("fdb/add", "br0", "p2", "0", "02:00:00:00:00:aa") == ""
    bridge.appctl("netdev-dummy/receive", "p1", "ffffffffffff0200000000aa1234" + "00" * 46)
    moves = lambda: bridge.appctl("coverage/read-counter", "mac_learning_static_none_move", check=False)
    until(lambda: moves() == "1", "the move refused")
    assert re.search(r"^ +2 +0  02:00:00:00:00:aa +static$", bridge.appctl("fdb/show", "br0"), re.MULTILINE)
    assert bridge.appctl("fdb/del", "br0", "0", "02:00:00:00:00:aa") == ""
    output = bridge.run("ovs-appctl", "fdb/flush", "nosuch", check=False)
    assert (output.code, output.err) == (2, "no such bridge\novs-appctl: ovs-vswitchd: server returned an error\n")


def test_appctl(bridge):
    assert "fdb/show" in bridge.appctl("list-commands")
    assert re.match(r"ovs-vswitchd \(Open vSwitch\) \d", bridge.appctl("version"))
    assert re.match(r"ovsdb-server \(Open vSwitch\) \d", bridge.appctl("-t", "ovsdb-server", "version"))
    assert bridge.appctl("ofproto/list") == "br0"
    assert "p1 1/" in bridge.appctl("dpif/show")
    assert "bridge" in bridge.appctl("vlog/list")
    bridge.appctl("vlog/set", "bridge:file:dbg")
    assert re.search(r"^bridge +\S+ +\S+ +DBG", bridge.appctl("vlog/list"), re.MULTILINE)
    bridge.appctl("coverage/show")
    assert bridge.appctl("memory/show") is not None
    bridge.ofctl("add-flow", "br0", "in_port=1,actions=2")
    assert "actions=output:2" in bridge.appctl("bridge/dump-flows", "br0")
    assert "Datapath actions: " in bridge.appctl("ofproto/trace", "br0", "in_port=1,tcp")
    output = bridge.run("ovs-appctl", "nosuch", check=False)
    assert output.code == 2 and '"nosuch" is not a valid command' in output.err, str(output)


def test_ovsdb_client(tools):
    socket = f"unix:{tools.switch.socket}"
    assert "Open_vSwitch" in tools.ovsdb_client("list-dbs", socket).split("\n")
    assert tools.ovsdb_client("get-schema-version", socket, "Open_vSwitch") == "8.8.0"
    assert "Bridge" in tools.ovsdb_client("list-tables", socket, "Open_vSwitch")
    assert json.loads(tools.ovsdb_client("get-schema", socket, "Open_vSwitch"))["name"] == "Open_vSwitch"
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    assert "br0" in tools.ovsdb_client("dump", socket, "Open_vSwitch", "Bridge", "name")
    select = ["Open_vSwitch", {"op": "select", "table": "Bridge", "where": [["name", "==", "br0"]], "columns": ["name"]}]
    assert json.loads(tools.ovsdb_client("transact", socket, json.dumps(select))) == [{"rows": [{"name": "br0"}]}]
    wrong = ["Open_vSwitch", {"op": "select", "table": "Nosuch", "where": []}]
    assert "error" in json.loads(tools.ovsdb_client("transact", socket, json.dumps(wrong)))[0]


@pytest.mark.parametrize("method", ["monitor", "monitor-cond"])
def test_ovsdb_monitor(tools, method):
    words = ["Open_vSwitch", *(["[]"] if method == "monitor-cond" else []), "Bridge", "name,fail_mode"]
    command = [tools.directory / "ovsdb-client", "--format=csv", method, f"unix:{tools.switch.socket}", *words]
    path = tools.switch.directory / "monitor.csv"
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    with open(path, "w") as log:
        monitor = subprocess.Popen(tools.switch.inside(command), env=tools.switch.environment, stdout=log)
        try:
            until(lambda: re.search(r",initial,br0,", path.read_text()), lambda: path.read_text())
            tools.vsctl("set", "bridge", "br0", "fail_mode=secure")
            until(lambda: re.search(r",(new,br0|modify,),secure", path.read_text()), lambda: path.read_text())
            tools.vsctl("del-br", "br0")
            until(lambda: re.search(r",delete,", path.read_text()), lambda: path.read_text())
        finally:
            monitor.kill()
            monitor.wait()
