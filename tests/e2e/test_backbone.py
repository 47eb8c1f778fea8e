"""Provider backbone bridges (IEEE 802.1ah): service instance tags are pushed, matched, set and popped, and the inner
frame is looked up. Open vSwitch does not support this, so the tests list the expected frames. Also the field for
IPv6 extension headers, which Open vSwitch lacks too."""

import pytest
from dummies import Dummies
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether

HOSTS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
BACKBONE = {"src": "02:bb:00:00:00:01", "dst": "02:bb:00:00:00:02"}
INNER = IP(src="10.0.0.1", dst="10.0.0.2", ttl=64) / TCP(sport=1000, dport=80) / b"payload"
PLAIN = bytes(Ether(**HOSTS) / INNER)
TAGGED = bytes(Ether(**HOSTS) / Dot1Q(vlan=7, prio=5) / INNER)
DECREMENTED = bytes(Ether(**HOSTS) / IP(src="10.0.0.1", dst="10.0.0.2", ttl=63) / INNER.payload)
VERSION = "OpenFlow13"


def carried(frame, isid, pcp=0, uca=0, tags=(), addresses=None):
    """A frame under a service instance tag; the outer addresses are its own unless given."""
    head = bytes(Ether(**addresses))[:12] if addresses else frame[:12]
    tci = pcp << 29 | uca << 27 | isid
    return head + b"".join(tags) + b"\x88\xe7" + tci.to_bytes(4, "big") + frame


def tag(vlan, kind=0x88A8):
    return kind.to_bytes(2, "big") + vlan.to_bytes(2, "big")


@pytest.fixture(scope="module")
def bench(module_making):
    switch = module_making.switch()
    switch.vsctl("set", "Open_vSwitch", ".", "other_config:vlan-limit=2")
    return Dummies(switch, "br0", "p1", "p2", "p3")


def set_flows(bench, *flows):
    """Uses our ovs-ofctl: Open vSwitch's does not know these actions."""
    text = "".join(f"{line}\n" for line in ["delete", *(f"add {flow}" for flow in flows)])
    bench.switch.ours.ofctl("-O", VERSION, "add-flows", "br0", "-", input=text)


def outcome(bench, flows, *frames):
    """The output for the frames, which must be the same for the first packets and by cached flows."""
    set_flows(bench, *flows)
    first, again = (bench.exchange("p1", *frames) for _ in range(2))
    assert first == again
    return first


