"""Scapy reads what a site sends to the underlay: addresses, identifiers, options, and the checksums and lengths of all layers."""

import subprocess

import pytest
from scapy.contrib.erspan import ERSPAN_II, ERSPAN_III
from scapy.contrib.geneve import GENEVE
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import GRE, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from overlays import BRIDGE, PORT, UPLINK, Capture, add_tunnels, inner6, join, outer, route_between
from waiting import until

OPTIONS = "{class=0x102,type=0x80,len=4}->tun_metadata0,{class=0x102,type=3,len=8}->tun_metadata5"


def is_vxlan(packet, version):
    header = packet[VXLAN]
    return packet[UDP].dport == 4789 and header.flags == "Instance" and header.vni == 7 and not header.reserved2


def is_group_policy(packet, version):
    header = packet[VXLAN]
    return header.vni == 7 and header.flags == 0x88 and header.gpid == 0x123 and header.gpflags == 8


def is_geneve(packet, version):
    header = packet[GENEVE]
    options = bytes.fromhex("0102 8001 11223344 0102 0302 0000000000005566")
    sent = b"".join(bytes(option) for option in header.options)
    # One option is critical.
    return packet[UDP].dport == 6081 and (header.vni, header.critical, header.oam) == (7, 1, 0) and sent[: len(options)] == options


def is_gre(packet, version):
    header = packet[GRE]
    return (header.key_present, header.key, header.proto, header.seqnum_present, header.chksum_present) == (1, 7, 0x6558, 1, 1)


def is_plain_gre(packet, version):
    header = packet[GRE]
    return (header.key_present, header.proto, header.seqnum_present, header.chksum_present) == (0, 0x6558, 0, 0)


def is_layer3_gre(packet, version):
    return packet[GRE].key == 7 and packet[GRE].proto == {4: 0x0800, 6: 0x86DD}[packet[GRE].payload.version]


def is_erspan1(packet, version):
    return packet[GRE].seqnum_present and packet[ERSPAN_II].session_id == 7 and packet[ERSPAN_II].index == 3


def is_erspan2(packet, version):
    header = packet[ERSPAN_III]
    return packet[GRE].proto == 0x22EB and (header.session_id, header.hw, header.d) == (7, 4, 1)


def is_gtpu(packet, version):
    header = packet[GTP_U_Header]
    inner_len = len(bytes(header.payload))
    return packet[UDP].dport == 2152 and (header.teid, header.gtp_type, header.length) == (7, 255, inner_len)


def is_srv6(packet, version):
    header = packet[IPv6ExtHdrSegmentRouting]
    return header.segleft == 0 and header.addresses == [outer(2, 6)] and header.nh == {4: 4, 6: 41}[header.payload.version]


def is_bareudp(packet, version):
    return packet[UDP].dport == 6635


SETTING = "set_field:0x11223344->tun_metadata0,set_field:0x5566->tun_metadata5,"
GROUP = "set_field:0x123->tun_gbp_id,set_field:8->tun_gbp_flags,"
# Type, options, actions in front of the output, the check of the header, versions, and whether packets have no Ethernet header.
CASES = {
    "vxlan": ("vxlan", ["key=7"], "", is_vxlan, (4, 6), False),
    "vxlan-csum": ("vxlan", ["key=7", "csum=true"], "", is_vxlan, (4, 6), False),
    "vxlan-gbp": ("vxlan", ["key=7", "exts=gbp"], GROUP, is_group_policy, (4, 6), False),
    "geneve": ("geneve", ["key=7"], SETTING, is_geneve, (4, 6), False),
    "geneve-csum": ("geneve", ["key=7", "csum=true"], SETTING, is_geneve, (4, 6), False),
    "gre": ("gre", [], "", is_plain_gre, (4, 6), False),
    "gre-all": ("gre", ["key=7", "csum=true", "seq=true"], "", is_gre, (4, 6), False),
    "gre-l3": ("gre", ["key=7", "packet_type=legacy_l3"], "", is_layer3_gre, (4, 6), True),
    "erspan1": ("erspan", ["key=7", "erspan_ver=1", "erspan_idx=3"], "", is_erspan1, (4, 6), False),
    "erspan2": ("erspan", ["key=7", "erspan_ver=2", "erspan_dir=1", "erspan_hwid=4"], "", is_erspan2, (4, 6), False),
    "gtpu": ("gtpu", ["key=7"], "", is_gtpu, (4, 6), True),
    "srv6": ("srv6", [], "", is_srv6, (6,), True),
    "bareudp": ("bareudp", ["dst_port=6635", "payload_type=ip"], "", is_bareudp, (4, 6), True),
}
PARAMETERS = [pytest.param(name, version, id=f"{name}-{version}") for name, case in CASES.items() for version in case[4]]


