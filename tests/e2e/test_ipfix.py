"""IPFIX: the same packets through Open vSwitch's daemon and ours produce the same messages, except for times, and
the same statistics and traces."""

import difflib
import pprint
import re
import struct

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, GRE, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from collector import Collector
from dummies import Dummies
from waiting import until

A, B = "50:54:00:00:00:05", "50:54:00:00:00:07"
MULTICAST, BROADCAST = "51:54:00:00:00:07", "ff:ff:ff:ff:ff:ff"
# Messages before the first record: templates, and the exporter's own record.
FIRST = 20
# VMware's number.
ENTERPRISE = 6876
# The elements of a tunnel's source address and key.
ADDRESS, KEY = (ENTERPRISE, 893), (ENTERPRISE, 892)


def eth(dst=B):
    return Ether(src=A, dst=dst)


def ip(proto=0, **more):
    return IP(src="10.0.0.1", dst="10.0.0.2", proto=proto, **more)


def ip6(**more):
    return IPv6(src="fe80::1", dst="fe80::2", **more)


FRAMES = {
    "tcp": eth() / ip(6, tos=0x28) / TCP(sport=8, dport=9, flags="SA"),
    "tcp flags": eth() / ip(6) / TCP(sport=8, dport=9, flags="FSRPAU"),
    "udp": eth() / ip(17) / UDP(sport=8, dport=9) / Raw(b"x" * 50),
    "multicast": eth(MULTICAST) / ip(17) / UDP(sport=8, dport=9) / Raw(b"x" * 10),
    "broadcast": eth(BROADCAST) / ip(17) / UDP(sport=8, dport=9),
    "icmp": eth() / ip(1) / ICMP(type=8, code=3),
    "gre": eth() / ip(47) / Raw(b"\0" * 30),
    "igmp": eth() / ip(2) / Raw(b"\x16" + b"\0" * 15),
    "first fragment": eth() / ip(17, flags="MF") / UDP(sport=8, dport=9) / Raw(b"x" * 16),
    "later fragment": eth() / ip(17, frag=2) / Raw(b"x" * 32),
    "options": eth() / ip(6, options=[b"\x01\x01\x01\x00"]) / TCP(sport=8, dport=9),
    "padded": Ether(bytes(eth() / ip(17) / UDP(sport=8, dport=9)) + b"\0" * 18),
    "vlan": eth() / Dot1Q(vlan=5, prio=3) / ip(132) / SCTP(sport=8, dport=9),
    "priority tag": eth() / Dot1Q(vlan=0, prio=3) / ip(17) / UDP(sport=1, dport=2),
    "two tags": Ether(src=A, dst=B, type=0x88A8) / Dot1Q(vlan=5, prio=3) / Dot1Q(vlan=6) / ip(17) / UDP(),
    "arp": eth() / ARP(op=1, hwsrc=A, psrc="1.2.3.4", pdst="5.6.7.8"),
    "unknown": Ether(src=A, dst=B, type=0x1234) / Raw(b"x" * 50),
    "mpls": Ether(src=A, dst=B, type=0x8847) / Raw(bytes.fromhex("00005103") + b"x" * 50),
    "no type": Ether(bytes.fromhex("505400000007505400000005002642420300") + b"\0" * 40),
    "tcp6": eth() / ip6(tc=4, fl=0x12345, hlim=128) / TCP(sport=80, dport=8080, flags="S"),
    "udp6": eth() / ip6() / UDP(sport=80, dport=8080) / Raw(b"y" * 20),
    "sctp6": eth() / ip6() / SCTP(sport=80, dport=8080),
    "icmp6": eth() / ip6() / ICMPv6EchoRequest(),
    "neighbour": eth() / ip6() / ICMPv6ND_NS(tgt="fe80::3"),
    "other6": eth() / ip6(nh=47) / Raw(b"\0" * 30),
    "vlan tcp6": eth() / Dot1Q(vlan=7) / ip6() / TCP(sport=80, dport=8080),
}


HERE, THERE, HERE6, THERE6 = "1.1.2.88", "1.1.2.92", "2001:cafe::88", "2001:cafe::92"
HERE_MAC, THERE_MAC = "aa:55:aa:55:00:00", "f8:bc:12:44:34:b6"


def outer(v6=False):
    """The headers of a packet to an end of a tunnel."""
    return Ether(src=THERE_MAC, dst=HERE_MAC) / (IPv6(src=THERE6, dst=HERE6) if v6 else IP(src=THERE, dst=HERE))


