"""Groups, conjunctive matches and learned flows over OpenFlow: replies to ovs-ofctl, output ports of frames, and
ofproto/trace, in the words of Open vSwitch."""

import re

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from dummies import Dummies

A = "02:00:00:00:00:0a"
B = "02:00:00:00:00:0b"
TCP_FLOW = "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=5,tp_dst=6"


def frame(source=A, destination=B, sport=1000):
    payload = Raw(b"flowstone" * 5)
    return Ether(src=source, dst=destination) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=sport, dport=80) / payload


@pytest.fixture
def dummies(switch):
    return Dummies(switch, "br0", "p1", "p2", "p3")


@pytest.fixture(params=["peers", "ours"])
def ofctl(request, switch):
    """ovs-ofctl of Open vSwitch, and ours."""
    tools = getattr(switch, request.param)

    def run(command, *words, version="OpenFlow13", **options):
        return tools.ofctl("-O", version, command, "br0", *words, **options)

    return run


def refusal(switch, command, *words, version="OpenFlow13"):
    """The error with which the switch refuses a command."""
    output = switch.peers.run("ovs-ofctl", "-O", version, command, "br0", *words, check=False)
    return re.search(r"OFP\w+", output.err.split(":", 1)[1]).group(0)


def steps(switch, flow):
    """The trace of a flow, from the first table on."""
    text = switch.appctl("ofproto/trace", "br0", flow)
    return text.split("-------------\n", 1)[1].split("\n\nFinal flow", 1)[0]


def groups(text):
    return sorted(line.strip() for line in text.splitlines() if "group_id" in line)


def test_groups_are_added_and_deleted(dummies, switch, ofctl):
    ofctl("add-group", "group_id=1,type=all,bucket=mod_dl_src:00:00:00:00:00:01,output:2,bucket=output:3")
    ofctl("add-group", "group_id=2,type=select,bucket=weight:10,output:2,bucket=weight:20,output:3")
    ofctl("add-group", "group_id=3,type=indirect,bucket=output:3")
    ofctl("add-group", "group_id=4,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3")
    ofctl("add-group", "group_id=5,type=all,bucket=group:1,bucket=group:3")
    assert groups(ofctl("dump-groups")) == [
        "group_id=1,type=all,bucket=actions=set_field:00:00:00:00:00:01->eth_src,output:2,bucket=actions=output:3",
        "group_id=2,type=select,bucket=weight:10,actions=output:2,bucket=weight:20,actions=output:3",
        "group_id=3,type=indirect,bucket=actions=output:3",
        "group_id=4,type=ff,bucket=watch_port:2,actions=output:2,bucket=watch_port:3,actions=output:3",
        "group_id=5,type=all,bucket=actions=group:1,bucket=actions=group:3",
    ]
    assert refusal(switch, "add-group", "group_id=3,type=all") == "OFPGMFC_GROUP_EXISTS"
    assert refusal(switch, "mod-group", "group_id=55,type=all") == "OFPGMFC_UNKNOWN_GROUP"
    ofctl("del-groups", "group_id=55")
    features = ofctl("dump-group-features")
    assert "Types:  0xf" in features and "Capabilities:  0x7" in features
    ofctl("mod-group", "group_id=3,type=all,bucket=output:1")
    assert "group_id=3,type=all,bucket=actions=output:1" in ofctl("dump-groups")
    ofctl("del-groups")
    assert groups(ofctl("dump-groups")) == []


def test_single_buckets(dummies, switch, ofctl):
    ofctl("add-group", "group_id=1,type=all,bucket=bucket_id=0,output:2,bucket=bucket_id=1,output:3", version="OpenFlow10")
    ofctl("insert-buckets", "group_id=1,command_bucket_id=0,bucket=bucket_id=10,output:1", version="OpenFlow10")
    want = "bucket_id:0,actions=output:2,bucket=bucket_id:10,actions=output:1,bucket=bucket_id:1,actions=output:3"
    assert groups(ofctl("dump-groups", version="OpenFlow10")) == [f"group_id=1,type=all,bucket={want}"]
    bad = "group_id=1,command_bucket_id=77"
    assert refusal(switch, "remove-buckets", bad, version="OpenFlow10") == "OFPGMFC_UNKNOWN_BUCKET"
    ofctl("remove-buckets", "group_id=1,command_bucket_id=first", version="OpenFlow10")
    assert "bucket=bucket_id:10,actions=output:1,bucket=bucket_id:1" in ofctl("dump-groups", version="OpenFlow10")