def rebuilt(packet):
    """The packet with all lengths and checksums as scapy computes them."""
    packet = packet.copy()
    layer = packet
    while layer:
        for name in ("chksum", "cksum", "len", "plen"):
            is_unset = name == "chksum" and isinstance(layer, UDP) and layer.chksum == 0
            is_same = name == "chksum" and isinstance(layer, TCP) and layer.chksum == 0xFFFF and sums_up_to_zero(layer)
            if name in layer.fields and not (is_unset or is_same or isinstance(layer, VXLAN)):
                layer.delfieldval(name)
        layer = layer.payload
    return packet


def sums_up_to_zero(tcp):
    """Returns true if the checksum of TCP is 0 as scapy computes it. Linux sends 0xffff then, which stands for the same number."""
    ip = tcp.underlayer.copy()
    ip[TCP].delfieldval("chksum")
    return type(ip)(bytes(ip))[TCP].chksum == 0


def dissected(frame, kind):
    """The layers of a frame; scapy knows no port of bareudp."""
    packet = Ether(frame)
    if kind == "bareudp":
        data = bytes(packet[UDP].payload)
        packet[UDP].remove_payload()
        packet = packet / (IP(data) if data[0] >> 4 == 4 else IPv6(data))
    return packet


def innermost(packet):
    """The inner IP header, and the Ethernet header in front if there is one."""
    ip = [layer for layer in (packet.getlayer(number) for number in range(20)) if isinstance(layer, (IP, IPv6))]
    return ip[1], packet.getlayer(Ether, 2)


@pytest.mark.parametrize(("name", "version"), PARAMETERS)
def test_frames(making, tmp_path, name, version):
    kind, options, setting, is_right, _, is_layer3 = CASES[name]
    # Without offloads, checksums and segments are complete on the wire.
    one, two = join(making, offloads=False)
    add_tunnels(kind, version, options, one, two)
    for site in (one, two):
        site.switch.ofctl("add-tlv-map", BRIDGE, OPTIONS)
    if is_layer3:
        route_between(one, two)
    else:
        one.flows(f"in_port=1,actions={setting}2", "in_port=2,actions=1")
        two.flows("in_port=1,actions=2", "in_port=2,actions=1")
    with Capture(two.namespace, UPLINK, tmp_path, "ether src 02:00:00:00:ee:01") as capture:
        server = two.host.start_python("transfer.py", "serve", PORT, stdin=subprocess.PIPE)
        for address in (two.host.address, inner6(2)):
            one.host.ping(address)
            one.host.python("transfer.py", "exchange", address, PORT, 5000, 3, 101, 1200, timeout=60)
        server.communicate(timeout=60)
        packets = lambda: [dissected(frame, kind) for frame in capture.frames() if is_of_tunnel(frame, kind)]
        kinds = lambda: {(type(ip), type(ip.payload).__name__) for ip, _ in map(innermost, packets())}
        wanted = {(ip, layer) for ip in (IP, IPv6) for layer in ("TCP", "UDP")} | {(IP, "ICMP"), (IPv6, "ICMPv6EchoRequest")}
        until(lambda: kinds() >= wanted, lambda: f"packets of all kinds: {kinds()}")
    for packet in packets():
        frame = bytes(packet.original) if kind != "bareudp" else bytes(packet)
        header = packet[IP if version == 4 else IPv6]
        assert (packet.src, packet.dst) == ("02:00:00:00:ee:01", "02:00:00:00:ee:02")
        assert (header.src, header.dst) == (outer(1, version), outer(2, version))
        assert (header.ttl if version == 4 else header.hlim) == 64
        assert version == 6 or header.flags == "DF"
        if UDP in packet and packet.getlayer(UDP).underlayer is header:
            is_summed = "csum=true" in options or version == 6 and kind in ("vxlan", "geneve")
            assert bool(packet[UDP].chksum) == is_summed, packet[UDP].chksum
        assert is_right(packet, version), packet.show(dump=True)
        ip, ethernet = innermost(packet)
        assert (ethernet is None) == is_layer3, packet.show(dump=True)
        if ip.version == 4:
            assert (ip.src, ip.dst) == (one.host.address, two.host.address)
        elif ip.nh in (6, 17):
            assert (ip.src, ip.dst) == (inner6(1), inner6(2))
        if ethernet is not None and not ethernet.dst.startswith("33:33"):
            assert (ethernet.src, ethernet.dst) == (one.host.mac, two.host.mac)
        assert bytes(rebuilt(packet)).hex() == frame.hex(), packet.show(dump=True)


