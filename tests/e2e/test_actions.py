"""Actions of all kinds on Debian's switch and on ours: the ofproto/trace of each, the output frames, and the dumped
flow."""

import itertools
import re

import pytest
from dummies import on_both
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

PORTS = ("p1", "p2", "p3", "p4")
HOSTS = {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}
LOAD = Raw(b"flowstone" * 5)

FRAMES = [
    Ether(**HOSTS) / IP(src="10.0.0.1", dst="10.0.0.2", tos=0x49) / TCP(sport=1000, dport=80, flags="S") / LOAD,
    Ether(**HOSTS) / Dot1Q(vlan=7, prio=3) / IP(src="10.0.0.1", dst="10.0.0.2", ttl=1) / UDP(sport=9, dport=53) / LOAD,
    Ether(**HOSTS) / IPv6(src="fd00::1", dst="fd00::2", tc=0x51) / UDP(sport=9, dport=53) / LOAD,
    Ether(**HOSTS, type=0x8847) / MPLS(label=17, cos=2, ttl=9, s=1) / IP(src="10.0.0.1", dst="10.0.0.2") / LOAD,
    Ether(**HOSTS) / ARP(op=1, psrc="10.0.0.1", pdst="10.0.0.2") / Raw(bytes(18)),
]

# The part of each flow behind "actions=", or whole flows; over OpenFlow 1.3 unless stated otherwise.
CASES = {
    "output": ["output:2,output:3"],
    "output to a register": ["load:2->NXM_NX_REG0[],output:NXM_NX_REG0[]"],
    "output(port,max_len)": ["output(port=2,max_len=30),3"],
    "enqueue": ["enqueue:2:1,enqueue(3,5),4"],
    "set_queue": ["set_queue:2,2,pop_queue,3"],
    "set_queue to what it was": ["set_queue:2,set_queue:0,2"],
    "mod_vlan_vid": ["mod_vlan_vid:5,2,strip_vlan,3"],
    "mod_vlan_pcp": ["mod_vlan_pcp:5,2"],
    "push_vlan and pop_vlan": ["push_vlan:0x8100,set_field:4105->vlan_vid,2,pop_vlan,3"],
    "push_vlan of another kind": ["push_vlan:0x88a8,2"],
    "push_mpls": ["ip,actions=push_mpls:0x8847,set_field:9->mpls_label,set_field:1->mpls_tc,2"],
    "set_mpls_label, set_mpls_tc, set_mpls_ttl": ["mpls,actions=set_mpls_label(99),set_mpls_tc(5),set_mpls_ttl(3),2"],
    "dec_mpls_ttl": ["mpls,actions=dec_mpls_ttl,2"],
    "addresses": ["ip,actions=mod_dl_src:02:00:00:00:00:01,mod_dl_dst:02:00:00:00:00:02,mod_nw_src:1.2.3.4,mod_nw_dst:5.6.7.8,2"],
    "mod_nw_tos": ["ip,actions=mod_nw_tos:8,2"],
    "mod_nw_ecn": ["ip,actions=mod_nw_ecn:1,2", "ipv6,actions=mod_nw_ecn:2,2"],
    "mod_nw_ttl": ["ip,actions=mod_nw_ttl:9,2,mod_nw_ttl:0,3", "ipv6,actions=mod_nw_ttl:3,2"],
    "mod_tp_src, mod_tp_dst": ["tcp,actions=mod_tp_src:1,mod_tp_dst:2,2", "udp6,actions=mod_tp_src:1,2"],
    "set_field": ["ip,actions=set_field:10.0.9.0/0.0.255.0->ip_src,2", "arp,actions=set_field:2->arp_op,2"],
    "load": ["load:0x7->NXM_OF_ETH_DST[4..7],2"],
    "move": ["move:NXM_OF_ETH_SRC[0..15]->NXM_OF_ETH_DST[8..23],2"],
    "push and pop": ["push:NXM_OF_ETH_SRC[0..7],push:NXM_OF_ETH_DST[],pop:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[40..47],2"],
    "pop of an empty stack": ["pop:NXM_OF_ETH_SRC[],2"],
    "dec_ttl": ["ip,actions=dec_ttl,2", "ipv6,actions=dec_ttl(1,2),2"],
    "set_tunnel": ["set_tunnel:0x5,resubmit(,1)", "table=1,tun_id=5,actions=2"],
    "set_tunnel64": ["set_tunnel64:0x500000005,resubmit(,1)", "table=1,tun_id=0x500000005,actions=2"],
    "resubmit": ["resubmit(3,1),2", "table=1,in_port=3,actions=in_port"],
    "clone": ["clone(mod_dl_src:02:00:00:00:00:01,2),3"],
    "note": ["note:01.02.03.04.05.06.07,2"],
    "exit": ["resubmit(,1),3", "table=1,actions=2,exit,4"],
    "multipath": ["multipath(eth_src,50,modulo_n,4,0,NXM_NX_REG0[]),load:2->NXM_OF_IN_PORT[],output:2"],
    "bundle_load": ["bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG0[],members:9,3,2),output:NXM_NX_REG0[]"],
    "bundle": ["bundle(eth_src,0,active_backup,ofport,members:3,2)"],
    "check_pkt_larger": [
        "check_pkt_larger(80)->NXM_NX_REG0[0],resubmit(,1)",
        "table=1,reg0=1/1,actions=2",
        "table=1,priority=1,actions=3",
    ],
    "conjunction": [
        "priority=20,ip,nw_src=10.0.0.0/24,actions=conjunction(1,1/2)",
        "priority=20,ip,nw_dst=10.0.0.2,actions=conjunction(1,2/2)",
        "priority=20,conj_id=1,ip,actions=2",
        "priority=1,actions=3",
    ],
    "learn": [
        "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:0x2->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[]),resubmit(,1),2",
        "table=1,priority=1,actions=3",
    ],
    "fin_timeout": ["tcp,actions=fin_timeout(idle_timeout=5,hard_timeout=9),2"],
    "ct_clear": ["ct_clear,2"],
    "sample without collectors": ["sample(probability=100,collector_set_id=7),2"],
    "clear_actions, write_actions, goto_table": [
        "write_actions(2),goto_table:1",
        "table=1,tcp,actions=clear_actions,write_actions(mod_dl_src:02:00:00:00:00:01,3)",
        "table=1,priority=1,actions=write_actions(strip_vlan,4)",
    ],
    "write_metadata": ["write_metadata:0x50/0xf0,goto_table:1", "table=1,metadata=0x50/0x70,actions=2"],
}

