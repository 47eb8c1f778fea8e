"""A dummy port receives a packet, and the ports send the frames that the flows and ofproto/trace say."""

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from dummies import Dummies

A = "02:00:00:00:00:0a"
B = "02:00:00:00:00:0b"
PAYLOAD = b"flowstone" * 5


def tcp(ttl=64, source="10.0.0.1", destination="10.0.0.2", sport=1000, dport=80, tos=0, eth=None, vlan=None):
    frame = eth or Ether(src=A, dst=B)
    if vlan is not None:
        frame = frame / Dot1Q(**vlan)
    return frame / IP(src=source, dst=destination, ttl=ttl, tos=tos) / TCP(sport=sport, dport=dport) / Raw(PAYLOAD)


def udp(ttl=64, source="10.0.0.1", destination="10.0.0.2", sport=1000, dport=53):
    return Ether(src=A, dst=B) / IP(src=source, dst=destination, ttl=ttl) / UDP(sport=sport, dport=dport) / Raw(PAYLOAD)


def udp6(hlim=64, source="fd00::1", destination="fd00::2"):
    return Ether(src=A, dst=B) / IPv6(src=source, dst=destination, hlim=hlim) / UDP(sport=1, dport=2) / Raw(PAYLOAD)


def vlan(vid, prio=0, dei=0):
    return {"vlan": vid, "prio": prio, "dei": dei}


class Case:
    """A frame for p1, flows, and the frames that each port must send (None: as ofproto/trace says)."""

    def __init__(self, name, flows, frame, out, version="OpenFlow10"):
        self.version = version
        self.name = name
        self.flows = flows
        self.frame = frame
        self.out = out