def vxlan(inner, vni=123, v6=False):
    return outer(v6) / UDP(sport=50001, dport=4789) / VXLAN(vni=vni, flags=8) / inner


def in_geneve(inner):
    return outer() / UDP(sport=50002, dport=6081) / Raw(bytes.fromhex("0000655807000700") + bytes(inner))


ERSPAN = bytes.fromhex("100088be000000001000000500000000") + bytes(FRAMES["udp"])
BFD = {port: eth() / ip(17) / UDP(sport=49152, dport=port) / Raw(b"\x20\xc0\x03\x18" + b"\0" * 20) for port in (3784, 4784)}
# Type and options of a tunnel, and a packet from it.
FROM_TUNNELS = {
    "vxlan": ("vxlan", [f"remote_ip={THERE}", "key=123"], vxlan(FRAMES["udp"])),
    "vxlan with a tag inside": ("vxlan", [f"remote_ip={THERE}", "key=123"], vxlan(FRAMES["vlan tcp6"])),
    "vxlan with ARP inside": ("vxlan", ["remote_ip=flow", "key=flow"], vxlan(FRAMES["arp"], vni=0xABCDEF)),
    "vxlan over IPv6": ("vxlan", [f"remote_ip={THERE6}", "key=123"], vxlan(FRAMES["udp"], v6=True)),
    "geneve": ("geneve", ["remote_ip=flow", "key=flow"], in_geneve(FRAMES["tcp"])),
    "gre": ("gre", [f"remote_ip={THERE}"], outer() / GRE(proto=0x6558) / FRAMES["udp"]),
    "gre with a key": (
        *("gre", [f"remote_ip={THERE}", "key=0x12345678"]),
        outer() / GRE(proto=0x6558, key_present=1, key=0x12345678) / FRAMES["udp"],
    ),
    "gre over IPv6": ("gre", ["remote_ip=flow", "key=flow"], outer(True) / GRE(proto=0x6558) / FRAMES["udp"]),
    "ip6gre": ("ip6gre", [f"remote_ip={THERE6}"], outer(True) / GRE(proto=0x6558) / FRAMES["udp"]),
    "gre without Ethernet": (
        *("gre", [f"remote_ip={THERE}", "packet_type=legacy_l3"]),
        outer() / GRE(proto=0x800) / FRAMES["udp"][IP],
    ),
    "erspan": (
        *("erspan", [f"remote_ip={THERE}", "key=5", "erspan_ver=1", "erspan_idx=0"]),
        Ether(src=THERE_MAC, dst=HERE_MAC) / IP(src=THERE, dst=HERE, proto=47) / Raw(ERSPAN),
    ),
    "gtpu": (
        *("gtpu", [f"remote_ip={THERE}", "key=9"]),
        outer() / UDP(sport=50001, dport=2152) / Raw(bytes.fromhex("30ff004e00000009") + bytes(FRAMES["udp"][IP])),
    ),
}
# One for each port of the datapath: otherwise, Open vSwitch's records name one of them, whichever it is.
TUNNELS = {
    "vx": (10, "vxlan", f"remote_ip={THERE}", "key=123"),
    "ge": (12, "geneve", "remote_ip=flow", "key=flow"),
    "gr": (13, "gre", f"remote_ip={THERE}", "key=5"),
}