PUSH = "actions=push_pbb:0x88e7"
POP = "dl_type=0x88e7,actions=pop_pbb"
CASES = {
    "push": ([f"{PUSH},output:2"], PLAIN, {"p2": [carried(PLAIN, 0)]}),
    "priority of the tag": ([f"{PUSH},output:2"], TAGGED, {"p2": [carried(TAGGED, 0, pcp=5)]}),
    "push and set": (
        [f"{PUSH},set_field:0x123456->pbb_isid,set_field:1->pbb_uca,set_field:02:bb:00:00:00:02->eth_dst,"
         "mod_dl_src:02:bb:00:00:00:01,push_vlan:0x88a8,mod_vlan_vid:9,output:2,output:3"],
        PLAIN,
        {port: [carried(PLAIN, 0x123456, uca=1, tags=[tag(9)], addresses=BACKBONE)] for port in ("p2", "p3")},
    ),
    "push on a changed packet": (
        ["ip,actions=dec_ttl,push_pbb:0x88e7,output:2,pop_pbb,output:3"],
        PLAIN,
        {"p2": [carried(DECREMENTED, 0)], "p3": [DECREMENTED]},
    ),
    "push two": (
        [f"{PUSH},set_field:5->pbb_isid,push_pbb:0x88e7,load:6->pbb_isid[8..15],output:2"],
        PLAIN,
        {"p2": [carried(carried(PLAIN, 5), 0x605)]},
    ),
    "pop": ([f"{POP},output:2"], carried(TAGGED, 7, addresses=BACKBONE), {"p2": [TAGGED]}),
    "pop behind tags": (
        [f"{POP},output:2"],
        carried(PLAIN, 7, tags=[tag(5), tag(6, 0x8100)], addresses=BACKBONE),
        {"p2": [PLAIN[:12] + tag(5) + tag(6, 0x8100) + PLAIN[12:]]},
    ),
    "pop with its tag": (
        ["dl_vlan=5,dl_type=0x88e7,actions=pop_vlan,pop_pbb,output:2"],
        carried(PLAIN, 7, tags=[tag(5)], addresses=BACKBONE),
        {"p2": [PLAIN]},
    ),
    "pop and look": (
        [f"{POP},goto_table:1", "table=1,ip,nw_dst=10.0.0.2,actions=dec_ttl,output:3", "table=1,priority=1,actions=output:2"],
        carried(PLAIN, 7, addresses=BACKBONE),
        {"p3": [DECREMENTED]},
    ),
    "pop in a copy": (
        ["dl_type=0x88e7,actions=clone(pop_pbb,resubmit(,1)),output:2", "table=1,ip,actions=output:3"],
        carried(PLAIN, 7),
        {"p2": [carried(PLAIN, 7)], "p3": [PLAIN]},
    ),
    "pop and switch as ever": ([f"{POP},normal"], carried(PLAIN, 7), {"p2": [PLAIN], "p3": [PLAIN]}),
    "pop two": ([f"{POP},resubmit(,1)", f"table=1,{POP},output:2"], carried(carried(PLAIN, 1), 2), {"p2": [PLAIN]}),
    "an action set": (
        ["dl_type=0x88e7,actions=write_actions(output:2,pop_pbb)"], carried(PLAIN, 7), {"p2": [PLAIN]}
    ),
    "a copy of the number": (
        ["dl_type=0x88e7,actions=move:pbb_isid[]->reg0[0..23],resubmit(,1)", "table=1,reg0=0x10007,actions=output:3"],
        carried(PLAIN, 0x10007),
        {"p3": [carried(PLAIN, 0x10007)]},
    ),
    "a tag cut short": ([f"{POP},output:2"], carried(PLAIN, 7)[:31], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_output_frames(bench, case):
    flows, frame, expected = CASES[case]
    assert outcome(bench, flows, frame) == expected


def test_a_backbone_from_end_to_end(bench):
    """Frames are pushed, forwarded by the service instance id, and popped at the other side, in tables of one
    bridge."""
    flows = [
        "table=0,in_port=1,dl_type=0x0800,actions=push_pbb:0x88e7,set_field:0x100->pbb_isid,resubmit(,1)",
        "table=0,in_port=1,dl_type=0x86dd,actions=push_pbb:0x88e7,set_field:0x201->pbb_isid,resubmit(,1)",
        "table=1,priority=5,dl_type=0x88e7,pbb_isid=0x100,actions=output:2,resubmit(,2)",
        "table=1,priority=4,dl_type=0x88e7,pbb_isid=0x200/0xffff00,pbb_uca=0,actions=output:3",
        "table=2,dl_type=0x88e7,actions=pop_pbb,resubmit(,3)",
        "table=3,tcp,tp_dst=80,actions=output:3",
    ]
    six = bytes(Ether(**HOSTS) / IPv6(src="fe80::1", dst="fe80::2") / TCP(sport=1, dport=80))
    assert outcome(bench, flows, PLAIN) == {"p2": [carried(PLAIN, 0x100)], "p3": [PLAIN]}
    assert outcome(bench, flows, six) == {"p3": [carried(six, 0x201)]}
    assert outcome(bench, flows, PLAIN) == {"p2": [carried(PLAIN, 0x100)], "p3": [PLAIN]}
    dumped = bench.switch.ours.ofctl("-O", VERSION, "dump-flows", "br0")
    assert "dl_type=0x88e7,pbb_isid=0x200/0xffff00,pbb_uca=0 actions=output:3" in dumped
    assert "push_pbb:0x88e7,set_field:0x100->pbb_isid" in dumped
    cached = bench.switch.ours.appctl("dpctl/dump-flows")
    assert "push_pbb(isid=0x100,uca=0,pcp=0,dei=0)" in cached and "pop_pbb" in cached and "recirc(" in cached
    bench.exchange("p1", carried(PLAIN, 0x300))
    trace = bench.switch.ours.appctl("ofproto/trace", "br0", "in_port=1,dl_type=0x88e7,pbb_isid=0x300")
    assert "Flow: in_port=1,vlan_tci=0x0000" in trace and "pbb_isid=0x300,pbb_uca=0" in trace, trace


def test_only_this_ethernet_type_is_pushed(bench):
    flow = "actions=push_pbb:0x8847,output:2"
    done = bench.switch.ours.run("ovs-ofctl", "-O", VERSION, "add-flow", "br0", flow, check=False)
    assert done.code != 0 and "0x8847: not a valid PBB ethertype" in done.err


@pytest.mark.parametrize(
    ("headers", "bits"),
    [
        (None, 0),
        (IPv6ExtHdrHopByHop(), 0x40),
        (IPv6ExtHdrDestOpt() / IPv6ExtHdrHopByHop(), 0x148),
        (IPv6ExtHdrHopByHop() / IPv6ExtHdrFragment(), 0x50),
    ],
)
def test_ipv6_extension_headers(bench, headers, bits):
    frame = Ether(**HOSTS) / IPv6(src="fe80::1", dst="fe80::2")
    frame = bytes((frame / headers if headers else frame) / TCP(sport=1, dport=80))
    flows = [
        f"priority=9,ipv6,ipv6_exthdr={bits:#x},actions=output:2",
        "priority=8,ipv6,ipv6_exthdr=0x40/0x40,actions=resubmit(,1)",
        "priority=1,actions=output:3",
    ]
    assert outcome(bench, flows, frame) == {"p2": [frame]}
    set_flows(bench, "priority=9,ipv6,ipv6_exthdr=0x40/0x40,actions=output:2", "priority=1,actions=output:3")
    assert outcome_port(bench, frame) == ("p2" if bits & 0x40 else "p3")


def outcome_port(bench, frame):
    (port,) = bench.exchange("p1", frame)
    return port


def test_tags_of_providers(bench):
    """Two tags in front of the service instance belong to the outer header."""
    frame = carried(TAGGED, 9, tags=[tag(3), tag(4, 0x8100)])
    assert bytes(Ether(frame)[Dot1AD])[:2] == (3).to_bytes(2, "big")
    flows = ["priority=2,dl_vlan=3,dl_type=0x88e7,pbb_isid=9,actions=output:2", "priority=1,actions=output:3"]
    assert outcome(bench, flows, frame) == {"p2": [frame]}
