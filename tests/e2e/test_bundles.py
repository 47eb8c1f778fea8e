"""OpenFlow bundles by Debian's ovs-ofctl and ours: all changes apply, or none."""

import re
import socket
import struct

import pytest

FIRST = "priority=1,actions=drop\npriority=2,ip,actions=1\n"
BAD = "priority=3,actions=drop\npriority=4,ip,actions=group:7\npriority=5,actions=2\n"
MIXED = """
# Groups, flows and a packet.
group add group_id=7,type=all,bucket=actions=2
flow add priority=9,in_port=1,actions=group:7
flow delete_strict priority=1
packet-out in_port=1,packet=ffffffffffff0200000000010806,actions=table
"""


@pytest.fixture
def bridge(tools, tmp_path):
    """Runs ovs-ofctl with a file of text, on br0 with ports 1 and 2; returns its exit code and standard error."""
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
    for port in ("p1", "p2"):
        tools.vsctl("add-port", "br0", port, "--", "set", "interface", port, "type=dummy")

    def ofctl(*words, text=None):
        if text is not None:
            (tmp_path / "file").write_text(text)
            words += (tmp_path / "file",)
        done = tools.run("ovs-ofctl", "-O", "OpenFlow13", *words, check=False)
        return done.code, done.err

    def flows():
        return [line.strip() for line in tools.run("ovs-ofctl", "--no-stats", "--rsort", "dump-flows", "br0").out.splitlines()]

    ofctl.flows = flows
    ofctl.tools = tools
    return ofctl


def test_bundles_are_atomic(bridge):
    assert bridge("--bundle", "add-flows", "br0", text=FIRST) == (0, "")
    flows = bridge.flows()
    assert flows == ["priority=2,ip actions=output:1", "priority=1 actions=drop"]
    code, told = bridge("--bundle", "add-flows", "br0", text=BAD)
    lines = told.splitlines()
    assert code == 1
    assert lines[0].startswith("Error OFPBAC_BAD_OUT_GROUP for: OFPT_FLOW_MOD (OF1.3) (xid=0x7): ADD priority=4,ip actions=group:7")
    assert lines[1].startswith("Error OFPBFC_MSG_FAILED for: ONFT_BUNDLE_CONTROL (OF1.3) (xid=0xb):")
    assert lines[2] == " bundle_id=0 type=COMMIT_REQUEST flags=atomic ordered"
    assert lines[3].startswith("ovs-ofctl: talking to unix:") and lines[3].endswith(" (Protocol error)")
    assert bridge.flows() == flows
    assert bridge("--bundle", "replace-flows", "br0", text="priority=8,actions=2\n") == (0, "")
    assert bridge.flows() == ["priority=8 actions=output:2"]
    assert bridge("--bundle", "mod-flows", "br0", "actions=1") == (0, "")
    assert bridge.flows() == ["priority=8 actions=output:1"]
    assert bridge("--bundle", "del-flows", "br0") == (0, "")
    assert bridge.flows() == []


def test_without_a_version_bundles_are_of_openflow_14(bridge, tmp_path):
    file = tmp_path / "flows"
    file.write_text(FIRST)
    done = bridge.tools.run("ovs-ofctl", "--bundle", "add-flows", "br0", file)
    assert (done.out, done.err) == ("", "")
    file.write_text(BAD)
    done = bridge.tools.run("ovs-ofctl", "--bundle", "add-flows", "br0", file, check=False)
    assert done.err.splitlines()[0].startswith("Error OFPBAC_BAD_OUT_GROUP for: OFPT_FLOW_MOD (OF1.4)")
    assert bridge.flows() == ["priority=2,ip actions=output:1", "priority=1 actions=drop"]