class Exporting:
    """A bridge with exporters, and their collector."""

    def __init__(self, switch):
        self.switch = switch
        self.dummies = Dummies(switch, "br0", "p1", "p2", "p3")
        self.collector = Collector(switch)

    def ipfix(self, *columns):
        target = f'targets="{self.collector.target}"'
        return ["--id=@i", "create", "IPFIX", target, *columns]

    def collector_set(self, *columns, number=1):
        words = ["--", *self.ipfix(*columns), "--", "--id=@b", "get", "bridge", "br0"]
        self.switch.vsctl(*words, "--", "create", "Flow_Sample_Collector_Set", f"id={number}", "bridge=@b", "ipfix=@i")

    def sample_bridge(self, *columns):
        self.switch.vsctl("--", *self.ipfix(*columns), "--", "set", "bridge", "br0", "ipfix=@i")

    def receive(self, *frames):
        """Each frame is the first of its cached flow: for others, Open vSwitch does not know the actions, and treats
        them as dropped."""
        for frame in frames:
            self.switch.appctl("revalidator/purge")
            self.dummies.receive("p1", frame)

    def statistics(self, which):
        return self.switch.ofctl(f"dump-ipfix-{which}", "br0", check=False)

    def tunnels(self, **tunnels):
        """Adds tunnels to the bridge, by name OpenFlow port, type and options, over a bridge with the port u1."""
        hwaddr = f"other-config:hwaddr={HERE_MAC}"
        bridge = ["set", "bridge", "under", "datapath_type=dummy", "fail-mode=secure", hwaddr]
        port = ["add-port", "under", "u1", "--", "set", "interface", "u1", "type=dummy"]
        self.switch.vsctl("add-br", "under", "--", *bridge, "--", *port)
        self.switch.appctl("netdev-dummy/ip4addr", "under", f"{HERE}/24")
        self.switch.appctl("netdev-dummy/ip6addr", "under", f"{HERE6}/64")
        for there in (THERE, THERE6):
            self.switch.appctl("tnl/neigh/set", "under", there, THERE_MAC)
        self.switch.ofctl("add-flow", "under", "in_port=LOCAL,actions=u1")
        self.switch.ofctl("add-flow", "under", "in_port=u1,actions=LOCAL")
        for name, tunnel in tunnels.items():
            self.tunnel(name, *tunnel)

    def tunnel(self, name, number, kind, *options):
        options = [f"options:{option}" for option in options]
        interface = ["set", "interface", name, f"type={kind}", f"ofport_request={number}", *options]
        self.switch.vsctl("add-port", "br0", name, "--", *interface)

    def receive_outer(self, *frames):
        for frame in frames:
            self.switch.appctl("revalidator/purge")
            self.switch.appctl("netdev-dummy/receive", "u1", bytes(frame).hex())

    def wait_statistics(self, which, text):
        until(lambda: text in self.statistics(which), lambda: f"{text}: {self.statistics(which)}")
        return self.statistics(which)

    def datapath_actions(self, flow, bridge="br0"):
        text = self.switch.appctl("ofproto/trace", bridge, flow)
        # Open vSwitch emits an action without content for a sample that it reports as an error.
        text = re.sub(r"userspace\(pid=0,userdata\(0+\)\),?", "", text)
        return "\n".join(re.findall("^ +>>.*$|^Datapath.*$", text, re.MULTILINE))


@pytest.fixture
def both(making, peers):
    """Open vSwitch's daemon and ours, with the same configuration."""
    return [Exporting(making.switch(maker=peers)), Exporting(making.switch())]


def alike(both, what):
    """Runs a function on both, and returns its result, which must be equal."""
    theirs, ours = (what(each) for each in both)
    lines = [pprint.pformat(result, width=60).splitlines() for result in (theirs, ours)]
    assert ours == theirs, "\n".join(difflib.unified_diff(*lines, "Open vSwitch", "ours", lineterm="", n=20))
    return ours


def sample(set_=1, port=None, domain=7, point=9, probability=65535, way=""):
    more = (f",sampling_port={port}" if port else "") + (f",{way}" if way else "")
    ids = f"collector_set_id={set_},obs_domain_id={domain},obs_point_id={point}"
    return f"sample(probability={probability},{ids}{more})"


def test_records_of_flows(both):
    def records(each):
        each.collector_set()
        each.dummies.flows(f"in_port=1,actions={sample()},2")
        each.receive(*FRAMES.values())
        return each.collector.read(FIRST + len(FRAMES))

    messages = alike(both, records)
    assert len({number for message in messages[FIRST:] for number, _ in message[3]}) > 10
    statistics = alike(both, lambda each: each.wait_statistics("flow", f"sampled pkts={len(FRAMES)}"))
    assert "NXST_IPFIX_FLOW reply (xid=0x2): 1 ids" in statistics
    assert "NXST_NOT_CONFIGURED" in alike(both, lambda each: each.statistics("bridge"))


ACTIONS = {
    "dropped": sample(),
    "sent before": f"2,{sample()}",
    "out of a port": f"{sample(port=2)},2",
    "the local port": f"{sample(port='LOCAL')},2",
    "the ingress port": f"{sample(port=1)},2",
    "egress": f"{sample(port=2, way='egress')},2",
    "egress of nowhere": f"{sample(way='egress')},2",
    "ingress": f"{sample(port=2, way='ingress')},2",
    "another set": f"{sample(set_=5)},{sample()},2",
    "twice": f"{sample()},2,{sample(point=10)}",
}


