"""The JSON of ovs-ofctl agrees with its text."""

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
    switch.ofctl("-OOpenFlow13", "add-meter", "br0", "meter=5,pktps,burst,bands=type=drop,rate=10,burst_size=20")
    switch.ofctl("add-tlv-map", "br0", "{class=0x10,type=1,len=4}->tun_metadata3")
    assert asked("get-frags", "br0") == "normal"
    (meter,) = asked("-OOpenFlow13", "dump-meters", "br0")
    assert (meter["meter_id"], meter["unit"], meter["bands"][0]["rate"]) == (5, "pktps", 10)
    assert asked("-OOpenFlow13", "meter-stats", "br0")[0]["bands"] == [{"packet_count": 0, "byte_count": 0}]
    assert asked("-OOpenFlow13", "meter-features", "br0")["max_bands"] == 8
    assert asked("-OOpenFlow13", "dump-group-features", "br0")["types"]["select"]["max_groups"] > 1000
    assert asked("-OOpenFlow14", "dump-table-desc", "br0")[1] == {
        "table": 1,
        "eviction": False,
        "eviction_flags": 7,
        "vacancy_events": False,
        "vacancy": None,
    }
    assert asked("-OOpenFlow13", "dump-table-features", "br0")[1]["table"] == 1
    assert asked("dump-tlv-map", "br0")["maps"] == [{"field": "tun_metadata3", "class": 16, "type": 1, "len": 4}]
    refused = switch.ours.run("ovs-ofctl", "--format=json", "monitor", "br0", check=False)
    assert refused.code == 1 and "no output as JSON" in refused.err
