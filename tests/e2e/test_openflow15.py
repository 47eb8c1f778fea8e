"""All versions of OpenFlow on one switch: Debian's ovs-ofctl and ours, with the same command lines."""

import re

import pytest
from switch import known_to_both

VERSIONS = ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"]


def normal(text):
    """The output of a command, without fields that change by themselves."""
    text = re.sub(r"xid=0x[0-9a-f]+", "xid", text)
    text = re.sub(r"(duration[=: ])[0-9.]*s", r"\1", text)
    return known_to_both(re.sub(r"20[0-9T:.Z-]*\|[0-9]*\|", "", text))


class Both:
    """Debian's ovs-ofctl and ours on br0 with ports 1 and 2."""

    def __init__(self, switch):
        self.switch = switch
        vsctl = switch.peers.vsctl
        vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
        for number, port in enumerate(("p1", "p2"), 1):
            vsctl("add-port", "br0", port, "--", "set", "interface", port, "type=dummy", f"ofport_request={number}")

    def said(self, tools, version, words):
        words = [*[w for w in words if w.startswith("--")], *[w for w in words if not w.startswith("--")]]
        at = next(i for i, word in enumerate(words) if not word.startswith("--")) + 1
        done = tools.run("ovs-ofctl", "-O", version, *words[:at], "br0", *words[at:], check=False)
        return done.code, normal(done.out + done.err)

    def __call__(self, version, *words):
        """The output of both, which must be equal."""
        first, second = (self.said(tools, version, words) for tools in (self.switch.peers, self.switch.ours))
        assert first == second, (version, words)
        return first

    def ok(self, version, *words):
        """Runs Debian's alone, and expects no output."""
        assert self.said(self.switch.peers, version, words) == (0, ""), (version, words)


@pytest.fixture
def both(switch):
    return Both(switch)


def test_every_version_is_spoken(both):
    for version in VERSIONS:
        code, output = both(version, "show")
        assert code == 0 and ("(OF1." in output) == (version != "OpenFlow10"), output
        for command in ("dump-ports-desc", "dump-ports", "dump-tables", "dump-flows", "dump-aggregate", "get-frags"):
            assert both(version, command)[0] == 0, (version, command)
        for command in ("dump-groups", "dump-group-stats", "dump-group-features"):
            assert both(version, command)[0] == 0, (version, command)
    # Without `protocols`, the newest that both sides have is used.
    hello = both.switch.peers.run("ovs-ofctl", "-O", ",".join(VERSIONS), "-vvconn:console:dbg", "probe", "br0").err
    assert "peer supports version 0x06 and earlier" in hello and "negotiated OpenFlow version 0x06" in hello
    both.switch.vsctl("set", "bridge", "br0", "protocols=OpenFlow11,OpenFlow15")
    codes = [both.said(both.switch.peers, version, ["dump-flows"])[0] for version in VERSIONS]
    assert codes == [1, 0, 1, 1, 1, 0]


def test_flows_and_packets_in_every_version(both):
    for version in VERSIONS:
        both.ok(version, "add-flow", "priority=9,tcp,tp_dst=80,idle_timeout=60,cookie=0x5,actions=output:1")
        both.ok(version, "add-flow", "priority=8,in_port=1,actions=load:7->NXM_NX_REG0[],resubmit(,2)")
        both.ok(version, "mod-flows", "tcp,actions=output:2")
        both.ok(version, "mod-flows", "udp,actions=output:2")
        flows = both(version, "--no-stats", "dump-flows")[1]
        # In the oldest two versions, modifying missing flows adds them.
        assert ("udp" in flows) == (version in VERSIONS[:2]), version
        # OpenFlow 1.0 always sets the cookie.
        cookie = "" if version == "OpenFlow10" else "cookie=0x5, "
        assert f" {cookie}idle_timeout=60, priority=9,tcp,tp_dst=80 actions=output:2" in flows
        assert both(version, "dump-aggregate")[1].endswith(f"flow_count={flows.count('actions=')}\n")
        code, output = both(version, "add-flow", "priority=3,actions=group:77")
        assert code == 1 and "OFPBAC_BAD_OUT_GROUP" in output and "actions=group:77" in output
        both.ok(version, "packet-out", "in_port=2,packet=ffffffffffff0200000000019999,actions=output:1")
        both.ok(version, "del-flows")


def test_metadata_of_packets_out(both):
    both.ok("OpenFlow15", "add-flow", "metadata=5,reg1=3,in_port=2,actions=output:1")
    both.ok("OpenFlow15", "packet-out", "in_port=2,metadata=5,reg1=3,packet=ffffffffffff0200000000019999,actions=TABLE")
    both.ok("OpenFlow15", "packet-out", "in_port=2,packet=ffffffffffff0200000000019999,actions=TABLE")
    assert both.switch.peers.n_packets("br0", "metadata=5") == 1


def test_buckets_of_groups(both):
    both.ok("OpenFlow15", "add-group", "group_id=1,type=select,selection_method=hash,bucket=bucket_id:1,weight:2,output:1")
    both.ok("OpenFlow15", "insert-buckets", "group_id=1,command_bucket_id=last,bucket=bucket_id:2,weight:3,output:2")
    both.ok("OpenFlow15", "insert-buckets", "group_id=1,command_bucket_id=first,bucket=bucket_id:3,weight:4,output:2")
    assert re.findall(r"bucket_id:(\d)", both("OpenFlow15", "dump-groups")[1]) == ["3", "1", "2"]
    code, output = both("OpenFlow15", "remove-buckets", "group_id=1,command_bucket_id=9")
    assert code == 1 and "OFPGMFC_UNKNOWN_BUCKET" in output
    both.ok("OpenFlow15", "remove-buckets", "group_id=1,command_bucket_id=1")
    assert re.findall(r"bucket_id:(\d)", both("OpenFlow15", "dump-groups", "1")[1]) == ["3", "2"]
    assert both("OpenFlow11", "dump-groups")[1].count("bucket=") == 2


def test_misses(both):
    for setting, config in (("drop", "drop"), ("continue", "continue"), ("controller", "controller")):
        both.ok("OpenFlow12", "mod-table", "0", setting)
        for version in ("OpenFlow11", "OpenFlow12"):
            assert f"config={config}\n" in both(version, "dump-tables")[1]
    both.ok("OpenFlow11", "mod-table", "0", "continue")
    both.ok("OpenFlow13", "add-flow", "table=1,in_port=2,actions=output:1")
    both.ok("OpenFlow13", "packet-out", "in_port=2,packet=ffffffffffff0200000000019999,actions=TABLE")
    assert both.switch.peers.n_packets("br0", "table=1") == 1
    trace = both.switch.appctl("ofproto/trace", "br0", "in_port=2")
    assert " 0. No match.\n" in trace and "output:1" in trace