@pytest.mark.parametrize("name", ["udp", "multicast", "broadcast", "tcp"])
def test_records_of_actions(both, name):
    records = sum(actions.count("collector_set_id=1,") for actions in ACTIONS.values())

    def reported(each):
        each.collector_set()
        for actions in ACTIONS.values():
            each.dummies.flows(f"in_port=1,actions={actions}", version="OpenFlow13")
            each.receive(FRAMES[name])
        return each.collector.read(FIRST + records)

    alike(both, reported)
    assert alike(both, lambda each: each.collector.pending()) == 0


def test_traces(both):
    def traces(each):
        cases = {**ACTIONS, "unknown port": f"{sample(port=77)},2", "half": f"{sample(probability=32768)},2"}
        cases |= {"a tag more": f"push_vlan:0x8100,{sample()},2"}
        cases |= {"rare": sample(probability=1), "written": f"mod_dl_src:{B},{sample()},mod_dl_src:{A},2"}
        cases |= {"clone": f"clone({sample()},2),3", "truncated": f"{sample()},output(port=2,max_len=64)"}
        return {
            name: (each.dummies.flows(f"actions={actions}", version="OpenFlow13"), each.datapath_actions("in_port=1,tcp"))
            for name, actions in cases.items()
        }

    without = alike(both, traces)
    assert not any("userspace(pid=0,flow_sample" in text for _, text in without.values())
    for each in both:
        each.collector_set()
    sets = alike(both, traces)
    assert "userspace(pid=0,flow_sample(" in sets["dropped"][1]
    assert "sample(sample=50.0%,actions(userspace(" in sets["half"][1]
    for each in both:
        each.sample_bridge("sampling=400")
    assert "userspace(pid=0,ipfix(output_port=4294967295))" in alike(both, traces)["dropped"][1]


def test_a_cache(both):
    """Flows are exported when the cache is full, and at the latest with the end of their exporter."""

    def tcp(port, flags, size=0):
        return eth() / ip(6) / TCP(sport=8, dport=port, flags=flags) / Raw(b"z" * size)

    def reported(each):
        each.collector_set("cache_active_timeout=4200", "cache_max_flows=2", "other_config:virtual_obs_id=abc")
        each.dummies.flows(f"in_port=1,actions={sample()},2")
        each.receive(tcp(1, "A"), tcp(2, "PA", 50), tcp(1, "A", 10), tcp(1, "FA"), tcp(2, "A"))
        before = each.wait_statistics("flow", "sampled pkts=5"), each.collector.pending()
        each.receive(tcp(3, "A"), tcp(1, "A"))
        full = each.wait_statistics("flow", "sampled pkts=7"), each.collector.read(FIRST + 2)
        each.switch.vsctl("--all", "destroy", "Flow_Sample_Collector_Set")
        return before, full, each.collector.read(2), each.statistics("flow")

    alike(both, reported)


def test_time_ends_flows(making):
    each = Exporting(making.switch())
    each.collector_set("cache_active_timeout=1", "cache_max_flows=100")
    each.dummies.flows(f"in_port=1,actions={sample()},2")
    each.receive(*[FRAMES["udp"]] * 3)
    records = [dict(records[0]) for *_, sets in each.collector.read(FIRST + 1) for set_, records in sets if set_ == 284]
    assert sum(int(record[2], 16) for record in records) in (1, 2, 3)
    assert {record[136] for record in records} == {"02"}
    each.wait_statistics("flow", "current flows=0, sampled pkts=3")


def test_all_packets_of_a_bridge(both):
    def reported(each):
        each.sample_bridge("sampling=1", "obs_domain_id=3", "obs_point_id=4")
        each.dummies.flows("in_port=1,actions=2,LOCAL,3")
        frames = [FRAMES[name] for name in ("udp", "tcp6", "vlan", "multicast", "broadcast", "gre")]
        each.receive(*frames)
        return each.collector.read(FIRST + 4 * len(frames)), each.wait_statistics("bridge", "sampled pkts=24")

    messages, statistics = alike(both, reported)
    assert "bridge ipfix: flows=24" in statistics
    for each in both:
        each.switch.vsctl("clear", "bridge", "br0", "ipfix")
    assert "NXST_NOT_CONFIGURED" in alike(both, lambda each: each.statistics("bridge"))
    assert "userspace" not in alike(both, lambda each: each.datapath_actions("in_port=1,tcp"))


