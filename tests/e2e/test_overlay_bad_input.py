"""Bad input: truncated and lying packets, outer fragments in any order, tunnels that lead into themselves. The switch drops them,
counts them, and goes on."""

import sys

import pytest
from scapy.contrib.geneve import GENEVE
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet import IP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import GRE, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

import losses
from overlays import BRIDGE, UPLINK, Capture, LinuxEnd, Site, add_tunnels, cable, join, outer
from waiting import until

SENDER = """
import socket, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((sys.argv[1], 0))
for line in sys.stdin:
    out.send(bytes.fromhex(line))
"""
VNI = 7
MAC = "02:00:00:00:ee:01"


class Far:
    """A site with a tunnel of each type, and the far end of its uplink, which sends any frames and has a tunnel of its own."""

    def __init__(self, making):
        self.site, self.linux = Site(making, 1), LinuxEnd(making, 2)
        cable(self.site, self.linux)
        site = self.site
        site.tunnel("vxlan", "remote_ip=flow", f"key={VNI}", name="t0", ofport=2)
        site.tunnel("geneve", "remote_ip=flow", f"key={VNI}", name="t1", ofport=3)
        site.tunnel("gre", "remote_ip=flow", f"key={VNI}", name="t2", ofport=4)
        site.tunnel("gtpu", "remote_ip=flow", f"key={VNI}", name="t3", ofport=5)
        site.tunnel("srv6", f"remote_ip={outer(2, 6)}", name="t4", ofport=6)
        self.linux.tunnel("vxlan", "id", VNI, "dstport", 4789, "remote", outer(1), "local", outer(2))
        site.flows(
            *(f"in_port={port},actions=1" for port in (2, 3, 4)),
            f"in_port=5,actions=set_field:{site.host.mac}->eth_dst,1",
            f"in_port=6,actions=set_field:{site.host.mac}->eth_dst,1",
            f"in_port=1,actions=set_field:{outer(2)}->tun_dst,2",
        )

    def send(self, *frames):
        text = "".join(f"{bytes(frame).hex()}\n" for frame in frames)
        self.linux.run(sys.executable, "-c", SENDER, UPLINK, input=text)

    def works(self):
        self.site.host.ping(self.linux.address)

    def drops(self):
        """{reason: packets} of the switch."""
        found = losses.counters(self.site.switch)
        return {name: count for (place, name), count in found.items() if place == "switch drops" and " " not in name}

    def base(self, version=4):
        header = IP(src=outer(2), dst=outer(1)) if version == 4 else IPv6(src=outer(2, 6), dst=outer(1, 6))
        return Ether(src="02:00:00:00:ee:02", dst=MAC) / header


DATA = bytes(range(256)) * 16


def payload(length=64):
    return IP(src="10.1.0.2", dst="10.1.0.1") / UDP(sport=5, dport=7) / Raw(DATA[:length])


def inner(length=64):
    return Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:01") / payload(length)


def udp(port, **fields):
    return UDP(sport=40000, dport=port, **fields)


FRAMES = {
    "vxlan": lambda far, version: far.base(version) / udp(4789) / VXLAN(vni=VNI, flags="Instance") / inner(),
    "geneve": lambda far, version: far.base(version) / udp(6081) / GENEVE(vni=VNI, proto=0x6558) / inner(),
    "gre": lambda far, version: far.base(version) / GRE(key_present=1, key=VNI, proto=0x6558) / inner(),
    "gtpu": lambda far, version: far.base(version) / udp(2152) / GTP_U_Header(teid=VNI, gtp_type=255) / payload(),
}
CASES = [pytest.param(name, version, id=f"{name}-{version}") for name in FRAMES for version in (4, 6)]


@pytest.fixture(scope="module")
def far(module_making):
    far = Far(module_making)
    far.works()
    return far


