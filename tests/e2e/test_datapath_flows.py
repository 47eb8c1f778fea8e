"""Datapath flows added, changed and deleted manually: `dpctl/add-flow` and related commands of ovs-appctl."""

import json
import re
import subprocess

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from dummies import Dummies, on_both
from waiting import until

FRAME = bytes(Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b") / IP(src="10.0.0.1", dst="1.0.0.2") / UDP() / Raw(b"x" * 40))
FLOW = "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.0/255.0.0.0)"


@pytest.fixture
def dummies(switch):
    return Dummies(switch, "br0", "p1", "p2")


def refused(switch, *words):
    with pytest.raises((subprocess.CalledProcessError, AssertionError)) as error:
        switch.appctl(*words)
    return str(getattr(error.value, "stderr", None) or error.value)


def test_manual_flows(dummies, switch):
    dummies.flows("actions=drop")
    assert switch.appctl("dpctl/add-flow", FLOW, "set(ipv4(ttl=9)),2") == ""
    assert "File exists" in refused(switch, "dpctl/add-flow", FLOW, "2")
    dump = switch.appctl("dpctl/dump-flows")
    assert "ipv4(src=10.0.0.0/255.0.0.0), packets:0, bytes:0, used:never, actions:set(ipv4(ttl=9)),2" in dump
    (sent,) = dummies.exchange("p1", FRAME)["p2"]
    assert Ether(sent)[IP].ttl == 9
    assert "packets:1, " in switch.appctl("dpctl/mod-flow", "-s", FLOW, "drop")
    assert dummies.exchange("p1", FRAME) == {}
    dump = json.loads(switch.ours.appctl("--format=json", "dpctl/dump-flows"))
    (entry,) = (entry for entry in dump if "10.0.0.0/255.0.0.0" in entry["flow"])
    assert entry["packets"] == 2 and entry["actions"] == "drop"
    assert "packets:2, " in switch.appctl("dpctl/mod-flow", "-s", "--clear", FLOW, "2")
    assert "packets:0, " in switch.appctl("dpctl/del-flow", "-s", FLOW)
    assert "No such file or directory" in refused(switch, "dpctl/del-flow", FLOW)
    assert "No such file or directory" in refused(switch, "dpctl/mod-flow", FLOW, "2")
    assert switch.appctl("dpctl/mod-flow", "--may-create", FLOW, "2") == ""
    assert "syntax error at bogus" in refused(switch, "dpctl/add-flow", "in_port(1),bogus", "2")
    assert "parsing actions" in refused(switch, "dpctl/add-flow", "in_port(2)", "nowhere")
    switch.appctl("dpctl/del-flows")
    assert "actions" not in switch.appctl("dpctl/dump-flows")


def test_files_of_flows(dummies, switch, tmp_path):
    path = tmp_path / "flows"
    path.write_text(f"# two of them\n{FLOW} 2\nadd in_port(2),eth_type(0x0806) drop\nmodify {FLOW} drop\n")
    switch.appctl("dpctl/add-flows", path)
    assert switch.appctl("dpctl/dump-flows").count("actions:drop") == 2
    path.write_text("in_port(2),eth_type(0x0806)\n")
    switch.appctl("dpctl/del-flows", path)
    assert switch.appctl("dpctl/dump-flows").count("actions:drop") == 1
    path.write_text("in_port(2),eth_type(0x0806)\n")
    assert "no actions" in refused(switch, "dpctl/add-flows", path)


def test_packet_outs_are_traced(dummies, switch):
    """As in Open vSwitch: without a table, and with the pipeline behind it."""
    dummies.flows("in_port=1,actions=2")
    trace = switch.appctl("ofproto/trace-packet-out", "br0", "in_port=1,tcp", "output:2")
    assert trace.endswith("-------------\n    output:2\n\nFinal flow: unchanged\n"
                          "Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no\nDatapath actions: 2")
    trace = switch.appctl("ofproto/trace-packet-out", "br0", "in_port=1,tcp", "resubmit(,0)")
    assert "    resubmit(,0)\n 0. in_port=1, priority 32768\n    output:2\n" in trace
    wrong = ("ofproto/trace-packet-out", "-consistent", "br0", "in_port=1,ip", "set_field:1->tcp_dst,output:2")
    assert "Bad actions: OFPBAC_MATCH_INCONSISTENT" in refused(switch, *wrong)
    assert "unknown action bogus" in refused(switch, "ofproto/trace-packet-out", "br0", "in_port=1,tcp", "bogus")
    traced = json.loads(switch.ours.appctl("--format=json", "ofproto/trace-packet-out", "br0", "in_port=1", "2"))
    assert traced["datapath-actions"] == "2"


def as_json(switch, *words):
    """A command's own JSON, not its text in an envelope."""
    shown = json.loads(switch.ours.appctl("--format=json", *words))
    assert not isinstance(shown, dict) or "reply-format" not in shown, words
    return shown


def test_show_commands_have_json(dummies, switch):
    dummies.flows("in_port=1,actions=2")
    dummies.exchange("p1", FRAME)
    cached = as_json(switch, "dpctl/dump-flows")
    (entry,) = (entry for entry in cached if "eth_type(0x0800)" in entry["flow"])
    assert entry["actions"] == "2" and as_json(switch, "dpctl/get-flow", "ufid:" + entry["ufid"])["actions"] == "2"
    assert [flow["ufid"] for flow in as_json(switch, "dpif/dump-flows", "br0")] == [flow["ufid"] for flow in cached]
    traced = as_json(switch, "ofproto/trace", "br0", "in_port=1")
    assert traced["datapath-actions"] == "2" and traced["trace"][0]["kind"] == "bridge"
    for events in as_json(switch, "coverage/show"), json.loads(switch.ours.appctl("-t", "ovsdb-server", "--format=json", "coverage/show")):
        assert "reply-format" not in events and all(event["total"] >= 0 for event in events.values())
    counted = next(iter(as_json(switch, "coverage/show")))
    assert isinstance(as_json(switch, "coverage/read-counter", counted), int)
    assert as_json(switch, "memory/show")["rules"] >= 1
    (shown,) = as_json(switch, "upcall/show").values()
    assert shown["flows"]["current"] == len(cached) and sum(handler["packets"] for handler in shown["handlers"]) >= 1
    assert as_json(switch, "upcall/set-flow-limit", "5000") == {"flow_limit": 5000}
    assert as_json(switch, "revalidator/check")["wrong"] == 0
    (paused,) = as_json(switch, "revalidator/pause").values()
    (resumed,) = as_json(switch, "revalidator/resume").values()
    assert (paused["paused"], resumed["paused"]) == (True, False)
    assert [one["flows"] for one in as_json(switch, "revalidator/wait").values()] == [len(cached)]
    assert [one["flows"] for one in as_json(switch, "revalidator/purge").values()] == [0]


def test_threads_and_lookups_are_shown(dummies, switch):
    dummies.flows("ip,nw_dst=10.0.0.0/8,actions=2", "in_port=1,actions=2")
    dummies.exchange("p1", FRAME, FRAME)
    (thread,) = json.loads(switch.ours.appctl("--format=json", "dpif-netdev/pmd-stats-show"))
    assert thread["packets_received"] >= 2 and thread["upcalls"] >= 1
    assert re.search(r"  - Megaflow hits: +\d+ ", switch.appctl("dpif-netdev/pmd-stats-show"))
    assert "Histograms" not in switch.appctl("dpif-netdev/pmd-perf-show", "-it", "5")
    switch.vsctl("set", "open_vswitch", ".", "other_config:pmd-perf-metrics=true")
    dummies.exchange("p1", FRAME, FRAME)
    perf = switch.appctl("dpif-netdev/pmd-perf-show", "-it", "1000", "-ms", "1000")
    rounds, milliseconds = (part.splitlines()[1:] for part in re.split("^   (?:iter|ms) .*cycles/upcall$", perf, flags=re.M)[1:])
    packets = lambda lines, column: sum(int(line.split()[column]) for line in lines if line.startswith("   "))  # noqa: E731
    assert packets(rounds, 2) == packets(milliseconds, 3) >= 1
    assert re.search(r"^  Rx packets: +\d+  \(\d+ Kpps, \d+ cycles/pkt\)$", perf, re.M)
    assert re.search(r"^  - Upcalls: +\d+  \( *[\d.]+ %, [\d.]+ us/upcall\)$", perf, re.M) and "\nHistograms\n" in perf
    assert "Histograms" not in switch.appctl("dpif-netdev/pmd-perf-show", "-nh")
    (thread,) = json.loads(switch.ours.appctl("--format=json", "dpif-netdev/pmd-perf-show", "-pmd", "0"))
    assert sum(bucket["count"] for bucket in thread["histograms"]["packets_per_iteration"]["buckets"]) == thread["iterations"]
    switch.appctl("dpif-netdev/pmd-perf-log-set", "on", "-b", "2", "-a", "0", "-us", "0")
    dummies.exchange("p1", FRAME, FRAME)
    switch.appctl("dpif-netdev/pmd-perf-log-set", "off")
    suspicious = r"\|WARN\|Suspicious iteration \(Excessive total cycles\): iter=(\d+) duration=\d+ us\n"
    logged = re.search(suspicious + r".*\|WARN\|Neighborhood of suspicious iteration:\n   iter .*\n   (\d+) ", switch.log())
    assert logged and logged[1] == logged[2], switch.log()[-3000:]
    queues = switch.appctl("dpif-netdev/pmd-rxq-show")
    assert re.search(r"^  port: p1 {16}queue-id:  0 \(enabled\)   pmd usage: (NOT AVAIL|[ \d]\d %)$", queues, re.M)
    (thread,) = json.loads(switch.ours.appctl("--format=json", "dpif-netdev/pmd-rxq-show"))
    assert ("p1", 0, True) in [(q["port"], q["queue_id"], q["enabled"]) for q in thread["queues"]]
    switch.appctl("dpif-netdev/pmd-stats-clear")
    assert "  Rx packets:                    0\n" in switch.appctl("dpif-netdev/pmd-stats-show")
    shown = json.loads(switch.ours.appctl("--format=json", "classifier/show", "br0"))
    assert shown["optimisations"]["stages"] and shown["tables"][0]["prefixes"] == ["ip_src", "ip_dst", "ipv6_src", "ipv6_dst"]
    switch.appctl("classifier/set", "br0", "stages", "off")
    assert "stages: off" in switch.appctl("classifier/show", "br0")
    assert "no optimisation 'bogus'" in refused(switch, "classifier/set", "br0", "bogus", "on")
    switch.vsctl("set", "bridge", "br0", "flow_tables:0=@t", "--", "--id=@t", "create", "flow_table", "prefixes=nw_dst")
    assert "prefixes ip_dst\n" in switch.appctl("classifier/show", "br0") + "\n"


def test_megaflow_prefixes_are_minimal(dummies, switch):
    """The four flows of the NSDI'15 paper's experiment, and one like its example of prefixes (sections 5.4 and 7)."""

    def prefix(packet):
        megaflow = re.search("Megaflow: (.*)", switch.appctl("ofproto/trace", "br0", f"in_port=1,{packet}"))[1]
        assert "tp_" not in megaflow and "nw_src" not in megaflow
        return re.search("nw_dst=([^,]*)", megaflow)[1]

    dummies.flows(
        "priority=1,arp,actions=NORMAL",
        "priority=2,ip,nw_dst=11.1.1.1/16,actions=NORMAL",
        "priority=3,tcp,nw_dst=9.1.1.1,tcp_src=10,tcp_dst=10,actions=NORMAL",
        "priority=4,ip,nw_dst=9.1.1.1/24,actions=NORMAL",
    )
    assert prefix("tcp,nw_dst=11.1.2.3,tp_src=5,tp_dst=6") == "11.1.0.0/16"
    assert prefix("tcp,nw_dst=9.1.1.1,tp_src=10,tp_dst=10") == "9.1.1.0/24"
    assert prefix("tcp,nw_dst=9.1.1.7,tp_src=1,tp_dst=1") == "9.1.1.0/24"
    # 8.0.0.0/7 and 11.0.0.0/8 are taken.
    assert prefix("tcp,nw_dst=10.3.2.1,tp_src=5,tp_dst=6") == "10.0.0.0/8"
    switch.ofctl("del-flows", "br0")
    dummies.flows("priority=1,ip,nw_dst=10.1.0.0/16,actions=1", "priority=5,ip,nw_dst=10.1.3.0/24,actions=2",
                  "priority=6,ip,nw_dst=10.1.4.5,actions=drop", "priority=0,actions=drop")
    # 10.3 differs from 10.1 in its fifteenth bit.
    assert prefix("ip,nw_dst=10.3.5.6") == "10.2.0.0/15"
    assert prefix("ip,nw_dst=10.1.9.9") == "10.1.8.0/21"


def test_detrace_of_a_cached_flow(dummies, switch):
    dummies.flows("cookie=0x12,in_port=1,ip,actions=resubmit(,3)", "cookie=0x34,table=3,priority=7,udp,actions=2")
    dummies.exchange("p1", FRAME, FRAME)
    line = next(line for line in switch.appctl("dpctl/dump-flows", "-m").splitlines() if "eth_type(0x0800)" in line)
    ufid = re.search("ufid:[-0-9a-f]{36}", line)[0]
    assert f"{ufid}, " in switch.appctl("dpctl/get-flow", "-m", ufid)
    output = [re.sub(r"n_(packets|bytes)=\d+, ", "", line) for line in switch.appctl("ofproto/detrace", ufid).splitlines()]
    assert output == [
        "cookie=0x12, ip,in_port=1,actions=resubmit(,3)",
        "cookie=0x34, table_id=3, priority=7,udp,actions=output:2",
    ]
    rules = json.loads(switch.ours.appctl("--format=json", "ofproto/detrace", ufid))
    assert [(rule["table"], rule["cookie"]) for rule in rules] == [(0, 0x12), (3, 0x34)]
    assert "failed to parse ufid" in refused(switch, "ofproto/detrace", "x")
    assert "Invalid pmd argument format" in refused(switch, "ofproto/detrace", ufid, "x")
    assert switch.appctl("ofproto/detrace", ufid[:-6] + "ffffff").startswith("UFID was not found for ")


def header(ethernet_type, rest=""):
    return f"in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type({ethernet_type}){rest}"


def ipv4(protocol, rest="", frag="no", tos=0):
    return f"ipv4(src=10.0.0.2,dst=10.0.0.1,proto={protocol},tos={tos},ttl=64,frag={frag}){rest}"


ECHO = header("0x0800", "," + ipv4(1, ",icmp(type=8,code=0)"))
SEGMENT = header("0x0800", "," + ipv4(6, ",tcp(src=8,dst=9),tcp_flags(ack)", tos=4))
SOLICITATION = header("0x86dd", ",ipv6(src=fe80::1,dst=fe80::2,label=5,proto=58,tclass=3,hlimit=255,frag=no),"
                      "icmpv6(type=135,code=0),nd(target=fe80::2,sll=50:54:00:00:00:05,tll=00:00:00:00:00:00)")
# Flows, and packets whose cached flows are printed.
PRINTED = [
    ("in_port=1,actions=2", ECHO),
    ("in_port=1,icmp,actions=2", ECHO),
    ("in_port=1,ip,nw_src=10.0.0.0/30,actions=2", SEGMENT),
    ("in_port=1,ip,nw_src=10.0.0.0/30,actions=2", header("0x0800", "," + ipv4(17, ",udp(src=8,dst=9)"))),
    ("in_port=1,tcp,tp_src=8/0xff,actions=2", SEGMENT),
    ("in_port=1,tcp,tcp_flags=+ack,actions=2", SEGMENT),
    ("in_port=1,ip,nw_proto=6,actions=2", header("0x0800", "," + ipv4(6, ",tcp(src=8,dst=9),tcp_flags(ack)", "first"))),
    ("in_port=1,ip,nw_proto=6,actions=2", header("0x0800", "," + ipv4(6, "", "later"))),
    ("in_port=1,dl_vlan=99,actions=2", header("0x8100", f",vlan(vid=99,pcp=7),encap(eth_type(0x0800),{ipv4(1, ',icmp(type=8,code=0)')})")),
    ("in_port=1,mpls,actions=2", header("0x8847", ",mpls(label=5,tc=3,ttl=64,bos=1)")),
    ("in_port=1,mpls,mpls_label=5,actions=2", header("0x8847", ",mpls(label=5,tc=3,ttl=64,bos=0,label=6,tc=3,ttl=64,bos=1)")),
    ("in_port=1,mpls,mpls_label=5,mpls_tc=3,mpls_bos=1,mpls_ttl=64,actions=2", header("0x8847", ",mpls(label=5,tc=3,ttl=64,bos=1)")),
    ("in_port=1,arp,actions=2", header("0x0806", ",arp(sip=1.1.1.1,tip=2.2.2.2,op=1,sha=50:54:00:00:00:05,tha=00:00:00:00:00:00)")),
    ("in_port=1,ipv6,actions=2", SOLICITATION),
    ("in_port=1,icmp6,icmpv6_type=135,actions=2", SOLICITATION),
    ("in_port=1,actions=2", header("0x1234")),
]


@pytest.fixture(scope="module")
def both(module_making):
    return on_both(module_making, "p1", "p2", "p3")


def keys(switch, *options):
    """The keys and actions of cached flows, sorted."""
    flows = [line for line in switch.appctl("dpctl/dump-flows", *options).splitlines() if " actions:" in line]
    # Open vSwitch's index of flows has more to say.
    flows = [re.sub(r"ufid:[-0-9a-f]{36}, |, packets:.*used:[^,]*|, flags:\S*|, dp-extra-info.*", "", flow) for flow in flows]
    return sorted(flows)


def cached(bench, packet, *options):
    """The keys of cached flows after one packet."""
    bench.switch.appctl("dpctl/del-flows")
    bench.switch.appctl("revalidator/purge")
    bench.switch.appctl("netdev-dummy/receive", "p1", packet)
    until(lambda: keys(bench.switch), "a cached flow")
    return keys(bench.switch, *options)


@pytest.mark.parametrize("flow, packet", PRINTED)
def test_printed_keys_are_the_packets(both, flow, packet):
    for bench in both:
        bench.flows(flow)
    for options in ([], ["-m"], ["--names"]):
        theirs, ours = (cached(bench, packet, *options) for bench in both)
        assert ours == theirs
    # The printed flow can be added by hand, and traced with its UUID.
    switch = both[1].switch
    (line,) = switch.appctl("dpctl/dump-flows", "-m").splitlines()[1:]
    key = re.match(r"(.*), packets:", line)[1]
    switch.appctl("dpctl/del-flows")
    switch.appctl("dpctl/add-flow", key, "2")
    assert f"{key}, packets:0" in switch.appctl("dpctl/dump-flows", "-m")
    traces = [bench.switch.appctl("ofproto/trace", key.replace("in_port(p1)", "in_port(1)").replace(", ", " ")) for bench in both]
    assert traces[1] == traces[0]


def test_flows_have_uuids(both):
    """Lines as Open vSwitch has them, whose revalidators would delete flows added by hand."""
    switch = both[1].switch
    uuid = "12345678-0000-0000-0000-000000000001"
    match = header("0x0800", ",ipv4(frag=no)")
    switch.appctl("dpctl/del-flows")
    assert switch.appctl("dpctl/add-flow", f"ufid:{uuid},{match}", "3") == ""
    assert f"\nufid:{uuid}, recirc_id(0)," in switch.appctl("dpctl/dump-flows", "-m")
    short = switch.appctl("dpctl/get-flow", f"ufid:{uuid}")
    assert short.startswith("recirc_id(0),in_port(1)") and short.endswith("used:never, actions:3")
    assert switch.appctl("dpctl/get-flow", "dummy@ovs-dummy", f"ufid:{uuid}") == short
    assert f"ufid:{uuid}, recirc_id(0),dp_hash(0/0)" in switch.appctl("dpctl/get-flow", "-m", f"ufid:{uuid}")
    assert "in_port(p1)" in switch.appctl("dpctl/get-flow", "--names", f"ufid:{uuid}")
    assert "getting flow (No such file or directory)" in refused(switch, "dpctl/get-flow", f"ufid:{uuid[:-1]}2")
    assert "File exists" in refused(switch, "dpctl/add-flow", f"ufid:{uuid},{match}", "1")
    switch.appctl("dpctl/mod-flow", f"ufid:{uuid},{match}", "1")
    assert "actions:1" in switch.appctl("dpctl/get-flow", f"ufid:{uuid}")
    switch.appctl("dpctl/del-flow", f"ufid:{uuid}")
    assert "deleting flow (No such file or directory)" in refused(switch, "dpctl/del-flow", f"ufid:{uuid}")
    # Other flows have random ones.
    switch.appctl("dpctl/add-flow", match, "3")
    (uuid,) = re.findall(r"ufid:([-0-9a-f]{36})", switch.appctl("dpctl/dump-flows", "-m"))
    assert not uuid.startswith("00000000") and "actions:3" in switch.appctl("dpctl/get-flow", f"ufid:{uuid}")


def test_datapath_commands_as_open_vswitch(both):
    """Commands on text, the datapath's own port, and counters that scripts read."""
    match = ECHO
    tagged = header("0x8100", f",vlan(vid=5,pcp=3),encap(eth_type(0x0800),{ipv4(1, ',icmp(type=8,code=0)')})")
    commands = [
        ["dpctl/show"],
        ["dpctl/normalize-actions", match, "3,push_vlan(vid=7,pcp=1),5,4,pop_vlan,2,1"],
        ["dpctl/normalize-actions", tagged, "3,pop_vlan,9,push_vlan(vid=7,pcp=0),5,4,pop_vlan,2,1"],
        ["dpctl/normalize-actions", match, "bogus"],
        ["dpctl/parse-actions", "2,3", "set(ipv4(ttl=3)),4", ""],
        ["coverage/read-counter", "mac_learning_static_none_move"],
        ["coverage/read-counter", "drop_action_recursion_too_deep"],
        ["coverage/read-counter", "bogus"],
    ]
    answers = []
    for bench in both:
        # Packets before this test were not the same.
        tools = bench.switch.ours
        found = [tools.run("ovs-appctl", *words, check=False) for words in commands]
        answers.append([re.sub("lookups: .*|flows: .*|  port 0: .*\\n", "", result.out + result.err) for result in found])
    assert answers[1] == answers[0]
    for name in ("rev_reconfigure", "netdev_sent", "netdev_received", "drop_action_of_pipeline"):
        assert int(both[1].switch.appctl("coverage/read-counter", name)) >= 0
    assert int(both[1].switch.appctl("coverage/read-counter", "rev_reconfigure")) > 0
    # Two commands of ovs-dpctl need no switch.
    for words in (["normalize-actions", match, "3,1,2"], ["normalize-actions", "in_port(1),bogus", "2"], ["parse-actions", "2,drop(1)"],
                  ["parse-actions", "2 3", "drop"], ["parse-actions"]):
        theirs, ours = (tools.run("ovs-dpctl", *words, check=False) for tools in (both[1].switch.peers, both[1].switch.ours))
        assert (ours.out, ours.err.strip(), ours.code) == (theirs.out, theirs.err.strip(), theirs.code), words


def test_queues_of_all_remembered_seconds(both):
    for seconds in ("0", "-1", "60"):
        shown = [bench.switch.appctl("dpif-netdev/pmd-rxq-show", "-secs", seconds).splitlines()[0] for bench in both]
        assert shown == ["Displaying last 60 seconds pmd usage %"] * 2


@pytest.mark.parametrize("flow", ["in_port=1,pkt_mark=0,actions=2", "in_port=1,pkt_mark=0/1,actions=2", "in_port=1,ct_state=-trk,actions=2",
                                  "in_port=1,ct_zone=0,ct_mark=0,ct_label=0,ct_state=0/0xff,actions=2", None])
def test_matched_metadata_is_printed(both, flow):
    """Zero or not. Without megaflows, all of it is matched."""
    for bench in both:
        bench.flows(flow or "in_port=1,actions=2")
        bench.switch.appctl(f"upcall/{'enable' if flow else 'disable'}-megaflows")
    for options in ([], ["-m"]):
        theirs, ours = (cached(bench, header("0x1234"), *options) for bench in both)
        assert ours == theirs
    for bench in both:
        bench.switch.appctl("upcall/enable-megaflows")


def test_flows_without_a_port_are_refused(both):
    answers = [bench.switch.ours.run("ovs-appctl", "dpctl/add-flow", "eth(),eth_type(0x0800),ipv4()", "3", check=False).err for bench in both]
    assert answers[1] == answers[0] and "updating flow table (Invalid argument)" in answers[1]
    for bench in both:
        assert "failed to put[create] flow: in_port is not an exact match" in bench.switch.log()
    types = [bench.switch.ours.run("ovs-appctl", "netdev-dummy/receive", "p1", "in_port(1),eth(),eth_type(0x05ff)", check=False).err for bench in both]
    assert types[1] == types[0]


def test_dummies_offload_nothing(both):
    theirs, ours = (bench.switch.vsctl("get", "interface", "p1", "status") for bench in both)
    assert ours == theirs and 'tx_tcp_seg_offload="false"' in ours
