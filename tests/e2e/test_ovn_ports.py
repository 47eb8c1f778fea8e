"""Kinds of logical ports beside plain ones: virtual ports, containers, local and external ports, ports that migrate."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether

from dhcp import bootp, dhcp_type, give_options
from logical import BROADCAST, add_switches, arrives, frames, ip, mac, packet, send
from physical import add_physical_port, map_networks
from waiting import until


def to_address(port, address, to_mac):
    return Ether(src=mac(port), dst=to_mac) / IP(src=ip(port), dst=address) / UDP(sport=8, dport=9)


def test_virtual_ports(compared):
    """A virtual port is bound to the parent that announces its address, and moves to another one that does."""

    def scenario(each):
        add_switches(each)
        words = ["lsp-add", "s1", "vip", "--", "lsp-set-type", "vip", "virtual", "--", "lsp-set-addresses", "vip", "00:00:00:00:01:f0 10.0.1.50"]
        each.nbctl("--wait=hv", *words, "--", "lsp-set-options", "vip", "virtual-ip=10.0.1.50", "virtual-parents=p11,p12")
        for parent, chassis in (("p11", "hv1"), ("p12", "hv2")):
            announced = Ether(src=mac(parent), dst=BROADCAST) / ARP(op=1, hwsrc=mac(parent), psrc="10.0.1.50", pdst="10.0.1.50")

            def is_bound(parent=parent, chassis=chassis, announced=announced):
                # A chassis takes a port from another one only a while after its last move.
                each.receive(parent, announced)
                return each.bindings()["vip"][1] == chassis

            until(is_bound, f"the virtual port at {chassis}", interval_s=0.3)
            each.central.sync()
            send(each, "p22", Ether(src=mac("p22"), dst="00:00:00:00:ff:02") / to_address("p22", "10.0.1.50", BROADCAST)[IP], parent, lambda frame: UDP in frame)
        # A parent that leaves its chassis takes the virtual port with it.
        chassis = each.chassis["hv2"]
        chassis.switch.vsctl("remove", "Interface", chassis.vifs["p12"], "external_ids", "iface-id")
        until(lambda: each.bindings()["vip"][1] is None, "a released virtual port")

    compared(scenario)


def test_containers(compared):
    """Containers behind a host's port have VLAN tags there, and switches of their own."""

    def scenario(each):
        add_switches(each, numbers=(1, 2))
        for port, tag in (("p23", 5), ("p24", 0), ("p13", 7)):
            switch, parent = f"s{port[1]}", "p11"
            each.nbctl("--wait=sb", "lsp-add", switch, port, parent, str(tag), "--", "lsp-set-addresses", port, f"{mac(port)} {ip(port)}")
            until(lambda port=port: each.is_up(port), f"{port} up")
        each.central.sync()
        tagged = lambda tag: lambda frame: Dot1Q in frame and frame[Dot1Q].vlan == tag
        inside = lambda frame, tag: Ether(src=frame.src, dst=frame.dst) / Dot1Q(vlan=tag) / frame[IP]
        send(each, "p11", inside(packet("p23", "p22"), 5), "p22", lambda frame: UDP in frame and Dot1Q not in frame)
        send(each, "p22", packet("p22", "p23"), "p11", tagged(5))
        # From one container to another one, with the tag that northd has chosen, and to the host itself.
        chosen = int(each.nbctl("get", "Logical_Switch_Port", "p24", "tag"))
        send(each, "p11", inside(packet("p23", "p24"), 5), "p11", tagged(chosen))
        send(each, "p11", inside(packet("p13", "p11"), 7), "p11", lambda frame: UDP in frame and Dot1Q not in frame)
        send(each, "p11", packet("p11", "p13"), "p11", tagged(7))
        # An unknown tag is nobody's.
        each.receive("p11", inside(packet("p23", "p22"), 99))
        send(each, "p11", packet("p11", "p22"), "p22", lambda frame: frame[IP].src == ip("p11"))
        assert len(frames(each, "p22")) == 2

    compared(scenario)


