"""The network below OVN's tunnels: chassis with IPv6 addresses, and ICMP errors about packets that are too large for a tunnel."""

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6PacketTooBig, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

import pcap
from logical import BROADCAST, add_switches, frames, ip, ip6, mac, packet, routed, send
from physical import local_rows
from waiting import until

GENEVE = 6081
# What OVN's chassis add to a packet with Geneve: an Ethernet header, UDP, Geneve with one option of 8 bytes, and outer IPv4.
OVERHEAD = 14 + 8 + 8 + 8 + 20


def outer6(number):
    """The IPv6 address of a chassis in the underlay."""
    return f"fd00:aa::{number}"


def tunnels(each):
    """The tunnels of each chassis."""
    rows = local_rows(each, "Interface", "type", "options")
    return {name: [row for row in found if '"geneve"' in row or '"vxlan"' in row] for name, found in rows.items()}


def underlay(chassis):
    """The outer packets that a chassis has sent."""
    found = [Ether(frame) for frame in pcap.packets(chassis.file("uplink", "tx"))]
    return [frame for frame in found if UDP in frame and frame[UDP].dport in (GENEVE, 4789)]


def move_to_ipv6(each):
    """Gives all chassis IPv6 addresses, to which their tunnels then lead."""
    # Which ports a controller finds without a tunnel meanwhile depends on the order of its changes.
    each.ends_daemons = True
    everyone = list(each.chassis.values())
    for chassis in everyone:
        one = chassis.switch
        chassis.configure("netdev-dummy/ip6addr", "br-phys", f"{outer6(chassis.number)}/64")
        chassis.configure("ovs/route/add", f"{outer6(chassis.number)}/64", "br-phys")
        for other in everyone:
            if other is not chassis:
                chassis.configure("tnl/neigh/set", "br-phys", outer6(other.number), other.mac)
        one.vsctl("set", "Open_vSwitch", ".", f'external_ids:ovn-encap-ip="{outer6(chassis.number)}"')
    known = lambda: sorted(row[0] for row in each.rows("Encap", "ip"))
    expected = [outer6(chassis.number) for chassis in everyone]
    until(lambda: known() == expected, lambda: f"encapsulations {expected}, not {known()}")
    leads = lambda: all(sum("fd00:aa::" in row for row in rows) == len(everyone) - 1 for rows in tunnels(each).values())
    until(leads, lambda: f"tunnels over IPv6, not {tunnels(each)}")
    each.central.sync()


def talk(each):
    """Unicast and broadcast between the chassis, by switches and the router."""
    send(each, "p11", packet("p11", "p12"), "p12")
    send(each, "p12", packet("p12", "p11"), "p11")
    send(each, "p11", packet("p11", "p22"), "p22")
    send(each, "p11", routed("p11", ip6("p22")), "p22", lambda frame: IPv6 in frame and frame[IPv6].src == ip6("p11"))
    request = Ether(src=mac("p11"), dst=BROADCAST) / ARP(hwsrc=mac("p11"), psrc=ip("p11"), pdst="10.0.1.99")
    send(each, "p11", request, "p12", lambda frame: ARP in frame)


@pytest.mark.parametrize("kind", ["geneve", "vxlan"])
def test_tunnels_over_ipv6(compared, kind):
    """All packets between chassis are in IPv6, with a checksum of UDP."""

    def scenario(each):
        add_switches(each, ipv6=True)
        move_to_ipv6(each)
        before = {name: len(underlay(chassis)) for name, chassis in each.chassis.items()}
        talk(each)
        for name, chassis in each.chassis.items():
            sent = underlay(chassis)[before[name] :]
            assert sent and all(IPv6 in frame for frame in sent), [frame.summary() for frame in sent]
            headers = {f"{f[IPv6].src} {f[IPv6].dst} {f[IPv6].tc} {f[IPv6].hlim} {f[UDP].dport} {f[UDP].chksum != 0}" for f in sent}
            each.remarks[f"outer headers of {name}"] = sorted(headers)
        each.remarks["tunnels"] = tunnels(each)

    compared(scenario, encapsulation=kind)


def test_a_chassis_returns_to_ipv4(compared):
    """Tunnels follow the address of a chassis from IPv4 to IPv6 and back."""

    def scenario(each):
        add_switches(each, numbers=(1,), ipv6=True)
        send(each, "p11", packet("p11", "p12"), "p12")
        move_to_ipv6(each)
        send(each, "p11", packet("p11", "p12"), "p12")
        for chassis in each.chassis.values():
            chassis.switch.vsctl("set", "Open_vSwitch", ".", f"external_ids:ovn-encap-ip={chassis.address}")
        until(lambda: not any("fd00" in row for rows in tunnels(each).values() for row in rows), lambda: f"tunnels: {tunnels(each)}")
        each.central.sync()
        send(each, "p11", packet("p11", "p12"), "p12")
        assert IP in underlay(each.chassis["hv1"])[-1]
        each.remarks["tunnels"] = tunnels(each)

    compared(scenario)