def test_two_bridges(both):
    """A packet is reported at ingress and at egress."""

    def traces(each):
        each.sample_bridge("sampling=1")
        each.switch.vsctl(
            *("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy", "fail-mode=secure"),
            *("--", "add-port", "br0", "pa", "--", "set", "int", "pa", "type=patch", "options:peer=pb", "ofport_request=7"),
            *("--", "add-port", "br1", "pb", "--", "set", "int", "pb", "type=patch", "options:peer=pa", "ofport_request=8"),
            *("--", "add-port", "br1", "p9", "--", "set", "int", "p9", "type=dummy", "ofport_request=9"),
        )
        each.switch.ofctl("add-flow", "br1", "in_port=8,actions=9")
        each.switch.ofctl("add-flow", "br1", "in_port=9,actions=8")
        each.dummies.flows("in_port=1,actions=2,7,3", "in_port=7,actions=2", version="OpenFlow13")
        sampled = each.datapath_actions("in_port=1,tcp"), each.datapath_actions("in_port=9,tcp", "br1")
        each.dummies.flows(f"in_port=1,actions={sample(port=7)},2", version="OpenFlow13")
        return sampled, each.datapath_actions("in_port=1,tcp")

    alike(both, traces)


def test_two_collectors_and_none(both):
    """Messages that cannot be delivered are counted."""

    def statistics(each):
        second = Collector(each.switch, "second")
        each.collector_set()
        each.switch.vsctl("set", "IPFIX", each.switch.vsctl("--bare", "--columns=_uuid", "list", "IPFIX"), f'targets="{second.target}","{each.collector.target}"')
        each.dummies.flows(f"in_port=1,actions={sample()},2")
        each.receive(FRAMES["udp"])
        output = each.collector.read(FIRST + 1)
        assert second.read(FIRST + 1) == output
        return output, each.wait_statistics("flow", "sampled pkts=1,")

    alike(both, statistics)