def test_flows_groups_and_packets_together(bridge):
    bridge("add-flows", "br0", text=FIRST)
    assert bridge("bundle", "br0", text=MIXED) == (0, "")
    assert bridge.flows() == ["priority=9,in_port=1 actions=group:7", "priority=2,ip actions=output:1"]
    # The packet used the group of the same bundle.
    stats = bridge.tools.run("ovs-ofctl", "-O", "OpenFlow13", "dump-ports", "br0", "2").out
    assert "tx pkts=1," in stats
    # A second time, nothing applies: the group exists already.
    code, told = bridge("bundle", "br0", text=MIXED)
    assert code == 1 and told.startswith("Error OFPGMFC_GROUP_EXISTS for: OFPT_GROUP_MOD (OF1.3)")
    assert bridge.flows() == ["priority=9,in_port=1 actions=group:7", "priority=2,ip actions=output:1"]
    assert bridge("--bundle", "add-group", "br0", "group_id=9,type=all,bucket=actions=1") == (0, "")
    assert bridge("--bundle", "del-groups", "br0") == (0, "")
    assert bridge.flows() == ["priority=2,ip actions=output:1"]


def test_lines_without_changes(bridge, tmp_path):
    for line, what in [
        ("foo bar", "Unsupported bundle message type: foo"),
        ("flow", "must specify an action"),
        ("flow bogus actions=drop", "field bogus missing value"),
        ("group", "must specify a group_id"),
    ]:
        assert bridge("bundle", "br0", text=f"# first\n\n{line}\n") == (1, f"ovs-ofctl: {tmp_path}/file:3: {what}\n")


def test_many_flows_at_once(bridge, tmp_path):
    """100,000 flows in one bundle, in memory close to that of the flows themselves."""
    path = tmp_path / "many"
    # Our unoptimized client is slow, and this tests the switch.
    count = 100_000 if bridge.tools is bridge.tools.switch.peers else 10_000
    with open(path, "w") as file:
        for n in range(count):
            file.write(f"tcp,nw_dst=10.{n >> 16}.{n >> 8 & 255}.{n & 255},tp_dst=80,actions=mod_dl_src:02:00:00:00:00:01,2\n")
    process = f"/proc/{bridge.tools.switch.pid('ovs-vswitchd')}/status"

    def peak_kb():
        with open(process) as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    before = peak_kb()
    # On a busy machine Open vSwitch's program reports long poll intervals.
    status, said = bridge("--bundle", "add-flows", "br0", path)
    assert status == 0 and not [line for line in said.splitlines() if not re.search(r"\|(timeval|coverage)\|", line)]
    grown_kb = peak_kb() - before
    print(f"\npeak memory grew by {grown_kb} kB")
    assert grown_kb < 150_000
    assert f"flow_count={count}" in bridge.tools.run("ovs-ofctl", "dump-aggregate", "br0").out


def test_an_idle_bundle_ends(bridge):
    """ovs-ofctl never leaves a bundle open, so this uses a raw connection."""
    switch = bridge.tools.switch
    switch.vsctl("set", "Open_vSwitch", ".", "other_config:bundle-idle-timeout=1")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(switch.management("br0")))
        connection.sendall(struct.pack("!BBHI", 5, 0, 8, 1))
        connection.sendall(struct.pack("!BBHIIHH", 5, 33, 16, 2, 7, 0, 3))
        stream = connection.makefile("rb")
        told = []
        while not told or told[-1][0] != 1:
            header = stream.read(8)
            told.append((header[1], stream.read(int.from_bytes(header[2:4], "big") - 8)))
        opened = struct.pack("!IHH", 7, 1, 0)
        error = struct.pack("!HHBBHIIHH", 17, 14, 5, 33, 16, 2, 7, 0, 3)
        assert told[-2:] == [(33, opened), (1, error)]


def test_more_errors_than_fit_into_a_queue(bridge):
    """Each error contains its message; a client that sends the whole bundle must read meanwhile."""
    actions = ",".join(["mod_dl_src:02:00:00:00:00:01"] * 100)
    code, told = bridge("--bundle", "add-flows", "br0", text=f"table=254,actions={actions}\n" * 4000)
    assert code == 1
    assert told.count("Error OFPBRC_EPERM for: OFPT_FLOW_MOD (OF1.3)") == 4000
    assert bridge.flows() == []
