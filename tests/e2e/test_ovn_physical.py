"""Logical networks that reach physical ones: localnet ports with VLANs, L2 gateways, L3 gateways."""

import pcap
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether

from logical import BROADCAST, add_outside, add_switches, frames, introduce, ip, join, mac, packet, routed, send
from physical import add_physical_port, map_networks, vary_own_bindings
from shown import hexes
from waiting import until

OUTSIDE = "00:00:00:00:0e:01"


def to_outside(port, destination=OUTSIDE, address="10.0.1.101"):
    return Ether(src=mac(port), dst=destination) / IP(src=ip(port), dst=address) / UDP(sport=5, dport=6)


def from_outside(port, source=OUTSIDE):
    return Ether(src=source, dst=mac(port)) / IP(src="10.0.1.101", dst=ip(port)) / UDP(sport=6, dport=5)


def is_ip(frame):
    return IP in frame


@pytest.mark.parametrize("ethtype", ["802.1q", "802.1ad"])
def test_localnet_with_a_vlan(compared, ethtype):
    """Hosts on several chassis, and a machine in their VLAN of the physical network, are one broadcast domain."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        map_networks(each)
        add_physical_port(each, "s1", tag=20, **({} if ethtype == "802.1q" else {"ethtype": ethtype}))
        each.add_external("e1", 20)
        send(each, "p11", to_outside("p11"), "e1", is_ip)
        if ethtype == "802.1q":
            send(each, "e1", from_outside("p12"), "p12", is_ip)
            request = Ether(src=OUTSIDE, dst=BROADCAST) / ARP(hwsrc=OUTSIDE, psrc="10.0.1.101", pdst=ip("p11"))
            # The host itself answers.
            send(each, "e1", request, "p11", lambda frame: ARP in frame)
            send(each, "p12", Ether(src=mac("p12"), dst=BROADCAST) / IP(src=ip("p12"), dst="10.0.1.255") / UDP(), "e1", is_ip)
        # The physical network carries packets between the chassis, too.
        send(each, "p11", packet("p11", "p12"), "p12")
        sent = pcap.packets(each.chassis["hv1"].file("uplink", "tx"))
        each.remarks["frames with a tag"] = hexes(frame for frame in sent if frame[12:14] in (b"\x81\x00", b"\x88\xa8"))

    compared(scenario)


def test_vlans_pass_through(compared):
    """With vlan-passthru, hosts exchange tagged frames; without it, these are dropped."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        map_networks(each)
        add_physical_port(each, "s1")
        tagged = packet("p11", "p12")
        tagged = Ether(src=tagged.src, dst=tagged.dst) / Dot1Q(vlan=33, prio=3) / tagged[IP]
        each.receive("p11", tagged)
        send(each, "p11", packet("p11", "p12"), "p12")
        each.nbctl("--wait=hv", "set", "Logical_Switch", "s1", "other_config:vlan-passthru=true")
        send(each, "p11", tagged, "p12", lambda frame: Dot1Q in frame and frame[Dot1Q].vlan == 33)
        assert len([frame for frame in frames(each, "p12") if ARP not in frame]) == 2

    compared(scenario)


def test_localnet_ports_learn(compared):
    """A localnet port with localnet_learn_fdb teaches the FDB; a frame for a learned address goes there alone."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        each.nbctl("--wait=sb", "lsp-set-addresses", "p12", "unknown")
        map_networks(each)
        add_physical_port(each, "s1", tag=20, localnet_learn_fdb="true")
        each.add_external("e1", 20)
        send(each, "p11", to_outside("p11"), "e1", is_ip)
        send(each, "e1", from_outside("p11"), "p11", is_ip)
        until(lambda: (OUTSIDE, "ln1") in each.learned(), lambda: f"{OUTSIDE} learned, only {each.learned()}")
        each.central.sync()
        send(each, "p11", to_outside("p11"), "e1", is_ip)
        send(each, "p11", packet("p11", "p12"), "p12", lambda frame: frame.dst == mac("p12"))

    compared(scenario)


def test_routing_between_vlans(compared):
    """Distributed routing between VLANs of a physical network shows each chassis's own MAC address there."""

    def scenario(each):
        add_switches(each)
        map_networks(each, ovn_chassis_mac_mappings="phys:aa:bb:cc:dd:ee:0{}")
        for number in (1, 2):
            add_physical_port(each, f"s{number}", f"ln{number}", tag=20 + number)
            each.add_external(f"e{number}", 20 + number)
        send(each, "p11", packet("p11", "p22"), "p22", is_ip)
        send(each, "p22", packet("p22", "p11"), "p11", is_ip)
        announced = Ether(src=OUTSIDE, dst=BROADCAST) / ARP(op=2, hwsrc=OUTSIDE, psrc="10.0.2.101", pdst="10.0.2.101")
        each.receive("e2", announced)
        until(lambda: any(row[1] == "10.0.2.101" for row in each.mac_bindings()), "a binding")
        each.central.sync()
        assert send(each, "p11", routed("p11", "10.0.2.101"), "e2", is_ip).src == "aa:bb:cc:dd:ee:01"

    compared(scenario)