def test_localports(compared):
    """A localport is on each chassis, answers there alone, and its packets do not leave the chassis."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        words = ["lsp-add", "s1", "p19", "--", "lsp-set-type", "p19", "localport", "--", "lsp-set-addresses", "p19", f"{mac('p19')} {ip('p19')}"]
        each.nbctl("--wait=hv", *words)
        for chassis in each.chassis.values():
            chassis.add_vif("p19")
        each.central.sync()
        for number in (1, 2):
            chassis, port = each.chassis[f"hv{number}"], f"p1{number}"
            until(lambda chassis=chassis: any("in_port=102" in flow for flow in chassis.flows()), "flows of the localport")
            each.receive(port, packet(port, "p19"))
            until(lambda chassis=chassis: chassis.sent("p19"), f"a packet at the localport of {chassis.name}")
        each.chassis["hv1"].receive("p19", packet("p19", "p12"))
        each.chassis["hv1"].receive("p19", packet("p19", "p11"))
        arrives(each, "p11")
        send(each, "p11", packet("p11", "p12"), "p12")

    compared(scenario)


def add_migrating(each, *options):
    """p19 is on both chassis, first of all on hv1."""
    each.nbctl("--wait=sb", "lsp-add", "s1", "p19", "--", "lsp-set-addresses", "p19", f"{mac('p19')} {ip('p19')}")
    each.nbctl("--wait=hv", "lsp-set-options", "p19", "requested-chassis=hv1,hv2", *options)
    for chassis in ("hv2", "hv1"):
        each.chassis[chassis].add_vif("p19")
    each.settle()
    bound = lambda: each.sbctl("--bare", "--columns=additional_chassis", "find", "Port_Binding", "logical_port=p19")
    until(bound, "a second chassis")
    each.central.sync()


def test_live_migration(compared):
    """Packets for a port with two chassis reach both; then only the one that it has moved to."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_migrating(each)
        places = [each.chassis[name] for name in ("hv1", "hv2")]
        for count, source in enumerate(("p11", "p12"), 1):
            each.receive(source, packet(source, "p19"))
            for place in places:
                until(lambda place=place, count=count: len(place.sent("p19")) == count, f"packet {count} at {place.name}")
        for place in places:
            place.receive("p19", packet("p19", "p12"))
        arrives(each, "p12", 2)
        each.nbctl("--wait=hv", "lsp-set-options", "p19", "requested-chassis=hv2")
        until(lambda: each.bindings()["p19"][1] == "hv2", "p19 at hv2")
        each.central.sync()
        each.receive("p11", packet("p11", "p19"))
        until(lambda: len(places[1].sent("p19")) == 3, "a packet at the new place")

    compared(scenario)


def activation(strategy):
    match strategy:
        case "rarp":
            return Ether(src=mac("p19"), dst=BROADCAST, type=0x8035) / ARP(op=3, hwsrc=mac("p19"), hwdst=mac("p19"), psrc="0.0.0.0", pdst="0.0.0.0")
        case "garp":
            return Ether(src=mac("p19"), dst=BROADCAST) / ARP(op=1, hwsrc=mac("p19"), psrc=ip("p19"), pdst=ip("p19"))