def is_of_tunnel(frame, kind):
    """Whether a frame is one of the tunnel with an IP packet inside."""
    packet = Ether(frame)
    if kind in ("gre", "erspan"):
        found = GRE in packet
    elif kind == "srv6":
        found = IPv6ExtHdrSegmentRouting in packet
    else:
        ports = {"vxlan": 4789, "geneve": 6081, "gtpu": 2152, "bareudp": 6635}
        found = UDP in packet and packet[UDP].dport == ports[kind]
    return found and (kind == "bareudp" or b"ARP" not in packet.summary().encode())


@pytest.mark.parametrize("outer_version", [4, 6])
@pytest.mark.parametrize("inner_version", [4, 6])
def test_the_verifier_finds_errors(outer_version, inner_version):
    """It finds each changed byte that a checksum covers."""
    headers = {4: IP(src="10.0.0.1", dst="10.0.0.2"), 6: IPv6(src="fd00::1", dst="fd00::2")}
    tunnel = UDP(sport=5, dport=4789) / VXLAN(vni=7, flags="Instance") / Ether()
    frame = bytes(Ether() / headers[outer_version] / tunnel / headers[inner_version] / TCP(sport=5, dport=6) / Raw(b"odd"))
    assert bytes(rebuilt(Ether(frame))) == frame
    # No checksum covers the beginning of the outer IPv6 header, and behind another next header scapy sees no layer.
    uncovered = {14, 15, 16, 17, 20, 21} if outer_version == 6 else set()
    for byte in set(range(14, len(frame))) - uncovered:
        spoilt = bytearray(frame)
        spoilt[byte] ^= 0x40
        assert bytes(rebuilt(Ether(bytes(spoilt)))) != bytes(spoilt), byte


@pytest.mark.parametrize("version", [4, 6])
def test_fields_from_the_inner_header(making, tmp_path, version):
    """Fixed and inherited DSCP and TTL, ECN, which is always inherited, and packets that routers may fragment."""
    one, two = join(making, offloads=False)
    add_tunnels("vxlan", version, ["key=7"], one, two)
    one.host.ping(two.host.address)
    seen = []
    cases = [
        (["tos=inherit", "ttl=inherit", "df_default=false"], "0xba", (0xB8 | 2, 33, False)),
        (["tos=0x40", "ttl=9", "df_default=true"], "0xb9", (0x40 | 1, 9, True)),
        ([], "0xb8", (0, 64, True)),
    ]
    for options, tos, expected in cases:
        for name in ("tos", "ttl", "df_default"):
            one.switch.vsctl("remove", "interface", "t0", "options", name)
        one.switch.vsctl("set", "interface", "t0", "options:key=7", *(f"options:{option}" for option in options))
        with Capture(two.namespace, UPLINK, tmp_path, "ether src 02:00:00:00:ee:01") as capture:
            one.host.ping(two.host.address, "-Q", tos, "-t", "33")
            is_it = lambda frame: VXLAN in (packet := Ether(frame)) and packet[VXLAN].haslayer("ICMP")
            header = Ether(capture.some(is_it, "the packet")[-1]).payload
        if version == 4:
            seen.append(((header.tos, header.ttl, header.flags == "DF"), expected))
        else:
            seen.append(((header.tc, header.hlim, True), (*expected[:2], True)))
    assert all(found == expected for found, expected in seen), seen
