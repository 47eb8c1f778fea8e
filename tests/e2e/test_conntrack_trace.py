"""Tables that send packets through the connection tracker, traced here and with Debian's Open vSwitch: the texts are
equal.

`--ct-next` sets the state of packets that return from the tracker; each switch has its own recirculation ids.
"""

import json
import re

import pytest

from dummies import Dummies
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

ETH = "dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b"
TCP4 = f"in_port=1,tcp,{ETH},nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tcp_src=1000,tcp_dst=80"
BACK4 = f"in_port=2,tcp,{ETH},nw_src=10.0.0.2,nw_dst=10.0.0.1,nw_ttl=64,tcp_src=80,tcp_dst=1000"
UDP4 = f"in_port=1,udp,{ETH},nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=1000,udp_dst=53"
TCP6 = f"in_port=1,tcp6,{ETH},ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64,tcp_src=1000,tcp_dst=80"
ICMP4 = f"in_port=1,icmp,{ETH},nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,icmp_type=8"
ARP = f"in_port=1,arp,{ETH},arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_op=1"
KNOWN4 = "ct_state=trk|est,ct_nw_src=1.1.1.1,ct_nw_dst=1.1.1.2,ct_nw_proto=6,ct_tp_src=8,ct_tp_dst=9"

# Security groups as in OpenStack's agent: known connections pass, new ones by rules, marked ones are dropped.
OPENSTACK = [
    "table=0,priority=100,in_port=1,actions=set_field:0x1->reg5,set_field:0x7->reg6,resubmit(,71)",
    "table=0,priority=90,in_port=2,actions=set_field:0x2->reg5,set_field:0x7->reg6,resubmit(,81)",
    "table=71,priority=95,arp,reg5=0x1,actions=resubmit(,94)",
    "table=71,priority=65,ct_state=-trk,ip,reg5=0x1,actions=ct(table=72,zone=NXM_NX_REG6[0..15])",
    "table=72,priority=50,ct_mark=0x1,reg5=0x1,actions=drop",
    "table=72,priority=40,ct_state=+est-rel-rpl,reg5=0x1,actions=resubmit(,94)",
    "table=72,priority=30,ct_state=+new-est,tcp,reg5=0x1,tp_dst=80,actions=resubmit(,73)",
    "table=72,priority=20,ct_state=+est,ip,reg5=0x1,actions=ct(commit,zone=NXM_NX_REG6[0..15],exec(set_field:0x1->ct_mark))",
    "table=73,priority=90,ct_state=+new-est,ip,reg5=0x1,actions=ct(commit,zone=NXM_NX_REG6[0..15]),resubmit(,94)",
    "table=81,priority=90,ct_state=-trk,ip,reg5=0x2,actions=ct(table=82,zone=NXM_NX_REG6[0..15])",
    "table=82,priority=50,ct_state=+est-rel+rpl,ct_zone=7,ct_mark=0,reg5=0x2,actions=output:1",
    "table=94,priority=1,actions=output:2",
]

# A logical switch and a router as in OVN: defragmentation, load balancing, address translation.
OVN = [
    "table=0,priority=100,in_port=1,actions=set_field:0x8->reg13,set_field:0x5->metadata,set_field:0x1->reg14,resubmit(,8)",
    "table=8,priority=100,ip,metadata=0x5,actions=ct(table=9,zone=NXM_NX_REG13[0..15])",
    "table=8,priority=0,metadata=0x5,actions=resubmit(,12)",
    "table=9,priority=120,ct_state=+new+trk,tcp,metadata=0x5,nw_dst=10.0.0.2,tp_dst=80,actions=group:1",
    "table=9,priority=110,ct_state=+est+trk,ct_label=0x2/0x2,ip,metadata=0x5,actions=ct(table=10,zone=NXM_NX_REG13[0..15],nat)",
    "table=9,priority=100,ct_state=+est-new-rel+rpl+trk,ct_mark=0/0x1,ip,metadata=0x5,actions=resubmit(,12)",
    "table=9,priority=1,ct_state=+inv+trk,metadata=0x5,actions=drop",
    "table=10,priority=1,ip,metadata=0x5,actions=ct(commit,zone=NXM_NX_REG13[0..15],"
    "exec(set_field:0/0x1->ct_mark,move:NXM_NX_XXREG0[0..31]->NXM_NX_CT_LABEL[96..127])),resubmit(,12)",
    "table=12,priority=1,metadata=0x5,actions=ct_clear,output:2",
]
OVN_GROUP = (
    "group_id=1,type=indirect,bucket=bucket_id=0,actions=ct(commit,table=10,zone=NXM_NX_REG13[0..15],"
    "nat(dst=10.0.0.9:8080),exec(set_field:0x2/0x2->ct_label))"
)