# Cases with the same frames but other datapath actions, and why.
OTHER_ACTIONS = {
    "set_mpls_label, set_mpls_tc, set_mpls_ttl": "only what was written is set, whatever the rest was",
    "dec_mpls_ttl": "the same",
    "mod_nw_ecn": "it is set without a look at what it was",
    "push and pop": "the same",
    "check_pkt_larger": "a tag does not count, as ovs-actions(7) has it",
    "clone": "a copy is changed, and what was not copied stays as it was",
    "dec_ttl": "the numbers of the remainders that go along with packets to controllers",
}
# Cases whose final flow Open vSwitch prints in full although nothing changed: it popped a tag that does not exist.
UNCHANGED = {"clear_actions, write_actions, goto_table"}
# Cases in which Open vSwitch sends the packet that installs the flow twice.
SENT_TWICE = {"check_pkt_larger"}
# Each switch has its own hash for choosing a link.
HASHED = {"multipath"}


@pytest.fixture(scope="module")
def benches(module_making):
    """Dummy ports on Debian's switch and on ours."""
    return on_both(module_making, *PORTS)


def whole(flow):
    return flow if "actions=" in flow else f"actions={flow}"


def traced(bench, case, frame):
    text = bench.switch.appctl("ofproto/trace", "br0", "in_port=1", bytes(frame).hex())
    # Our translation reads less of a packet, as written fields need not be read; nor that it is no fragment.
    lines = [line for line in text.splitlines() if not line.startswith("Megaflow: ")]
    if case in OTHER_ACTIONS:
        lines = [line for line in lines if not line.startswith("Datapath actions: ")]
    if case in UNCHANGED:
        lines = [line for line in lines if not line.startswith("Final flow: ")]
    if case in HASHED:
        lines = [re.sub(r"0x[0-3]\b", "LINK", line) for line in lines]
    # Open vSwitch sets the header of ARP in the slow path, our datapath by an action.
    slow = ("This flow is handled by the userspace slow path", "  - Uses action(s) not supported by datapath")
    lines = [line for line in lines if not line.startswith(slow)]
    # The flows of a conjunctive match have no order.
    runs = itertools.groupby(lines, lambda line: line.startswith("     -> conj. "))
    return [line for is_conjunctive, run in runs for line in (sorted(run) if is_conjunctive else run)]


def outcome(bench, case):
    """The dumped flows, then for each frame the trace, and the output of each port, twice."""
    bench.flows(*[whole(flow) for flow in CASES[case]], version="OpenFlow13")
    bench.switch.appctl("revalidator/wait")
    bench.switch.appctl("revalidator/purge")
    told = [sorted(bench.switch.ofctl("-O", "OpenFlow13", "--no-stats", "dump-flows", "br0").splitlines())]
    told += [traced(bench, case, frame) for frame in FRAMES]
    for again in range(2):
        # Frames of different flows may overtake each other.
        frames = {port: sorted(f.hex() for f in sent) for port, sent in bench.exchange("p1", *FRAMES).items()}
        if again or case not in SENT_TWICE:
            told.append(frames)
    return told


@pytest.mark.parametrize("case", CASES)
def test_both_switches_agree(benches, case):
    theirs, ours = (outcome(bench, case) for bench in benches)
    assert ours == theirs, case