def returned(chassis, other, inner):
    """The last tunnelled packet of a chassis sent back by another one, with the same VNI and options, and `inner` in place of its
    inner packet. So the kernel's tunnels report a packet that was too large: as if it came from the tunnel."""
    last = underlay(chassis)[-1]
    payload = bytes(last[UDP].payload)
    header = payload[: 8 + 4 * (payload[0] & 0x3F)]
    ends = Ether(src=other.mac, dst=chassis.mac) / IP(src=other.address, dst=chassis.address, id=0, flags="DF")
    return ends / UDP(sport=50000, dport=GENEVE, chksum=0) / Raw(header + bytes(inner))


def packet6(source, destination, payload):
    """An IPv6 packet from one port to another, by the router if their switches differ."""
    if source[1] != destination[1]:
        return routed(source, ip6(destination), payload)
    return Ether(src=mac(source), dst=mac(destination)) / IPv6(src=ip6(source), dst=ip6(destination)) / payload


def too_big(frame, mtu):
    """The answer to a frame that is too large, from its destination."""
    ether = Ether(src=frame.dst, dst=frame.src)
    if IPv6 in frame:
        return ether / IPv6(src=frame[IPv6].dst, dst=frame[IPv6].src) / ICMPv6PacketTooBig(mtu=mtu) / bytes(frame[IPv6])[:1232]
    return ether / IP(src=frame[IP].dst, dst=frame[IP].src, id=0) / ICMP(type=3, code=4, nexthopmtu=mtu) / bytes(frame[IP])[:548]


@pytest.mark.parametrize("target", ["p12", "p22"])
def test_errors_about_large_packets_reach_the_host(compared, target):
    """OVN's flows lead an error that comes out of a tunnel back to the host whose packet was too large, also behind a router."""

    def scenario(each):
        add_switches(each, ipv6=True)
        hv1, hv2 = each.chassis["hv1"], each.chassis["hv2"]
        large = UDP(sport=1, dport=2) / bytes(1300)
        for sent in (packet("p11", target, large, flags="DF"), packet6("p11", target, large)):
            arrived = send(each, "p11", sent, target, lambda frame, is6=IPv6 in sent: UDP in frame and (IPv6 in frame) == is6)
            error = returned(hv1, hv2, too_big(arrived, 1280))
            # What a router has done to the packet, it does not undo in the error.
            before = len(frames(each, "p11"))
            hv1.switch.appctl("netdev-dummy/receive", "uplink", bytes(error).hex())
            until(lambda before=before: len(frames(each, "p11")) > before, "the error at p11")
            each.remarks[f"error about {sent.summary()}"] = bytes(frames(each, "p11")[-1]).hex()

    compared(scenario)


def test_errors_of_routers_in_the_underlay(compared):
    """What a router of the underlay answers to outer packets reaches no host: only the tunnel's end has an address there."""

    def scenario(each):
        add_switches(each, ipv6=True)
        hv1 = each.chassis["hv1"]
        send(each, "p11", packet("p11", "p12"), "p12")
        outer = bytes(underlay(hv1)[-1][IP])
        ends = Ether(src="02:00:00:00:00:99", dst=hv1.mac) / IP(src="192.168.0.99", dst=hv1.address)
        for kind, code in ((3, 4), (3, 1), (11, 0)):
            error = ends / ICMP(type=kind, code=code, nexthopmtu=1000 if code == 4 else 0) / outer
            hv1.switch.appctl("netdev-dummy/receive", "uplink", bytes(error).hex())
        # Traffic goes on.
        send(each, "p11", packet("p11", "p12"), "p12")
        send(each, "p12", packet("p12", "p11"), "p11")
        assert not any(ICMP in frame for frame in frames(each, "p11"))

    compared(scenario)


@pytest.mark.parametrize("target", ["p12", "p22"])
def test_packets_too_large_for_the_underlay(network, target):
    """The switch answers packets that would be too large with outer headers, and OVN's flows bring the answer to the host. Open vSwitch
    in userspace drops them."""
    each = network()
    each.start()
    add_switches(each, ipv6=True)
    hv1 = each.chassis["hv1"]
    hv1.switch.vsctl("set", "interface", "uplink", "mtu_request=1400")
    until(lambda: hv1.switch.vsctl("get", "interface", "uplink", "mtu") == "1400", "the MTU of the uplink")
    fits = UDP(sport=1, dport=2) / bytes(1400 - OVERHEAD - 20 - 8)
    send(each, "p11", packet("p11", target, fits, flags="DF"), target)
    large = UDP(sport=1, dport=2) / bytes(1400 - OVERHEAD - 20 - 8 + 1)
    answer = send(each, "p11", packet("p11", target, large, flags="DF"), "p11", lambda frame: ICMP in frame)
    assert (answer[ICMP].type, answer[ICMP].code, answer[ICMP].nexthopmtu) == (3, 4, 1400 - OVERHEAD)
    assert (answer[IP].src, answer[IP].dst, answer.dst) == (ip(target), ip("p11"), mac("p11"))
    answer = send(each, "p11", packet6("p11", target, large), "p11", lambda frame: ICMPv6PacketTooBig in frame)
    assert answer[ICMPv6PacketTooBig].mtu == 1400 - OVERHEAD
    assert (answer[IPv6].src, answer[IPv6].dst) == (ip6(target), ip6("p11"))