ROUTER = [
    "table=0,ip,in_port=1,actions=ct(table=1,zone=11,nat)",
    "table=0,ip,in_port=2,actions=ct(table=2,zone=11,nat)",
    "table=1,ip,ct_state=+new,actions=set_field:02:00:00:00:00:99->eth_src,dec_ttl,"
    "ct(commit,table=3,zone=11,nat(src=172.16.0.1-172.16.0.4:1024-65535,random))",
    "table=1,ip,ct_state=+est,actions=set_field:02:00:00:00:00:99->eth_src,dec_ttl,output:2",
    "table=2,ip,ct_state=+est+dnat,actions=output:1",
    "table=3,ip,actions=output:2",
]

TUPLE = [
    "ip,ct_state=+trk+est,actions=resubmit(,3,ct),2",
    "table=3,tcp,nw_src=1.1.1.1,tcp_dst=9,actions=2",
]


def committing(*arguments):
    return [f"tcp,actions=ct({argument}),2" for argument in arguments]


# Name, flows, and the words of the trace.
CASES = [
    ("openstack: a new connection that a rule allows", OPENSTACK, [TCP4]),
    ("openstack: a new connection that none does", OPENSTACK, [UDP4]),
    ("openstack: an established one", OPENSTACK, [TCP4, "--ct-next", "trk,est"]),
    ("openstack: one that is allowed no longer", OPENSTACK, [TCP4, "--ct-next", "trk,est,rpl"]),
    ("openstack: a reply", OPENSTACK, [BACK4, "--ct-next", "trk,est,rpl"]),
    ("openstack: no connection", OPENSTACK, [ARP]),
    ("ovn: a virtual address", OVN, [TCP4]),
    ("ovn: the same once it is known", OVN, [TCP4, "--ct-next", "trk,est", "--ct-next", "trk,est"]),
    ("ovn: a reply", OVN, [TCP4, "--ct-next", "trk,est,rpl"]),
    ("ovn: invalid", OVN, [TCP4, "--ct-next", "trk,inv"]),
    ("router: out", ROUTER, [TCP4]),
    ("with names", ["ip,actions=ct(table=1,nat)", "table=1,actions=in_port"], [TCP4, "--names"]),
    ("router: once more", ROUTER, [TCP4, "--ct-next", "trk,est,snat"]),
    ("router: back", ROUTER, [BACK4, "--ct-next", "trk,est,rpl,dnat"]),
    ("router: echo", ROUTER, [ICMP4]),
    ("the first packet's addresses", TUPLE, [f"{TCP4},{KNOWN4}"]),
    ("no addresses known", TUPLE, [f"{TCP4},ct_state=trk|est"]),
    ("forgotten", ["ip,ct_state=+trk,actions=ct_clear,resubmit(,3)", "table=3,actions=2"], [f"{TCP4},ct_state=trk|new"]),
    ("two copies", ["tcp,actions=ct(table=1),ct(table=2,zone=1),2", "table=1,tcp,actions=ct(table=2)", "table=2,actions=1,2"],
     [TCP4, "--ct-next", "trk,est", "--ct-next", "trk,rpl"]),
    ("a clone", ["tcp,actions=clone(ct(commit),2),2"], [TCP4]),
    ("by length", ["tcp,actions=check_pkt_larger(100)->NXM_NX_REG0[0],ct(table=1),2", "table=1,reg0=1,actions=2"], [TCP4]),
    ("an action set", ["tcp,actions=write_actions(ct(commit,table=1))", "table=1,actions=2"], [TCP4]),
    ("ipv6", ["tcp6,actions=ct(commit,table=1,nat(dst=[fd00::5]:10))", "table=1,actions=2"], [TCP6]),
    *[(f"ct({argument})", committing(argument), [TCP4]) for argument in (
        "commit,force,zone=7",
        "commit,exec(set_field:5/0xf->ct_mark,set_field:0x10/0xf0->ct_mark)",
        "commit,exec(load:1->ct_label[64..127],set_field:3->ct_mark)",
        "commit,exec(move:NXM_OF_IP_SRC[]->NXM_NX_CT_MARK[])",
        "commit,alg=ftp",
        "nat",
        "commit,nat(src)",
        "commit,force,zone=9,nat(src=10.1.1.1-10.1.1.5,persistent,hash),exec(set_field:1->ct_mark,set_field:2->ct_label)",
    )],
]