def arrived(far, tmp_path, *frames):
    """Sends frames, then a marker, and returns the UDP packets to port 7 that reach the host before the marker."""
    with Capture(far.site.host.name, "e0", tmp_path, "udp dst port 7 or udp dst port 8") as capture:
        marker = Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:01") / IP(src="10.1.0.2", dst="10.1.0.1") / UDP(dport=8)
        marking = far.base() / udp(4789) / VXLAN(vni=VNI, flags="Instance") / marker
        far.send(*frames)
        far.send(marking)
        packets = lambda: [Ether(frame) for frame in capture.frames()]
        until(lambda: any(packet[UDP].dport == 8 for packet in packets()), "the marker")
        return [packet for packet in packets() if packet[UDP].dport == 7]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_truncated(far, tmp_path, name, version):
    """Every beginning of a packet, with and without lengths that fit it: only whole ones reach the host."""
    whole = FRAMES[name](far, version)
    assert len(arrived(far, tmp_path, whole)) == 1
    data = bytes(whole)
    before = far.drops()
    # Lying lengths: the outer headers claim more than there is.
    assert not arrived(far, tmp_path, *(data[:length] for length in range(14, len(data) - 72)))
    # The same with outer lengths that are right.
    inside = bytes(whole.payload.payload)
    cut = []
    for length in range(0, len(inside) - 72):
        headers = far.base(version)
        if version == 4:
            headers[IP].proto = whole[IP].proto
        else:
            headers[IPv6].nh = whole[IPv6].nh
        if name == "gre":
            cut.append(headers / Raw(inside[:length]))
        elif length >= 8:
            cut.append(headers / UDP(sport=40000, dport=whole[UDP].dport) / Raw(inside[8:length]))
    assert not arrived(far, tmp_path, *cut)
    after = far.drops()
    assert sum(after.values()) > sum(before.values()), after
    far.works()


# Reasons of drops, if it is not the header.
REASONS = {
    "another VNI": "no-tunnel",
    "an unknown key": "no-tunnel",
    "a wrong checksum": "tunnel-checksum",
    "a wrong checksum of GRE": "tunnel-checksum",
    "an unknown critical option": "tunnel-option",
}


@pytest.mark.parametrize("version", [4, 6])
def test_lies(far, tmp_path, version):
    """Packets for nobody, with wrong checksums, unknown critical options and unknown flags: each is counted by its reason."""
    vxlan = lambda **fields: VXLAN(**{"vni": VNI, "flags": "Instance", **fields})
    gre = lambda **fields: GRE(key_present=1, proto=0x6558, **fields)
    option = bytes.fromhex("0102800100000000")
    plain = bytes.fromhex("0102000100000000")
    geneve = lambda words, options: Raw(bytes([words, 0, 0x65, 0x58, 0, 0, VNI, 0]) + options)
    good = {
        "an option that nobody must know": far.base(version) / udp(6081) / geneve(2, plain) / inner(),
        "a checksum": far.base(version) / udp(4789) / vxlan() / inner(),
    }
    if version == 4:
        good["no checksum"] = far.base(4) / udp(4789, chksum=0) / vxlan() / inner()
    bad = {
        "another VNI": far.base(version) / udp(4789) / vxlan(vni=8) / inner(),
        "no VNI": far.base(version) / udp(4789) / vxlan(flags=0) / inner(),
        "a wrong checksum": far.base(version) / udp(4789, chksum=0x1234) / vxlan() / inner(),
        "an unknown critical option": far.base(version) / udp(6081) / geneve(2, option) / inner(),
        "options beyond the packet": far.base(version) / udp(6081) / geneve(63, option) / inner(),
        "an option beyond the options": far.base(version) / udp(6081) / geneve(2, bytes.fromhex("0102001f00000000")) / inner(),
        "version 1 of Geneve": far.base(version) / udp(6081) / Raw(bytes.fromhex("4000655800000700")) / inner(),
        "another protocol": far.base(version) / udp(6081) / Raw(bytes.fromhex("0000123400000700")) / inner(),
        "version 1 of GRE": far.base(version) / gre(version=1, key=VNI) / inner(),
        "routing of GRE": far.base(version) / Raw(bytes.fromhex("4000655800000000")) / inner(),
        "a wrong checksum of GRE": far.base(version) / gre(chksum_present=1, chksum=0x55, key=VNI) / inner(),
        "an unknown key": far.base(version) / gre(key=8) / inner(),
    }
    bad["routing of GRE"].payload.setfieldval("proto" if version == 4 else "nh", 47)
    for what, frame in good.items():
        assert len(arrived(far, tmp_path, frame)) == 1, what
    for what, frame in bad.items():
        before = far.drops()
        assert not arrived(far, tmp_path, frame, frame), what
        after = far.drops()
        grown = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
        reason = REASONS.get(what, "tunnel-header")
        assert grown.get(reason) == 2, (what, grown)
    far.works()


