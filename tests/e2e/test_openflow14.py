"""OpenFlow 1.4: Debian's ovs-ofctl and ours, with the same command lines and the same switch."""

import re

import pytest
from switch import known_to_both


@pytest.fixture
def both(switch):
    """Runs Debian's ovs-ofctl and ours over OpenFlow 1.4 on br0 with ports 1 and 2, and returns their common output."""
    vsctl = switch.peers.vsctl
    vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
    for number, port in enumerate(("p1", "p2"), 1):
        vsctl("add-port", "br0", port, "--", "set", "interface", port, "type=dummy", f"ofport_request={number}")

    def said(tools, words):
        done = tools.run("ovs-ofctl", "-O", "OpenFlow14", words[0], "br0", *words[1:], check=False)
        output = re.sub(r"xid=0x[0-9a-f]+", "xid", done.out + done.err)
        return done.code, known_to_both(re.sub(r"duration[=:][0-9.]*s", "duration", output))

    def run(*words):
        first, second = said(switch.peers, words), said(switch.ours, words)
        assert first == second, words
        return first

    run.each = lambda *words: [said(tools, words) for tools in (switch.peers, switch.ours)]
    run.switch = switch
    return run


def test_switch_description(both):
    for command in ("show", "dump-ports-desc", "dump-ports", "dump-tables", "dump-table-desc"):
        code, output = both(command)
        assert code == 0 and "OF1.4" in output, command
    assert "table 0:\n" in both("dump-table-desc")[1]
    assert "eviction: not supported" in both("dump-table-features")[1]
    assert both("queue-get-config")[1] == (
        "OFPST_QUEUE_DESC reply (OF1.4) (xid): port=1\nqueue 0:\nport=2\nqueue 0:\nport=LOCAL\nqueue 0:\n"
    )


def test_flows_groups_and_meters(both):
    for words in [
        ("add-group", "group_id=1,type=select,bucket=weight:1,output:1,bucket=weight:2,output:2"),
        ("add-meter", "meter=1,kbps,stats,bands=type=drop,rate=1000"),
        ("add-flow", "importance=3,send_flow_rem,idle_timeout=60,ip,actions=meter:1,group:1"),
        ("add-flow", "table=1,priority=5,tcp,tcp_dst=80,actions=set_field:10.0.0.1->ip_dst,goto_table:2"),
        ("add-flow", "priority=1,actions=controller(reason=no_match),write_actions(output:2)"),
    ]:
        assert both.each(*words)[0] == (0, ""), words
    for command in ("dump-groups", "dump-group-stats", "dump-group-features", "dump-meters", "meter-stats"):
        code, output = both(command)
        assert code == 0 and "OF1.4" in output, command
    flows = both("dump-flows")
    assert flows[1].count("\n") == 4 and "importance=3" in flows[1]
    assert both("dump-aggregate")[1].endswith("flow_count=3\n")
    assert both("mod-table", "0", "evict") == (0, "")
    code, output = both("mod-table", "254", "evict")
    assert code == 1 and "OFPTMFC_EPERM" in output


def test_changes_of_ports_and_bundles(both, tmp_path):
    assert both("mod-port", "p1", "no-forward") == (0, "")
    assert "NO_FWD" in both("dump-ports-desc")[1]
    file = tmp_path / "flows"
    file.write_text("priority=7,actions=1\npriority=8,actions=2\n")
    for tools in (both.switch.peers, both.switch.ours):
        # Without -O, bundles are of the newest version that both sides have.
        done = tools.run("ovs-ofctl", "--bundle", "replace-flows", "br0", file)
        assert (done.out, done.err) == ("", "")
        file.write_text("priority=7,actions=1\npriority=9,actions=2\n")
    flows = both.switch.peers.run("ovs-ofctl", "--no-stats", "--rsort", "dump-flows", "br0").out
    assert flows.split() == ["priority=9", "actions=output:2", "priority=7", "actions=output:1"]
