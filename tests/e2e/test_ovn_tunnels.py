"""Tunnels between OVN's chassis: encapsulations, several addresses, tunnels by flows, and packets that are too large."""

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6PacketTooBig, IPv6
from scapy.layers.l2 import ARP, Ether

import pcap
from logical import BROADCAST, add_outside, add_switches, introduce, ip, ip6, mac, packet, reply, routed, send
from physical import local_rows
from waiting import until


def tunnels(each):
    """The tunnels of each chassis."""
    rows = local_rows(each, "Interface", "type", "options")
    return {name: [row for row in found if '"geneve"' in row or '"vxlan"' in row] for name, found in rows.items()}


def underlay_ports(chassis):
    """The UDP ports that a chassis has sent to in the underlay."""
    frames = [Ether(frame) for frame in pcap.packets(chassis.file("uplink", "tx"))]
    return sorted({frame[UDP].dport for frame in frames if UDP in frame})


def talk(each):
    """Unicast and broadcast between the chassis, by switches and the router."""
    send(each, "p11", packet("p11", "p12"), "p12")
    send(each, "p12", packet("p12", "p11"), "p11")
    send(each, "p11", packet("p11", "p22"), "p22")
    request = Ether(src=mac("p11"), dst=BROADCAST) / ARP(hwsrc=mac("p11"), psrc=ip("p11"), pdst="10.0.1.99")
    send(each, "p11", request, "p12", lambda frame: ARP in frame)


@pytest.mark.parametrize(("kind", "port"), [("geneve", 6081), ("vxlan", 4789), ("geneve,vxlan", 6081)])
def test_encapsulations(compared, kind, port):
    """Chassis exchange packets in the tunnels that both know, best in Geneve's."""

    def scenario(each):
        add_switches(each)
        talk(each)
        assert underlay_ports(each.chassis["hv1"]) == [port]
        each.remarks["tunnels"] = tunnels(each)

    compared(scenario, encapsulation=kind)


@pytest.mark.parametrize("settings", [{"ovn_encap_csum": "false"}, {"ovn_encap_tos": "inherit"}, {"ovn_encap_df_default": "false"}])
def test_options_of_tunnels(compared, settings):
    """Checksums, TOS and the fragmentation flag of the outer headers are those that the chassis ask for."""

    def scenario(each):
        if "ovn_encap_df_default" in settings:
            for chassis in each.chassis.values():
                chassis.switch.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-encap-df_default=false")
        add_switches(each)
        talk(each)
        send(each, "p11", packet("p11", "p12", tos=0xB8), "p12", lambda frame: IP in frame and frame[IP].tos == 0xB8)
        outer = [Ether(frame)[IP] for frame in pcap.packets(each.chassis["hv1"].file("uplink", "tx")) if frame[12:14] == b"\x08\x00"]
        each.remarks["outer headers"] = sorted({f"{header.tos} {header.flags} {header[UDP].chksum != 0}" for header in outer})
        each.remarks["tunnels"] = tunnels(each)

    compared(scenario, **settings)


def test_several_encapsulation_addresses(compared):
    """A port's packets use the tunnel addresses that its interface names, in both directions."""

    def scenario(each):
        for number, chassis in enumerate(each.chassis.values(), 1):
            one = chassis.switch
            chassis.configure("netdev-dummy/ip4addr", "br-phys", f"192.168.1.{number}/24")
            chassis.configure("ovs/route/add", f"192.168.1.{number}/24", "br-phys")
            chassis.configure("tnl/neigh/set", "br-phys", f"192.168.1.{3 - number}", f"aa:bb:cc:00:00:0{3 - number}")
            addresses = f"192.168.0.{number},192.168.1.{number}"
            one.vsctl("set", "Open_vSwitch", ".", f'external_ids:ovn-encap-ip="{addresses}"', f"external_ids:ovn-encap-ip-default=192.168.0.{number}")
        add_switches(each)
        for number, chassis in enumerate(each.chassis.values(), 1):
            for port in (f"p1{number}", f"p2{number}"):
                net = int(port[1]) - 1
                chassis.switch.vsctl("set", "Interface", chassis.vifs[port], f"external_ids:encap-ip=192.168.{net}.{number}")
        encapsulated = lambda: [row[0] for row in each.rows("Port_Binding", "encap", "logical_port") if row[1][0] == "p" and row[0] != '["set", []]']
        until(lambda: len(encapsulated()) == 4, lambda: f"encapsulations of the ports, not {encapsulated()}")
        each.central.sync()
        for source, target in (("p11", "p12"), ("p21", "p22"), ("p12", "p21"), ("p11", "p22")):
            send(each, source, packet(source, target), target)
        for name, chassis in each.chassis.items():
            outer = [Ether(frame)[IP] for frame in pcap.packets(chassis.file("uplink", "tx")) if frame[12:14] == b"\x08\x00"]
            # OVN chooses the tunnel for multicast groups, and numbers them in registers, in the order of a hash table.
            chosen = ("in_port=<geneve", "reg15=0x8")
            each.remarks[f"flows of {name}"] = [flow for flow in chassis.flows() if not any(word in flow for word in chosen)]
            each.remarks[f"addresses of {name}"] = sorted({f"{header.src} {header.dst}" for header in outer})
        each.remarks["tunnels"] = tunnels(each)

    compared(scenario)