def outer_fragments(packet, version):
    if version == 4:
        packet[IP].id = 77
        return [Ether(bytes(Ether(src=packet.src, dst=packet.dst) / part)) for part in fragment(packet[IP], 600)]
    ethernet, ip = Ether(src=packet.src, dst=packet.dst), packet[IPv6]
    whole = IPv6(src=ip.src, dst=ip.dst) / IPv6ExtHdrFragment(id=77) / IPv6(bytes(ip)).payload
    return [ethernet / part for part in fragment6(whole, 600)]


@pytest.mark.parametrize("version", [4, 6])
def test_outer_fragments_in_any_order(far, tmp_path, version):
    packet = far.base(version) / udp(4789) / VXLAN(vni=VNI, flags="Instance") / inner(1300)
    parts = outer_fragments(Ether(bytes(packet)), version)
    assert len(parts) == 3
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)):
        (came,) = arrived(far, tmp_path, *(parts[number] for number in order))
        assert bytes(came[UDP].payload) == DATA[:1300], order
    # Without one of them, nothing arrives; it does when that comes, too.
    assert not arrived(far, tmp_path, parts[0], parts[2])
    assert len(arrived(far, tmp_path, parts[1])) == 1


@pytest.mark.parametrize("version", [4, 6])
def test_a_tunnel_to_itself(making, version):
    """A tunnel whose remote address is the switch's own."""
    one, two = join(making)
    add_tunnels("vxlan", version, ["key=7"], one, two)
    one.host.ping(two.host.address)
    one.tunnel("geneve", f"remote_ip={outer(1, version)}", "key=9", name="t9", ofport=9)
    one.flows("priority=9,in_port=1,udp,actions=9", "priority=9,in_port=9,actions=9", "priority=1,actions=normal")
    one.host.run("bash", "-c", "for n in 1 2 3 4 5; do echo $n >/dev/udp/10.1.0.2/$((7000 + n)); done")
    one.host.ping(two.host.address)


@pytest.mark.parametrize("kind", ["vxlan", "geneve", "gre"])
def test_a_route_into_the_tunnel_itself(making, kind):
    """The remote address is in the overlay's own network: what leaves the tunnel would have to enter it."""
    one, two = join(making)
    add_tunnels("vxlan", 4, ["key=7"], one, two)
    one.host.ping(two.host.address)
    # The overlay's bridge gets an address, and a tunnel to an address that is reached by it.
    one.ip("addr", "add", "10.1.0.101/24", "dev", BRIDGE)
    one.ip("link", "set", BRIDGE, "up")
    one.tunnel(kind, "remote_ip=10.1.0.2", "key=9", name="t9", ofport=9)
    one.switch.ours.appctl("tnl/neigh/set", BRIDGE, "10.1.0.2", two.host.mac)
    one.flows("priority=9,udp,actions=9", "priority=8,in_port=LOCAL,actions=9", "priority=1,actions=normal")
    one.host.run("bash", "-c", "for n in 1 2 3 4 5; do echo $n >/dev/udp/10.1.0.2/$((7000 + n)); done")
    trace = one.switch.ours.appctl("ofproto/trace", BRIDGE, "in_port=1,udp,nw_src=10.1.0.1,nw_dst=10.1.0.2")
    assert "over max translation depth" in trace and "Datapath actions: drop" in trace, trace
    one.host.ping(two.host.address)


def test_two_switches_in_a_loop(making):
    """Two tunnels between two bridges that flood: what enters goes round until the loop is cut."""
    one, two = join(making)
    add_tunnels("vxlan", 4, ["key=7"], one, two)
    one.host.ping(two.host.address)
    for here, there in ((one, two), (two, one)):
        here.tunnel("geneve", f"remote_ip={outer(there.number)}", "key=9", name="t9", ofport=9)
    one.host.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "10.1.0.77", check=False)
    one.switch.vsctl("del-port", BRIDGE, "t9")
    one.host.ping(two.host.address)