def test_flows_lead_to_groups(dummies, switch, ofctl):
    assert refusal(switch, "add-flow", "actions=group:1") == "OFPBAC_BAD_OUT_GROUP"
    ofctl("add-group", "group_id=1,type=all,bucket=mod_dl_src:00:00:00:00:00:01,output:2,bucket=output:3")
    ofctl("add-flow", "in_port=1,actions=group:1")
    sent = dummies.exchange("p1", frame(), frame())
    assert [Ether(f).src for f in sent["p2"]] == ["00:00:00:00:00:01"] * 2
    assert [Ether(f).src for f in sent["p3"]] == [A] * 2
    stats = ofctl("dump-group-stats")
    size = len(frame())
    counts = f"packet_count=2,byte_count={2 * size}"
    assert f"ref_count=1,{counts},bucket0:{counts},bucket1:{counts}" in stats
    ofctl("mod-group", "group_id=1,type=all,bucket=output:3")
    assert list(dummies.exchange("p1", frame())) == ["p3"]
    ofctl("del-groups", "group_id=1")
    assert "group:1" not in ofctl("dump-flows")
    assert dummies.exchange("p1", frame()) == {}


def test_selection_keeps_flows_together(dummies, switch, ofctl):
    ofctl("add-group", "group_id=1,type=select,bucket=weight:1,output:2,bucket=weight:1,output:3")
    ofctl("add-flow", "in_port=1,actions=group:1")
    frames = [frame(sport=1000 + n) for n in range(40)]
    rounds = [dummies.exchange("p1", *frames) for _ in range(2)]
    # Packets that wait for their flow may arrive after others.
    once, again = ({port: sorted(sent) for port, sent in each.items()} for each in rounds)
    assert once == again
    assert set(once) == {"p2", "p3"}
    assert len(once["p2"]) + len(once["p3"]) == 40


def test_failover(dummies, switch, ofctl):
    ofctl("add-group", "group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3")
    ofctl("add-flow", "in_port=1,actions=group:1")
    assert list(dummies.exchange("p1", frame())) == ["p2"]
    switch.appctl("netdev-dummy/set-admin-state", "p2", "down")
    assert list(dummies.exchange("p1", frame())) == ["p3"]


