"""ovs-ofctl prints JSON that says what its text says."""

import json

from dummies import Dummies


def test_answers(switch):
    Dummies(switch, "br0", "p1", "p2").flows("table=1,priority=5,tcp,in_port=p1,idle_timeout=9,cookie=7,actions=resubmit(,2)")
    switch.ofctl("add-group", "-OOpenFlow13", "br0", "group_id=3,type=select,bucket=weight:2,output:1")
    asked = lambda *words: json.loads(switch.ours.ofctl("--format=json", "--no-names", *words))
    (flow,) = asked("dump-flows", "br0")
    assert (flow["table"], flow["priority"], flow["idle_timeout"], flow["cookie"]) == (1, 5, 9, 7)
    assert (flow["match"], flow["actions"], flow["n_packets"]) == ("tcp,in_port=1", "resubmit(,2)", 0)
    assert asked("-OOpenFlow13", "--sort", "dump-flows", "br0")[0]["match"] == "tcp,in_port=1"
    shown = asked("show", "br0")
    assert {port["name"] for port in shown["ports"]} == {"br0", "p1", "p2"}
    assert shown["config"]["frags"] == "normal" and int(shown["dpid"], 16)
    assert {port["port"] for port in asked("dump-ports", "br0")} == {"LOCAL", "1", "2"}
    assert asked("dump-aggregate", "br0")["flow_count"] == 1
    assert len(asked("-OOpenFlow13", "dump-tables", "br0")) > 200
    (group,) = asked("-OOpenFlow13", "dump-groups", "br0")
    assert (group["type"], group["buckets"][0]["weight"], group["buckets"][0]["actions"]) == ("select", 2, "output:1")
    assert asked("-OOpenFlow13", "dump-group-stats", "br0")[0]["group_id"] == 3
    pretty = switch.ours.ofctl("--format=json", "--pretty", "dump-desc", "br0")
    assert json.loads(pretty)["manufacturer"] and len(pretty.splitlines()) > 4
    refused = switch.ours.run("ovs-ofctl", "--format=json", "get-frags", "br0", check=False)
    assert refused.code == 1 and "no output as JSON" in refused.err