CASES = [
    # Outputs.
    Case("drop", ["actions=drop"], tcp(), {}),
    Case("no flow", [], tcp(), {}),
    Case("output", ["in_port=1,actions=2"], tcp(), {"p2": [tcp()]}),
    Case("output twice", ["actions=2,2"], tcp(), {"p2": [tcp(), tcp()]}),
    Case("not back to the input", ["actions=1,2"], tcp(), {"p2": [tcp()]}),
    Case("in_port", ["actions=in_port,3"], tcp(), {"p1": [tcp()], "p3": [tcp()]}),
    Case("all", ["actions=all"], tcp(), {p: [tcp()] for p in ("p2", "p3", "p4")}),
    Case("flood", ["actions=flood"], tcp(), {p: [tcp()] for p in ("p2", "p3", "p4")}),
    Case("a port that is not there", ["actions=77,2"], tcp(), {"p2": [tcp()]}),
    Case("output to a register", ["actions=load:3->NXM_NX_REG0[],output:NXM_NX_REG0[]"], tcp(), {"p3": [tcp()]}),
    # Choosing a flow.
    Case("priority", ["priority=10,actions=2", "priority=11,tcp,actions=3"], tcp(), {"p3": [tcp()]}),
    Case("another protocol", ["priority=10,actions=2", "priority=11,tcp,actions=3"], udp(), {"p2": [udp()]}),
    Case("prefix", ["ip,nw_dst=10.0.0.0/24,actions=2", "priority=1,actions=3"], tcp(), {"p2": [tcp()]}),
    Case(
        "outside the prefix",
        ["ip,nw_dst=10.0.0.0/24,actions=2", "priority=1,actions=3"],
        tcp(destination="10.0.1.2"),
        {"p3": [tcp(destination="10.0.1.2")]},
    ),
    Case("transport port", ["tcp,tp_dst=80,actions=2", "priority=1,actions=3"], tcp(), {"p2": [tcp()]}),
    Case("tcp flags", ["tcp,tcp_flags=+syn-ack,actions=2", "priority=1,actions=3"], tcp(), {"p2": [tcp()]}),
    Case("ipv6", ["ipv6,ipv6_dst=fd00::/16,actions=4"], udp6(), {"p4": [udp6()]}),
    Case(
        "arp",
        ["arp,arp_tpa=10.0.0.2,arp_op=1,actions=2"],
        Ether(src=A, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.2"),
        {"p2": [Ether(src=A, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.2")]},
    ),
    # VLANs.
    Case(
        "push vlan",
        ["actions=push_vlan:0x8100,set_field:4106->vlan_vid,2"],
        tcp(),
        {"p2": [tcp(vlan=vlan(10))]},
        version="OpenFlow13",
    ),
    Case("pop vlan", ["dl_vlan=10,actions=pop_vlan,2"], tcp(vlan=vlan(10, 5)), {"p2": [tcp()]}, "OpenFlow13"),
    Case("strip vlan", ["actions=strip_vlan,2"], tcp(vlan=vlan(10, 5)), {"p2": [tcp()]}),
    Case("mod_vlan_vid", ["actions=mod_vlan_vid:20,2"], tcp(vlan=vlan(10, 5)), {"p2": [tcp(vlan=vlan(20, 5))]}),
    Case("mod_vlan_pcp", ["actions=mod_vlan_pcp:3,2"], tcp(vlan=vlan(10, 5)), {"p2": [tcp(vlan=vlan(10, 3))]}),
    Case("vlan before and after", ["actions=3,strip_vlan,2"], tcp(vlan=vlan(7)), {"p3": [tcp(vlan=vlan(7))], "p2": [tcp()]}),
    Case("vlan tagged only", ["vlan_tci=0x1000/0x1000,actions=2", "priority=1,actions=3"], tcp(), {"p3": [tcp()]}),
    # Fields: addresses and ports with their checksums.
    Case(
        "ethernet addresses",
        [f"actions=mod_dl_src:{B},mod_dl_dst:{A},2"],
        tcp(),
        {"p2": [tcp(eth=Ether(src=B, dst=A))]},
    ),
    Case(
        "ip addresses",
        ["ip,actions=mod_nw_src:1.2.3.4,mod_nw_dst:5.6.7.8,2"],
        tcp(),
        {"p2": [tcp(source="1.2.3.4", destination="5.6.7.8")]},
    ),
    Case("udp address", ["ip,actions=set_field:1.2.3.4->ip_src,2"], udp(), {"p2": [udp(source="1.2.3.4")]}),
    Case("transport ports", ["tcp,actions=mod_tp_src:7,mod_tp_dst:8,2"], tcp(), {"p2": [tcp(sport=7, dport=8)]}),
    Case("udp ports", ["udp,actions=mod_tp_src:7,mod_tp_dst:8,2"], udp(), {"p2": [udp(sport=7, dport=8)]}),
    Case("tos", ["ip,actions=mod_nw_tos:184,2"], tcp(), {"p2": [tcp(tos=184)]}),
    Case("ttl", ["ip,actions=mod_nw_ttl:9,2"], tcp(), {"p2": [tcp(ttl=9)]}),
    Case("dec_ttl", ["ip,actions=dec_ttl,2"], tcp(ttl=64), {"p2": [tcp(ttl=63)]}),
    Case("dec_ttl of the last hop", ["ip,actions=dec_ttl,2"], tcp(ttl=1), {}),
    Case("dec_ttl of ipv6", ["ipv6,actions=dec_ttl,2"], udp6(hlim=2), {"p2": [udp6(hlim=1)]}),
    Case(
        "ipv6 address",
        ["ipv6,actions=set_field:fd00::9->ipv6_dst,2"],
        udp6(),
        {"p2": [udp6(destination="fd00::9")]},
    ),
    Case(
        "outputs between changes",
        ["ip,actions=2,mod_nw_ttl:5,3,mod_nw_ttl:64,4"],
        tcp(),
        {"p2": [tcp()], "p3": [tcp(ttl=5)], "p4": [tcp()]},
    ),
    Case(
        "move",
        ["ip,actions=move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[],2"],
        tcp(),
        {"p2": [tcp(destination="10.0.0.1")]},
    ),
    Case(
        "addresses swapped through registers",
        [
            "ip,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG1[],move:NXM_OF_IP_DST[]->NXM_OF_IP_SRC[],"
            "move:NXM_NX_REG1[]->NXM_OF_IP_DST[],2"
        ],
        tcp(),
        {"p2": [tcp(source="10.0.0.2", destination="10.0.0.1")]},
    ),
    Case(
        "part of a field",
        ["ip,actions=load:0x7->NXM_OF_IP_DST[0..7],2"],
        tcp(),
        {"p2": [tcp(destination="10.0.0.7")]},
    ),
    # Tables.
    Case("goto_table", ["actions=goto_table:1", "table=1,tcp,actions=2"], tcp(), {"p2": [tcp()]}, "OpenFlow13"),
    Case(
        "resubmit returns",
        ["actions=resubmit(,1),3", "table=1,actions=2"],
        tcp(),
        {"p2": [tcp()], "p3": [tcp()]},
    ),
    Case(
        "resubmit with another port",
        ["in_port=1,actions=resubmit:2", "in_port=2,actions=4"],
        tcp(),
        {"p4": [tcp()]},
    ),
    Case(
        "changed fields decide in the next table",
        ["ip,actions=mod_nw_ttl:3,resubmit(,1)", "table=1,ip,nw_ttl=3,actions=2", "table=1,priority=1,actions=3"],
        tcp(),
        {"p2": [tcp(ttl=3)]},
    ),
    Case(
        "registers decide in the next table",
        [
            "actions=set_field:0x5->reg3,resubmit(,1)",
            "table=1,reg3=0x5,actions=2",
            "table=1,priority=1,actions=3",
        ],
        tcp(),
        {"p2": [tcp()]},
    ),
    Case(
        "metadata",
        ["actions=write_metadata:0x12/0xff,goto_table:1", "table=1,metadata=0x12,actions=2"],
        tcp(),
        {"p2": [tcp()]},
        version="OpenFlow13",
    ),
    Case("resubmit without end", ["actions=2,resubmit(,0)"], tcp(), None),
    # Other frames.
    Case("a runt", ["actions=2"], Ether(src=A, dst=B, type=0x0800) / Raw(b"\x45"), None),
    Case(
        "icmp",
        ["icmp,icmp_type=8,actions=2"],
        Ether(src=A, dst=B) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP() / Raw(PAYLOAD),
        {"p2": [Ether(src=A, dst=B) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP() / Raw(PAYLOAD)]},
    ),
]


@pytest.fixture(scope="module")
def dummies(module_making):
    return Dummies(module_making.switch(), "br0", "p1", "p2", "p3", "p4")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(dummies, case):
    dummies.flows(*case.flows, version=case.version)
    traced = dummies.traced_outputs("p1", case.frame)
    # Twice: the second packet takes the cached flow of the first.
    for _ in range(2):
        out = dummies.exchange("p1", case.frame)
        assert sorted(port for port, frames in out.items() for _ in frames) == traced
        if case.out is not None:
            expected = {port: [bytes(frame) for frame in frames] for port, frames in case.out.items()}
            assert {p: [f.hex() for f in fs] for p, fs in out.items()} == {
                p: [f.hex() for f in fs] for p, fs in expected.items()
            }


def test_changed_flows_update_the_cache(dummies):
    for target in ("p2", "p3", "p4", "p2"):
        dummies.flows(f"tcp,actions={target[1]}")
        assert list(dummies.exchange("p1", tcp())) == [target]
    dummies.switch.ofctl("mod-flows", "br0", "tcp,actions=3")
    assert list(dummies.exchange("p1", tcp())) == ["p3"]
    dummies.switch.ofctl("del-flows", "br0")
    assert dummies.exchange("p1", tcp()) == {}


def test_flow_counters(dummies):
    dummies.flows("tcp,actions=2", "udp,actions=3")
    for _ in range(5):
        dummies.exchange("p1", tcp())
    dummies.exchange("p1", udp())
    for match, count in (("tcp", 5), ("udp", 1)):
        assert dummies.switch.peers.n_packets("br0", match) == count
    text = dummies.switch.ofctl("dump-flows", "br0", "tcp")
    assert f"n_bytes={5 * len(bytes(tcp()))}" in text


def between(source, destination):
    return bytes(Ether(src=source, dst=destination, type=0x1234) / Raw(bytes(46)))


def test_normal_learns(dummies):
    dummies.flows("actions=normal")
    dummies.switch.appctl("fdb/flush", "br0")
    everyone = "ff:ff:ff:ff:ff:ff"
    assert sorted(dummies.exchange("p1", between(A, B))) == ["p2", "p3", "p4"]
    assert sorted(dummies.exchange("p2", between(B, A))) == ["p1"]
    assert sorted(dummies.exchange("p1", between(A, B))) == ["p2"]
    assert sorted(dummies.exchange("p1", between(A, everyone))) == ["p2", "p3", "p4"]
    # A moves: the next frame to it goes to its new port.
    dummies.exchange("p3", between(A, everyone))
    assert sorted(dummies.exchange("p2", between(B, A))) == ["p3"]
    table = [line.split() for line in dummies.switch.appctl("fdb/show", "br0").splitlines()]
    assert table[0] == ["Port", "VLAN", "MAC", "Age"]
    assert [row[:3] for row in sorted(table[1:], key=lambda row: row[2])] == [["3", "0", A], ["2", "0", B]]
    dummies.switch.appctl("fdb/flush", "br0")
    assert sorted(dummies.exchange("p1", between(A, B))) == ["p2", "p3", "p4"]


@pytest.fixture
def vlans(dummies):
    """p1 and p2 access ports of VLAN 10, p3 of VLAN 20, p4 a trunk of all."""
    vsctl = dummies.switch.vsctl
    vsctl("set", "port", "p1", "tag=10", "--", "set", "port", "p2", "tag=10", "--", "set", "port", "p3", "tag=20")
    yield dummies
    for port in ("p1", "p2", "p3", "p4"):
        vsctl("clear", "port", port, "tag", "trunks", "vlan_mode", "cvlans", "other_config")


def test_normal_vlans(vlans):
    vlans.flows("actions=normal")
    vlans.switch.appctl("fdb/flush", "br0")
    everyone = "ff:ff:ff:ff:ff:ff"
    plain = tcp(eth=Ether(src=A, dst=everyone))
    tagged10 = tcp(eth=Ether(src=A, dst=everyone), vlan=vlan(10))
    tagged20 = tcp(eth=Ether(src=A, dst=everyone), vlan=vlan(20))
    assert vlans.exchange("p1", plain) == {"p2": [bytes(plain)], "p4": [bytes(tagged10)]}
    assert vlans.exchange("p3", plain) == {"p4": [bytes(tagged20)]}
    assert vlans.exchange("p4", tagged10) == {"p1": [bytes(plain)], "p2": [bytes(plain)]}
    assert vlans.exchange("p4", tagged20) == {"p3": [bytes(plain)]}
    # Untagged frames of the trunk are in VLAN 0, which no other port is in; tagged frames do not enter an access port.
    assert vlans.exchange("p4", plain) == {}
    assert vlans.exchange("p1", tagged20) == {}
    vlans.switch.vsctl("set", "port", "p4", "trunks=20")
    assert vlans.exchange("p4", tagged10) == {}
    assert vlans.exchange("p3", plain) == {"p4": [bytes(tagged20)]}
    vlans.switch.vsctl("clear", "port", "p4", "trunks", "--", "set", "port", "p4", "tag=10", "vlan_mode=native-untagged")
    assert vlans.exchange("p1", plain) == {"p2": [bytes(plain)], "p4": [bytes(plain)]}
    assert vlans.exchange("p4", plain) == {"p1": [bytes(plain)], "p2": [bytes(plain)]}
    vlans.switch.vsctl("set", "port", "p4", "vlan_mode=native-tagged")
    assert vlans.exchange("p1", plain) == {"p2": [bytes(plain)], "p4": [bytes(tagged10)]}


def test_tunnels_of_customer_vlans(vlans):
    """A dot1q-tunnel port adds and removes the tag of its service VLAN, and keeps those of customers."""
    vlans.flows("actions=normal")
    vlans.switch.appctl("fdb/flush", "br0")
    everyone = "ff:ff:ff:ff:ff:ff"
    plain, customer, other = (tcp(eth=Ether(src=A, dst=everyone), vlan=tag) for tag in (None, vlan(5, 3), vlan(6)))

    def service(tagged):
        return Ether(src=A, dst=everyone, type=0x88A8) / Dot1Q(vlan=10, type=tagged.type) / tagged.payload

    vsctl = vlans.switch.vsctl
    for port in ("p1", "p2"):
        vsctl("set", "port", port, "vlan_mode=dot1q-tunnel")
    for tagged in (plain, customer, other):
        assert vlans.exchange("p1", tagged) == {"p2": [bytes(tagged)], "p4": [bytes(service(tagged))]}
        assert vlans.exchange("p4", service(tagged)) == {"p1": [bytes(tagged)], "p2": [bytes(tagged)]}
    vsctl("set", "port", "p2", "cvlans=6", "other_config:qinq-ethtype=802.1q")
    assert vlans.exchange("p1", customer) == {"p4": [bytes(service(customer))]}
    assert vlans.exchange("p2", customer) == {}
    double = Ether(src=A, dst=everyone) / Dot1Q(vlan=10) / Dot1Q(vlan=6) / other.payload.payload
    assert vlans.exchange("p2", other) == {"p1": [bytes(other)], "p4": [bytes(double)]}


def test_patch_ports(making):
    switch = making.switch()
    near = Dummies(switch, "br0", "p1", "p2")
    far = Dummies(switch, "br1", "q1")
    words = []
    for bridge, name, other in (("br0", "to1", "to0"), ("br1", "to0", "to1")):
        words += ["--", "add-port", bridge, name, "--", "set", "interface", name, "type=patch", f"options:peer={other}"]
        words += ["ofport_request=9"]
    switch.vsctl(*words[1:])
    near.flows("in_port=1,actions=9", "in_port=9,actions=2")
    switch.ofctl("add-flow", "br1", "in_port=9,ip,actions=dec_ttl,1,in_port")
    frame = tcp(ttl=9)
    assert near.traced_outputs("p1", frame) == ["p2", "q1"]
    assert near.exchange("p1", frame) == {"p2": [bytes(tcp(ttl=8))]}
    assert far.sent("q1", 1) == [bytes(tcp(ttl=8))]
    switch.vsctl("set", "bridge", "br0", "fail-mode=standalone")
    for bridge in ("br0", "br1"):
        switch.ofctl("del-flows", bridge)
        switch.ofctl("add-flow", bridge, "actions=normal")
    near.receive("p1", between(A, "ff:ff:ff:ff:ff:ff"))
    assert far.sent("q1", 1) == [between(A, "ff:ff:ff:ff:ff:ff")]
    assert f" {A} " in switch.appctl("fdb/show", "br1")