TRACES = {
    "all": (
        "type=all,bucket=mod_dl_src:00:00:00:00:00:01,output:2,bucket=output:3",
        """ 0. in_port=1, priority 32768
    group:9
    bucket 0
            set_field:00:00:00:00:00:01->eth_src
            output:2
    bucket 1
            output:3
    output:1
     >> skipping output to input port""",
    ),
    "bucket as a set": (
        "type=all,bucket=output:2,mod_dl_src:00:00:00:00:00:09,output:3",
        """ 0. in_port=1, priority 32768
    group:9
    bucket 0
            set_field:00:00:00:00:00:09->eth_src
            output:3
    output:1
     >> skipping output to input port""",
    ),
    "failover": (
        "type=ff,bucket=watch_group:8,output:2,bucket=watch_port:3,output:3",
        """ 0. in_port=1, priority 32768
    group:9
     -> bucket 0: not live due to port 8
     -> using bucket 1
    bucket 1
            output:3
    output:1
     >> skipping output to input port""",
    ),
    "chain": (
        "type=indirect,bucket=group:77",
        """ 0. in_port=1, priority 32768
    group:9
    bucket 0
            group:77
             >> output to nonexistent group 77
    output:1
     >> skipping output to input port""",
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_traces(dummies, switch, name):
    group, want = TRACES[name]
    switch.ofctl("-O", "OpenFlow13", "add-group", "br0", "group_id=8,type=all")
    switch.ofctl("-O", "OpenFlow13", "add-group", "br0", f"group_id=9,{group}")
    switch.ofctl("-O", "OpenFlow13", "add-flow", "br0", "in_port=1,actions=group:9,output:1")
    assert steps(switch, TCP_FLOW) == want


def test_a_loop_through_a_group_ends(dummies, switch):
    switch.ofctl("-O", "OpenFlow13", "add-group", "br0", "group_id=1,type=all,bucket=resubmit(,0)")
    switch.ofctl("-O", "OpenFlow13", "add-flow", "br0", "in_port=1,actions=group:1")
    text = switch.appctl("ofproto/trace", "br0", "in_port=1")
    assert " >>>> over max translation depth 64 <<<<\n" in text
    assert text.endswith("Datapath actions: drop\nTranslation failed (Recursion too deep), packet is dropped.")
    assert dummies.exchange("p1", frame()) == {}
    assert int(switch.appctl("coverage/read-counter", "drop_action_recursion_too_deep")) == 1


def test_limits_of_resubmits(dummies, switch):
    switch.ofctl("add-flow", "br0", "actions=resubmit(,0)")
    text = switch.appctl("ofproto/trace", "br0", "in_port=1")
    assert text.count("    resubmit(,0)\n") == 65
    switch.ofctl("del-flows", "br0")
    for table in range(2):
        again = ",".join([f"resubmit(,{table + 1})"] * 70)
        switch.ofctl("add-flow", "br0", f"table={table},actions={again}")
    switch.ofctl("add-flow", "br0", "table=2,actions=1")
    text = switch.appctl("ofproto/trace", "br0", "in_port=1")
    assert " >>>> over 4096 resubmit actions <<<<\n" in text
    assert text.endswith("Translation failed (Too many resubmits), packet is dropped.")


def test_conjunctive_matches(dummies, switch):
    dummies.flows(
        "priority=10,ip,nw_src=10.0.0.1,actions=conjunction(7,1/2)",
        "priority=10,ip,nw_dst=10.0.0.2,actions=conjunction(7,2/2)",
        "priority=20,ip,conj_id=7,actions=2",
        "priority=5,actions=3",
    )
    text = switch.appctl("ofproto/trace", "br0", "in_port=1,ip,nw_src=10.0.0.1,nw_dst=10.0.0.2")
    rule = " 0. conj_id=7,ip, priority 20\n"
    matches = [f"     -> conj. priority=10,ip,{match}\n" for match in ("nw_src=10.0.0.1", "nw_dst=10.0.0.2")]
    assert f"{rule}{''.join(matches)}    output:2\n" in text
    assert "Megaflow: recirc_id=0,eth,ip,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2" in text
    assert " 0. priority 5\n    output:3" == steps(switch, "in_port=1,ip,nw_src=10.0.0.1,nw_dst=10.0.0.3")
    assert list(dummies.exchange("p1", frame())) == ["p2"]


LEARN = (
    "learn(table=10,hard_timeout=60,priority=100,cookie=0x9,limit=2,delete_learned,NXM_OF_VLAN_TCI[0..11],"
    "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15],load:0x5->NXM_NX_REG2[],"
    "output:NXM_OF_IN_PORT[])"
)


def test_learned_flows(dummies, switch):
    dummies.flows(f"cookie=0x77,in_port=1,actions={LEARN},resubmit(,10)", "in_port=2,actions=resubmit(,10)")
    stations = [f"02:00:00:00:00:0{n}" for n in (1, 2, 3)]
    dummies.exchange("p1", *[frame(source=station) for station in stations])
    flows = [flow for flow in switch.flows("br0") if "table=10, " in flow]
    learned = "cookie=0x9, table=10, hard_timeout=60, priority=100,vlan_tci=0x0000/0x0fff,dl_dst={} actions={}"
    actions = "load:0x1->NXM_NX_REG1[0..15],load:0x5->NXM_NX_REG2[],output:1"
    assert flows == [learned.format(station, actions) for station in stations[:2]]
    assert list(dummies.exchange("p2", frame(destination=stations[0]))) == ["p1"]
    switch.ofctl("del-flows", "br0", "cookie=0x77/-1")
    assert not [flow for flow in switch.flows("br0") if "table=10, " in flow]


def test_a_trace_learns_nothing(dummies, switch):
    dummies.flows(f"actions={LEARN}")
    assert ">> suppressing side effects, so learn action ignored" in switch.appctl("ofproto/trace", "br0", "in_port=1")
    assert len(switch.flows("br0")) == 1