def test_sampling_probability(making):
    """Each packet is sampled with the probability of its action; the others pass unsampled."""
    each = Exporting(making.switch())
    each.collector_set()
    each.dummies.flows(f"in_port=1,actions={sample(probability=65535 // 4)},2")
    count = 2000
    for _ in range(10):
        each.dummies.receive("p1", *[FRAMES["udp"]] * (count // 10))
    each.dummies.sent("p2", count)
    sampled = lambda: int(re.search(r"sampled pkts=(\d+)", each.statistics("flow")).group(1))
    # Six standard deviations: 6 * sqrt(2000 * 1/4 * 3/4).
    until(lambda: abs(sampled() - count / 4) < 117, lambda: f"a fourth of {count}, not {sampled()}")
    output = FIRST + sampled()
    for message in each.collector.messages(output):
        assert struct.unpack_from("!H", message)[0] == 10


@pytest.mark.parametrize("tunnels", ["", "true", "False", "no"])
def test_packets_from_tunnels(both, tunnels):
    """Records of packets from tunnels have the headers of the tunnel, unless that is switched off, or an action of a flow names
    an output port."""
    ways = [sample(), sample(way="ingress"), sample(way="egress"), sample(port=2), sample(port=10), sample(port="LOCAL")]
    kinds = FROM_TUNNELS if not tunnels else {"vxlan": FROM_TUNNELS["vxlan"]}

    def records(each):
        columns = [f"other_config:enable-tunnel-sampling={tunnels}"] if tunnels else []
        each.collector_set(*columns)
        each.tunnels()
        each.dummies.flows(f"in_port=10,actions={','.join(ways)},2", version="OpenFlow13")
        per_flow, per_bridge = {}, {}
        for name, (kind, options, frame) in kinds.items():
            each.tunnel("t", 10, kind, *options)
            each.receive_outer(frame)
            per_flow[name] = without_drops(each.collector.read((0 if per_flow else FIRST) + len(ways)))
            each.switch.vsctl("del-port", "t")
        each.switch.vsctl("--all", "destroy", "Flow_Sample_Collector_Set")
        each.sample_bridge("sampling=1", *columns)
        each.dummies.flows("in_port=10,actions=2", version="OpenFlow13")
        for name, (kind, options, frame) in kinds.items():
            each.tunnel("t", 10, kind, *options)
            each.receive_outer(frame)
            per_bridge[name] = without_drops(each.collector.read((0 if per_bridge else FIRST) + 2))
            each.switch.vsctl("del-port", "t")
        return per_flow, per_bridge

    per_flow, per_bridge = alike(both, records)
    with_headers = {name for name in kinds if not name.endswith("IPv6")} - {"ip6gre", "erspan", "gtpu"}
    for by_name in (per_flow, per_bridge):
        shown = {name for name, messages in by_name.items() if any(ADDRESS in dict(r) for r in records_of(messages))}
        assert shown == (set() if tunnels == "False" else with_headers)


def records_of(messages):
    return [record for *_, sets in messages for number, records in sets if number not in (2, 3, 462) for record in records]


def without_drops(messages):
    """Whether a packet counts as dropped after it was changed is a difference of Open vSwitch (docs/compatibility/openflow.md),
    and so are totals of dropped packets and bytes."""
    keep = lambda record: [pair for pair in record if pair[0] not in (133, 135, 132, 134)]
    sets = lambda all_: [(number, [keep(r) for r in records] if number not in (2, 3) else records) for number, records in all_]
    return [(*head, sets(all_)) for *head, all_ in messages]


def test_packets_to_tunnels(both):
    """A bridge does not sample packets that leave through a tunnel, but the bridge below it does. An action of a flow may name
    a tunnel as its port; records then have no headers."""
    sent = {name: f"set_field:5->tun_id,set_field:{THERE}->tun_dst,{number}" for name, (number, *_) in TUNNELS.items()}

    def reported(each):
        each.tunnels(**TUNNELS)
        each.collector_set()
        each.sample_bridge("sampling=1")
        output, traces = [], {}
        for name, actions in sent.items():
            each.dummies.flows(f"in_port=1,actions={actions}", version="OpenFlow13")
            traces[name] = each.datapath_actions("in_port=1,udp").splitlines()[-1]
            each.receive(FRAMES["udp"])
        output.append(each.collector.read(FIRST + len(sent)))
        each.switch.vsctl("clear", "bridge", "br0", "ipfix")
        for name, (number, *_) in TUNNELS.items():
            for way in ("", "ingress", "egress"):
                actions = sample(port=number, way=way)
                each.dummies.flows(f"actions={actions},2", version="OpenFlow13")
                traces[f"sample of {name} {way}"] = each.datapath_actions("in_port=1,udp").splitlines()[-1]
                each.receive(FRAMES["udp"])
        each.dummies.flows(f"actions={sample(port=12)},{sample(port=10)},{sample(port=13)},2", version="OpenFlow13")
        each.receive_outer(vxlan(FRAMES["udp"]))
        output.append(each.collector.read(FIRST + 3 * len(TUNNELS) + 3))
        for actions in (sample(port=10, probability=32768), sample(port=10, set_=8)):
            each.dummies.flows(f"actions={actions},2", version="OpenFlow13")
            traces[actions] = each.datapath_actions("in_port=1,udp").splitlines()[-1]
        each.switch.vsctl("--all", "destroy", "Flow_Sample_Collector_Set")
        each.collector_set("other_config:enable-tunnel-sampling=false")
        each.dummies.flows(f"actions={sample(port=10)},2", version="OpenFlow13")
        traces["without headers"] = each.datapath_actions("in_port=1,udp").splitlines()[-1]
        return output, traces

    output, traces = alike(both, reported)
    assert all(ADDRESS not in dict(record) for record in records_of(output[0]))
    assert ",tunnel_out_port=4789)" in traces["sample of vx "]
    assert "tunnel_out_port" not in traces["without headers"]


def test_the_bridge_below_a_tunnel(both):
    """It samples outer packets."""

    def records(each):
        each.tunnels(**TUNNELS)
        each.switch.vsctl("--", *each.ipfix("sampling=1"), "--", "set", "bridge", "under", "ipfix=@i")
        # The source port of VXLAN is a hash of its own kind for each maker.
        each.dummies.flows("in_port=1,actions=13", "in_port=10,actions=2")
        each.receive_outer(vxlan(FRAMES["udp"]))
        received = each.collector.read(FIRST + 1)
        each.receive(FRAMES["udp"])
        return received, without_drops(each.collector.read(1))

    received, sent = alike(both, records)
    assert dict(records_of(received)[0])[8] == "0101025c" and dict(records_of(sent)[0])[8] == "01010258"


def test_the_bridge_behind_a_patch_port(both):
    """It knows its own ports only."""

    def records(each):
        each.tunnels(**TUNNELS)
        each.switch.vsctl(
            *("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy", "fail-mode=secure"),
            *("--", "add-port", "br0", "pa", "--", "set", "int", "pa", "type=patch", "options:peer=pb", "ofport_request=7"),
            *("--", "add-port", "br1", "pb", "--", "set", "int", "pb", "type=patch", "options:peer=pa", "ofport_request=8"),
            *("--", "add-port", "br1", "p9", "--", "set", "int", "p9", "type=dummy", "ofport_request=9"),
        )
        words = ["--", *each.ipfix(), "--", "--id=@b", "get", "bridge", "br1"]
        each.switch.vsctl(*words, "--", "create", "Flow_Sample_Collector_Set", "id=1", "bridge=@b", "ipfix=@i")
        each.switch.ofctl("add-flow", "br1", f"actions={sample()},{sample(port=9)},9")
        each.dummies.flows("actions=7")
        each.receive_outer(vxlan(FRAMES["udp"]))
        each.receive(FRAMES["udp"])
        return each.collector.read(FIRST + 4)

    interfaces = [[value for element, value in record if element == 82] for record in records_of(alike(both, records))]
    assert interfaces == [[""], ["", b"p9".hex()]] * 2


def test_bfd_is_no_packet_of_a_bridge(both):
    """Packets of BFD over one hop are reported by actions of flows only."""

    def records(each):
        each.tunnels(**TUNNELS)
        each.collector_set()
        each.dummies.flows(f"actions={sample()},2")
        each.receive(*BFD.values())
        each.receive_outer(*map(vxlan, BFD.values()))
        per_flow = each.collector.read(FIRST + 4)
        each.switch.vsctl("--all", "destroy", "Flow_Sample_Collector_Set")
        each.sample_bridge("sampling=1")
        each.receive(*BFD.values())
        each.receive_outer(*map(vxlan, BFD.values()))
        return per_flow, each.collector.read(FIRST + 4), each.wait_statistics("bridge", "sampled pkts=4")

    alike(both, records)


def test_tunnels_that_share_a_port_of_the_datapath(making):
    """Records name the tunnel that a packet came from or leaves through. Open vSwitch's name one of those that share the port."""
    each = Exporting(making.switch())
    each.tunnels(**{f"v{number}": (10 + number, "vxlan", f"remote_ip={THERE}", f"key={number}") for number in range(3)})
    each.collector_set()
    each.dummies.flows("actions=" + ",".join(sample(port=10 + number, way="egress") for number in range(3)))
    each.receive_outer(*(vxlan(FRAMES["udp"], vni=number) for number in range(3)))
    records = records_of(each.collector.read(FIRST + 9))
    names = [[bytes.fromhex(value).decode() for element, value in record if element == 82] for record in records]
    # The port that a packet came from is no output port.
    assert names == [[f"v{of}", f"v{to}" if of != to else ""] for of in range(3) for to in range(3)]
    keys = [dict(record).get(KEY) for record in records]
    assert keys == [f"{of:06x}" if of == to else None for of in range(3) for to in range(3)]


def test_local_sampling_of_dummies(both):
    """Dummy datapaths have no collectors on the host: a warning, and actions for IPFIX alone."""

    def what(exporting):
        switch = exporting.switch
        words = [f"-- create Flow_Sample_Collector_Set bridge=@b id={id} local_group_id={id}" for id in (1, 2)]
        switch.vsctl("--", "--id=@b", "get", "bridge", "br0", *" ".join(words).split())
        warning = "bridge br0: ignoring local sampling configuration: not supported by this datapath"
        until(lambda: warning in switch.log(), "a warning")
        refused = str(switch.appctl("dpif/set-dp-features", "br0", "psample", "true", check=False))
        shown = re.findall("psample.*", switch.appctl("dpif/show-dp-features", "br0"))
        switch.ofctl("add-flow", "br0", f"actions={sample(1)},2")
        trace = switch.appctl("ofproto/trace", "br0", "in_port=1,ip")
        added = [
            str(switch.appctl("dpctl/add-flow", "in_port(1),eth(),eth_type(0x1234)", actions, check=False))
            for actions in ("psample(group=7,cookie=0x01)", "sample(sample=50%,actions(psample(group=7)))", "psample()")
        ]
        return refused, shown, re.findall("Datapath actions:.*", trace), added

    assert alike(both, what)[2] == ["Datapath actions: 2"]