@pytest.mark.parametrize("strategy", ["rarp", "garp"])
def test_activation_of_a_migrated_port(compared, strategy):
    """The second place of a port is silent until it announces itself."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_migrating(each, f"activation-strategy={strategy}")
        old, new = (each.chassis[name] for name in ("hv1", "hv2"))

        def receive_anew(frame):
            """The new place receives a frame, after a kill only when the switch has its flows again."""
            each.central.await_chassis()
            each.chaos.packet()
            new.receive("p19", frame)

        receive_anew(packet("p19", "p12"))
        each.receive("p12", packet("p12", "p19"))
        until(lambda: old.sent("p19"), "a packet at the old place")
        assert not new.sent("p19") and not each.sent("p12")
        receive_anew(activation(strategy))
        column = ["--bare", "--columns=options", "find", "Port_Binding", "logical_port=p19"]
        until(lambda: "additional-chassis-activated" in each.sbctl(*column), "an activated place")
        each.central.sync()
        until(lambda: not any("priority=1000" in flow and "in_port=" in flow and "drop" in flow for flow in new.flows()), "no blocking flows")
        each.receive("p12", packet("p12", "p19"))
        until(lambda: new.sent("p19"), "a packet at the new place")
        receive_anew(packet("p19", "p12"))
        until(lambda: any(UDP in frame for frame in frames(each, "p12")), "a packet of the new place")
        each.nbctl("--wait=hv", "lsp-set-options", "p19", "requested-chassis=hv2")
        until(lambda: each.bindings()["p19"][1] == "hv2", "p19 at hv2")

    compared(scenario)


def test_external_ports(compared):
    """The chassis of an external port answers DHCP requests that come over the physical network."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        map_networks(each)
        add_physical_port(each, "s1", tag=20)
        each.add_external("p18", 20)
        words = ["lsp-add", "s1", "p18", "--", "lsp-set-type", "p18", "external", "--", "lsp-set-addresses", "p18", f"{mac('p18')} {ip('p18')}"]
        each.nbctl("--wait=sb", *words)
        each.nbctl("ha-chassis-group-add", "group", "--", "ha-chassis-group-add-chassis", "group", "hv2", "10")
        group = each.nbctl("--bare", "--columns=_uuid", "list", "HA_Chassis_Group")
        each.nbctl("--wait=hv", "set", "Logical_Switch_Port", "p18", f"ha_chassis_group={group}")
        options = {"server_id": "10.0.1.254", "server_mac": '"00:00:00:00:ff:01"', "lease_time": 3600, "router": "10.0.1.254"}
        give_options(each, 1, 4, "10.0.1.0/24", **options)
        each.nbctl("--wait=hv", "lsp-set-dhcpv4-options", "p18", each.nbctl("--bare", "--columns=_uuid", "list", "DHCP_Options"))
        until(lambda: each.bindings()["p18"][1] == "hv2", "the external port at hv2")
        each.central.sync()
        request = bootp("p18", ("message-type", "discover"))
        answer = send(each, "p18", request, "p18", lambda frame: UDP in frame and frame[UDP].sport == 67)
        assert dhcp_type(answer) == 2

    compared(scenario)


def test_disabled_ports(compared):
    """A disabled port neither sends nor receives; a deleted and a renamed device unbind their port."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        each.nbctl("--wait=hv", "lsp-set-enabled", "p12", "disabled")
        each.receive("p12", packet("p12", "p11"))
        each.receive("p11", packet("p11", "p12"))
        each.nbctl("--wait=hv", "lsp-set-enabled", "p12", "enabled")
        send(each, "p11", packet("p11", "p12"), "p12")
        send(each, "p12", packet("p12", "p11"), "p11")
        chassis = each.chassis["hv2"]
        chassis.switch.vsctl("set", "Interface", chassis.vifs["p12"], "external_ids:iface-id=other")
        until(lambda: each.bindings()["p12"][1] is None, "an unbound port")
        chassis.switch.vsctl("set", "Interface", chassis.vifs["p12"], "external_ids:iface-id=p12")
        each.settle()
        send(each, "p11", packet("p11", "p12"), "p12")
        each.nbctl("--wait=hv", "lsp-set-options", "p12", "iface-id-ver=2")
        until(lambda: each.bindings()["p12"][1] is None, "an unbound port")
        chassis.switch.vsctl("set", "Interface", chassis.vifs["p12"], "external_ids:iface-id-ver=2")
        each.settle()
        send(each, "p11", packet("p11", "p12"), "p12")

    compared(scenario)