def test_a_redirected_router_port(compared):
    """With reside-on-redirect-chassis, packets of VLANs to other networks pass the gateway chassis."""

    def scenario(each):
        add_switches(each)
        for number in (1, 2):
            add_physical_port(each, f"s{number}", f"ln{number}", tag=20 + number)
        add_outside(each)
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", "hv2")
        for number in (1, 2):
            each.nbctl("--wait=hv", "set", "Logical_Router_Port", f"r0-s{number}", "options:reside-on-redirect-chassis=true")
        vary_own_bindings(each, "r0-s1", "r0-s2", "r0-outside")
        introduce(each, "e1")
        send(each, "p11", routed("p11", ip("e1")), "e1", is_ip)
        send(each, "p11", packet("p11", "p21"), "p21", is_ip)

    compared(scenario)


@pytest.mark.parametrize("kind", ["overlay", "bridged"])
def test_redirection_to_the_gateway(compared, kind):
    """Packets for the outside reach the gateway chassis by tunnels, or by the VLAN of their own network."""

    def scenario(each):
        add_switches(each)
        add_outside(each)
        if kind == "bridged":
            map_networks(each, ovn_chassis_mac_mappings="phys:aa:bb:cc:dd:ee:0{}")
            add_physical_port(each, "s1", "ln1", tag=21)
            each.nbctl("set", "Logical_Router_Port", "r0-outside", "options:redirect-type=bridged")
        each.nbctl("--wait=hv", "lrp-set-gateway-chassis", "r0-outside", "hv2")
        introduce(each, "e1")
        send(each, "p11", routed("p11", ip("e1")), "e1", is_ip)

    compared(scenario)


def test_l2_gateway(compared):
    """An L2 gateway on one chassis joins a logical switch and a VLAN, until it moves to another chassis."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        map_networks(each)
        options = {"l2gateway-chassis": "hv2"}
        add_physical_port(each, "s1", "l2", "l2gateway", tag=30, **options)
        until(lambda: each.bindings()["l2"][1] == "hv2", "a bound gateway")
        each.add_external("e1", 30)
        send(each, "p11", to_outside("p11"), "e1", is_ip)
        send(each, "e1", from_outside("p11"), "p11", is_ip)
        each.nbctl("--wait=hv", "set", "Logical_Switch_Port", "l2", "options:l2gateway-chassis=hv1")
        until(lambda: each.bindings()["l2"][1] == "hv1", "a moved gateway")
        each.central.sync()
        send(each, "p12", to_outside("p12"), "e1", is_ip)
        send(each, "e1", from_outside("p12"), "p12", is_ip)

    compared(scenario)


def test_l3_gateway(compared):
    """A gateway router on one chassis forwards between the logical network and machines outside, until it moves."""

    def scenario(each):
        add_switches(each)
        each.nbctl("lr-add", "g0")
        each.nbctl("set", "Logical_Router", "g0", "options:chassis=hv2")
        each.nbctl("--wait=sb", "ls-add", "transit")
        join(each, "r0", "transit", "00:00:00:00:ff:a1", "100.64.0.1/24")
        join(each, "g0", "transit", "00:00:00:00:ff:a2", "100.64.0.2/24")
        add_outside(each, router="g0")
        each.nbctl("lr-route-add", "r0", "0.0.0.0/0", "100.64.0.2", "--", "lr-route-add", "g0", "10.0.0.0/16", "100.64.0.1")
        each.central.sync()
        introduce(each, "e1")
        for chassis in ("hv2", "hv1"):
            each.nbctl("--wait=hv", "set", "Logical_Router", "g0", f"options:chassis={chassis}")
            until(lambda chassis=chassis: each.bindings()["g0-outside"][1] == chassis, f"the gateway on {chassis}")
            each.central.sync()
            assert send(each, "p11", routed("p11", ip("e1")), "e1", is_ip)[IP].ttl == 62
            back = Ether(src=mac("e1"), dst="00:00:00:00:ff:0e") / IP(src=ip("e1"), dst=ip("p22")) / UDP(sport=1, dport=2)
            send(each, "e1", back, "p22", is_ip)

    compared(scenario)