@pytest.fixture(scope="module")
def both(module_making, peers):
    """The same bridge here and on Debian's switch."""
    switches = [module_making.switch(), module_making.switch(maker=peers)]
    for switch in switches:
        switch.dummies = Dummies(switch, "br0", "p1", "p2", "p3")
    return switches


def fill(switch, flows):
    switch.ofctl("-O", "OpenFlow15", "del-flows", "br0")
    switch.ofctl("-O", "OpenFlow15", "del-groups", "br0")
    if flows is OVN:
        switch.ofctl("-O", "OpenFlow15", "add-group", "br0", OVN_GROUP)
    switch.ofctl("-O", "OpenFlow15", "add-flows", "br0", "-", input="\n".join([*flows, ""]))


def alike(trace):
    """The trace without legitimate differences: recirculation ids are replaced by their order, and the bits read are
    removed, as classifiers differ in these."""
    names = {}
    number = re.compile(r"(recirc_id=|recirc\()(0x[0-9a-f]+)")
    trace = number.sub(lambda m: m[1] + names.setdefault(m[2], f"#{len(names)}"), trace)
    # Changes within a bucket stay within it here, also those by the tracker.
    trace = re.sub(r"(?m)^(Datapath actions: )clone\((.*)\)$", r"\1\2", trace)
    return re.sub(r"(?m)^Megaflow: .*\n", "", trace)


def traced(switch, flows, words):
    fill(switch, flows)
    return switch.appctl("ofproto/trace", "br0", *words)


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_traces_agree(both, case):
    _, flows, words = case
    ours, theirs = (
        traced(switch, flows, words) for switch in both
    )
    assert alike(ours).splitlines() == alike(theirs).splitlines()


def test_a_trace_as_json(both):
    ours = both[0]
    fill(ours, ROUTER)
    trace = json.loads(ours.ours.appctl("-f", "json", "ofproto/trace", "br0", TCP4, "--ct-next", "trk,new"))
    first, second = trace["resumed"]
    assert first["ct-state"] == second["ct-state"] == "new|trk"
    assert first["recirc-id"] != second["recirc-id"] and "resumed" not in first
    assert second["nat"]["before"] == "nw_src=10.0.0.1,tp_src=1000,nw_dst=10.0.0.2,tp_dst=80"
    assert second["nat"]["after"] == "nw_src=172.16.0.1,tp_src=1024,nw_dst=10.0.0.2,tp_dst=80"
    assert second["datapath-actions"].isdigit()


def test_a_packet_is_tracked(both):
    """It leaves by the port after the tracker, and its connection is the same on both switches until it is flushed."""
    frame = Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b") / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(dport=80)
    connections = []
    for switch in both:
        fill(switch, ["tcp,actions=ct(commit),2"])
        assert switch.dummies.exchange("p1", frame).get("p2") == [bytes(frame)]
        connections.append(switch.appctl("dpctl/dump-conntrack"))
        switch.appctl("dpctl/flush-conntrack")
    assert connections[0] == connections[1] and "dport=80" in connections[0]