def test_tunnels_by_flows(compared):
    """With flow-based tunnels, one port serves all chassis, and flows set the addresses."""

    def scenario(each):
        add_switches(each, numbers=(1, 2), hosts=(1, 2, 3))
        talk(each)
        send(each, "p13", packet("p13", "p12"), "p12", lambda frame: IP in frame and frame[IP].src == ip("p13"))
        send(each, "p21", packet("p21", "p13"), "p13", lambda frame: IP in frame and frame[IP].src == ip("p21"))
        each.remarks["tunnels"] = tunnels(each)

    compared(scenario, chassis=3, ovn_enable_flow_based_tunnels="true")


def test_transport_zones(compared):
    """Chassis without a common transport zone have no tunnel."""

    def scenario(each):
        add_switches(each, numbers=(1,), hosts=(1, 2, 3))
        for number, zones in enumerate(("a", "a,b", "b"), 1):
            each.chassis[f"hv{number}"].switch.vsctl("set", "Open_vSwitch", ".", f'external_ids:ovn-transport-zones="{zones}"')
        until(lambda: len(tunnels(each)["hv1"]) == 1 and len(tunnels(each)["hv3"]) == 1, lambda: f"one tunnel each, not {tunnels(each)}")
        each.central.sync()
        send(each, "p11", packet("p11", "p12"), "p12")
        send(each, "p13", packet("p13", "p12"), "p12", lambda frame: IP in frame and frame[IP].src == ip("p13"))
        each.remarks["tunnels"] = tunnels(each)

    compared(scenario, chassis=3)


def test_packets_larger_than_the_mtu_of_a_gateway(compared):
    """The router answers packets over gateway_mtu by ICMP, at the host's own chassis, and forwards others."""

    def scenario(each):
        add_switches(each, ipv6=True)
        add_outside(each, ipv6=True)
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", "hv2", "--", "set", "Logical_Router_Port", "r0-outside", "options:gateway_mtu=300")
        each.central.sync()
        introduce(each, "e1")
        large = UDP(sport=1, dport=2) / bytes(400)
        refused = send(each, "p11", routed("p11", ip("e1"), large, flags="DF"), "p11", lambda frame: ICMP in frame)
        assert (refused[ICMP].type, refused[ICMP].code, refused[ICMP].nexthopmtu) == (3, 4, 300)
        refused = send(each, "p11", routed("p11", ip6("e1"), large), "p11", lambda frame: ICMPv6PacketTooBig in frame)
        assert refused[ICMPv6PacketTooBig].mtu == 300
        fits = UDP(sport=1, dport=2) / bytes(200)
        arrived = send(each, "p11", routed("p11", ip("e1"), fits, flags="DF"), "e1", lambda frame: UDP in frame)
        # From outside as well.
        inwards = reply(arrived, UDP(sport=2, dport=1) / bytes(400))
        inwards[IP].flags = "DF"
        send(each, "e1", inwards, "e1", lambda frame: ICMP in frame)
        each.nbctl("--wait=hv", "set", "Logical_Router_Port", "r0-outside", 'options:gateway_mtu_bypass="udp.dst == 2"')
        send(each, "p11", routed("p11", ip("e1"), large, flags="DF"), "e1", lambda frame: UDP in frame and len(frame) > 400)

    compared(scenario)


def test_large_packets_between_switches(compared):
    """A router port with gateway_mtu on a gateway router refuses large packets in both directions."""

    def scenario(each):
        add_switches(each, ipv6=True)
        each.nbctl("--wait=hv", "set", "Logical_Router", "r0", "options:chassis=hv1")
        each.nbctl("--wait=hv", "set", "Logical_Router_Port", "r0-s2", "options:gateway_mtu=500")
        large = UDP(sport=1, dport=2) / bytes(600)
        refused = send(each, "p11", packet("p11", "p22", large, flags="DF"), "p11", lambda frame: ICMP in frame)
        assert refused[ICMP].nexthopmtu == 500
        refused = send(each, "p12", routed("p12", ip6("p22"), large), "p12", lambda frame: ICMPv6PacketTooBig in frame)
        assert refused[IPv6].src == "fd00:1::fe"
        send(each, "p11", packet("p11", "p22", UDP(sport=1, dport=2) / bytes(100)), "p22")

    compared(scenario)