def test_features(both):
    """The same names and titles in the same order; the supported features differ by datapath."""
    def shown(switch, *words):
        text = switch.appctl(*words)
        return re.sub(r"(?m)(: |:)(Yes|No|true|false|\d+)", r"\1*", text)

    ours, theirs = both
    assert shown(ours, "dpif/show-dp-features", "br0") == shown(theirs, "dpif/show-dp-features", "br0")
    assert shown(ours, "dpif/set-dp-features", "br0") == shown(theirs, "dpif/set-dp-features", "br0")
    for words in (
        ("ct_state",), ("bogus",), ("bogus", "true"), ("ct_mark", "7"), ("max_mpls_depth", "x"), ("max_mpls_depth", "9"),
    ):
        answers = [switch.appctl("dpif/set-dp-features", "br0", *words) for switch in both]
        assert answers[0] == answers[1], words
    assert "CT state: Yes" in ours.appctl("dpif/show-dp-features", "br0")
    features = json.loads(ours.ours.appctl("-f", "json", "dpif/show-dp-features", "br0"))
    assert features["ct_state"] is True and features["sample_nesting"] == 10


def refusal(switch, flow):
    """The error of adding a flow."""
    return switch.peers.run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "br0", flow, check=False).err


def test_no_connections(both):
    for words in (("dump-conntrack",), ("dump-conntrack", "zone=3"), ("flush-conntrack",), ("ct-get-nconns",), ("ct-stats-show",)):
        answers = [switch.appctl(f"dpctl/{words[0]}", *words[1:]) for switch in both]
        assert answers[0] == answers[1], words


REFUSED = [
    ("ct_state", "ip,ct_state=+trk,actions=drop"),
    ("ct_state", "ip,actions=ct(commit)"),
    ("ct_zone", "ip,actions=ct(zone=1)"),
    ("ct_zone", "ct_zone=1,actions=drop"),
    ("ct_mark", "ct_mark=1,actions=drop"),
    ("ct_mark", "ip,actions=ct(commit,exec(set_field:1->ct_mark))"),
    ("ct_label", "ip,actions=ct(commit,exec(load:1->ct_label[0..5]))"),
    ("ct_state_nat", "ip,actions=ct(nat)"),
    ("ct_orig_tuple", "ip,ct_state=+trk+est,ct_nw_src=1.1.1.1,actions=drop"),
    ("ct_orig_tuple", "ip,ct_state=+trk+est,actions=resubmit(,1,ct)"),
    ("ct_orig_tuple", "ip,actions=ct(commit,force)"),
    ("ct_orig_tuple6", "ipv6,ct_state=+trk+est,ct_ipv6_src=1::1,actions=drop"),
]


@pytest.mark.parametrize("feature,flow", REFUSED)
def test_missing_datapath_features_are_refused(both, feature, flow):
    answers = []
    for switch in both:
        switch.appctl("dpif/set-dp-features", "br0", feature, "false")
        answers.append(refusal(switch, flow).splitlines()[0])
        switch.appctl("dpif/set-dp-features", "br0", feature, "true")
        switch.ofctl("-O", "OpenFlow13", "add-flow", "br0", flow)
    assert answers[0] == answers[1]
    assert "CT_DATAPATH_SUPPORT" in answers[0]


def test_flows_are_refused_while_features_are_disabled(making):
    switch = making.switch(start="kernel")
    switch.vsctl("add-br", "br0")
    shown = switch.appctl("dpif/show-dp-features", "br0")
    assert "CT state: Yes\nCT zone: Yes\nCT mark: Yes\nCT label: Yes\nCT state NAT: Yes\nCT orig tuple: Yes" in shown
    assert "Conntrack clear: Yes" in shown and "Conntrack timeout policy: Yes" in shown
    for feature in ("ct_state", "ct_mark"):
        switch.appctl("dpif/set-dp-features", "br0", feature, "false")
    for flow, error in (
        ("ip,actions=ct(commit)", "NXBAC_CT_DATAPATH_SUPPORT"),
        ("ct_mark=1,actions=drop", "NXBMC_CT_DATAPATH_SUPPORT"),
    ):
        assert error in refusal(switch, flow)
    switch.ofctl("add-flow", "br0", "ip,actions=ct_clear,LOCAL")
    assert "Rejecting ct action because datapath does not support ct action" in switch.log()
