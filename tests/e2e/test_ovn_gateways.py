"""Gateways of OVN on both makers' switches: which chassis has one, and how another takes over."""

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP

from logical import add_outside, add_switches, exchange, frames, introduce, ip, join, reply, routed, send
from waiting import until

HARDWARE = "00:00:00:00:ff:0e"
MINE = "172.16.0.254"
# The seconds that BFD may take to notice, and ovn-controller to back off.
SLOW_S = 60


def udp(dport=2000, sport=1000):
    return UDP(sport=sport, dport=dport)


def is_udp(frame):
    return UDP in frame


def gateways(each, *chassis):
    """Hosts on three chassis behind a router whose port to the outside is on the first of `chassis` that lives."""
    add_switches(each, numbers=(1,), hosts=(1, 2, 3))
    add_outside(each)
    for priority, name in enumerate(reversed(chassis), 1):
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", name, priority * 10)
    each.nbctl("lr-nat-add", "r0", "snat", MINE, "10.0.1.0/24")
    each.central.sync()


def owner(each, port="cr-r0-outside"):
    """The chassis that has the gateway."""
    return each.bindings()[port][1]


def isolate(each, chassis, isolated=True):
    """Cuts a chassis off the underlay, or joins it again."""
    for what in ("receive", "forward"):
        each.underlay.ofctl("mod-port", "n1", chassis, f"no-{what}" if isolated else what)


def bfd_states(each, chassis):
    """The BFD states of a chassis's tunnels, by the chassis at their other end."""
    switch = each.chassis[chassis].switch
    names = switch.vsctl("--bare", "--columns=name", "find", "Interface", "type=geneve").split()
    state = lambda name: switch.vsctl("--if-exists", "get", "Interface", name, "bfd_status:state").strip('"')
    return {name.split("-")[1]: state(name) for name in names}


def watched(each, chassis, *others, state="up"):
    until(lambda: all(bfd_states(each, chassis).get(other) == state for other in others), lambda: f"{bfd_states(each, chassis)}", SLOW_S)


def elected(each, chassis):
    """Waits until a chassis has the gateway and the BFD sessions of all others with it are up."""
    until(lambda: owner(each) == chassis, f"{chassis} has the gateway", SLOW_S)
    for other in each.chassis:
        if other != chassis:
            watched(each, other, chassis)
    each.central.sync()


def test_a_gateway_fails_over_and_back(compared):
    """Another chassis takes a gateway over when BFD loses the first one, and gives it back."""

    def scenario(each):
        gateways(each, "hv1", "hv2")
        elected(each, "hv1")
        introduce(each, "e1")
        exchange(each, "p13", routed("p13", ip("e1"), udp()), "e1")
        isolate(each, "hv1")
        watched(each, "hv3", "hv1", state="down")
        until(lambda: owner(each) == "hv2", "hv2 has the gateway", SLOW_S)
        exchange(each, "p13", routed("p13", ip("e1"), udp(2001, 1001)), "e1")
        isolate(each, "hv1", False)
        elected(each, "hv1")
        exchange(each, "p13", routed("p13", ip("e1"), udp(2002, 1002)), "e1")
        forget_own(each)

    compared(scenario, chassis=3)


def test_a_gateway_whose_controller_ends(compared):
    """When ovn-controller of the gateway's chassis ends, it leaves, and the next chassis has the gateway."""

    def scenario(each):
        gateways(each, "hv1", "hv2")
        elected(each, "hv1")
        introduce(each, "e1")
        each.ends_daemons = True
        first = each.chassis["hv1"].controller
        first.control_command("exit")
        until(lambda: first.process.poll() is not None, "the end of the controller")
        first.process = None
        until(lambda: owner(each) == "hv2", "hv2 has the gateway", SLOW_S)
        exchange(each, "p13", routed("p13", ip("e1"), udp()), "e1")
        first.start()
        elected(each, "hv1")
        each.settle()
        exchange(each, "p13", routed("p13", ip("e1"), udp(2001, 1001)), "e1")
        forget_own(each)

    compared(scenario, chassis=3)


def test_an_ha_chassis_group(compared):
    """A group of chassis serves a router's port, and follows changes of priorities and members."""

    def scenario(each):
        add_switches(each, numbers=(1,), hosts=(1, 2, 3))
        add_outside(each)
        each.nbctl("ha-chassis-group-add", "group")
        for name, priority in (("hv1", 30), ("hv2", 20), ("hv3", 10)):
            each.nbctl("ha-chassis-group-add-chassis", "group", name, priority)
        group = each.nbctl("--bare", "--columns=_uuid", "find", "HA_Chassis_Group", "name=group")
        each.nbctl("--wait=hv", "set", "Logical_Router_Port", "r0-outside", f"ha_chassis_group={group}")
        elected(each, "hv1")
        introduce(each, "e1")
        exchange(each, "p12", routed("p12", ip("e1"), udp()), "e1")
        each.nbctl("--wait=hv", "ha-chassis-group-add-chassis", "group", "hv3", 40)
        elected(each, "hv3")
        exchange(each, "p12", routed("p12", ip("e1"), udp(2001, 1001)), "e1")
        each.nbctl("--wait=hv", "ha-chassis-group-remove-chassis", "group", "hv3")
        elected(each, "hv1")
        exchange(each, "p12", routed("p12", ip("e1"), udp(2002, 1002)), "e1")
        forget_own(each)

    compared(scenario, chassis=3)


def forget_own(each):
    """Removes what chassis have learned about the gateway's own address while two of them had it for a moment."""
    for uuid, address in each.rows("MAC_Binding", "_uuid", "ip"):
        if address == MINE:
            each.sbctl("destroy", "MAC_Binding", uuid)


def frames_of(each):
    return [frame for frame in frames(each, "e1") if ARP in frame]


def test_gateways_announce_their_addresses(compared):
    """The chassis of a gateway sends gratuitous ARPs for the router's and its translations' addresses."""
    found = []

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_outside(each, options=["nat-addresses=router"])
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", "hv1", 10)
        each.nbctl("lr-nat-add", "r0", "snat", MINE, "10.0.1.0/24")
        each.nbctl("lr-nat-add", "r0", "dnat_and_snat", "172.16.0.101", ip("p11"))
        each.nbctl("lr-nat-add", "r0", "dnat_and_snat", "172.16.0.102", ip("p12"), "p12", "00:00:00:00:fa:02")
        # The router may learn the address that another chassis announces.
        each.varying += [r"r0-outside 172\.16\.0\.102 .*", r"table=(66|67|79), .*(0xac100066|172\.16\.0\.102)\b.*"]
        each.central.sync()
        wanted = {(MINE, HARDWARE), ("172.16.0.101", HARDWARE), ("172.16.0.102", "00:00:00:00:fa:02")}
        announced = lambda: {(arp[ARP].psrc, arp[ARP].hwsrc) for arp in frames_of(each) if arp[ARP].psrc == arp[ARP].pdst}
        until(lambda: announced() == wanted, lambda: f"announcements: {announced()}")
        found.append(sorted({bytes(arp).hex() for arp in frames_of(each)}))

    compared(scenario)
    assert found[0] == found[1]


def test_a_gateway_router_moves(compared):
    """A gateway router works on the chassis that its options name, also after these have changed."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        each.nbctl("--wait=sb", "ls-add", "join")
        join(each, "r0", "join", "00:00:00:00:fe:01", "100.64.0.1/24")
        each.nbctl("lr-add", "g0", "--", "set", "Logical_Router", "g0", "options:chassis=hv1")
        join(each, "g0", "join", "00:00:00:00:fe:02", "100.64.0.2/24")
        add_outside(each, router="g0")
        each.nbctl("lr-route-add", "r0", "0.0.0.0/0", "100.64.0.2")
        each.nbctl("lr-route-add", "g0", "10.0.0.0/16", "100.64.0.1")
        each.nbctl("lr-nat-add", "g0", "snat", MINE, "10.0.1.0/24")
        introduce(each, "e1")
        send(each, "p12", routed("p12", ip("e1"), udp()), "e1", is_udp)
        each.nbctl("--wait=hv", "set", "Logical_Router", "g0", "options:chassis=hv2")
        until(lambda: owner(each, "g0-outside") == "hv2", "hv2 has the router")
        each.central.sync()
        asked = send(each, "p11", routed("p11", ip("e1"), udp()), "e1", is_udp)
        send(each, "e1", reply(asked), "p11", is_udp)

    compared(scenario)


@pytest.mark.parametrize("on_router", ["gateway_mtu", "gateway_mtu_bypass"])
def test_packets_larger_than_the_gateways_mtu(compared, on_router):
    """Packets that are too large for the outside are answered with the MTU, but for those that may bypass the check."""

    def scenario(each):
        add_switches(each, numbers=(1,), ipv6=True)
        add_outside(each, ipv6=True)
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", "hv1", 10)
        each.nbctl("set", "Logical_Router_Port", "r0-outside", "options:gateway_mtu=600")
        if on_router == "gateway_mtu_bypass":
            each.nbctl("set", "Logical_Router_Port", "r0-outside", 'options:gateway_mtu_bypass="udp.dst == 9"')
        each.nbctl("static-mac-binding-add", "r0-outside", "fd00:ee::1", "00:00:00:00:0e:01")
        each.central.sync()
        introduce(each, "e1")
        large = bytes(700)
        for port in ("p11", "p12"):
            error = send(each, port, routed(port, ip("e1"), udp(8) / large, flags="DF"), port)
            assert (error[ICMP].type, error[ICMP].code, error[ICMP].nexthopmtu) == (3, 4, 600)
            send(each, port, routed(port, "fd00:ee::1", udp(8) / large), port)
            send(each, port, routed(port, ip("e1"), udp(8) / bytes(500), flags="DF"), "e1", is_udp)
            if on_router == "gateway_mtu_bypass":
                send(each, port, routed(port, ip("e1"), udp(9) / large, flags="DF"), "e1", is_udp)

    compared(scenario)


def test_bridged_redirection(compared):
    """With redirect-type=bridged, packets reach the gateway's chassis by the physical network instead of a tunnel."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_outside(each)
        words = ["lsp-add", "s1", "local1", "--", "lsp-set-type", "local1", "localnet", "--", "lsp-set-addresses", "local1", "unknown"]
        each.nbctl("--wait=sb", *words, "--", "lsp-set-options", "local1", "network_name=phys", "--", "set", "Logical_Switch_Port", "local1", "tag=11")
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", "hv1", 10)
        each.nbctl("lrp-set-redirect-type", "r0-outside", "bridged")
        for name, chassis in each.chassis.items():
            chassis.switch.vsctl("set", "Open_vSwitch", ".", f'external_ids:ovn-chassis-mac-mappings="phys:aa:bb:cc:dd:ee:0{name[-1]}"')
        each.central.sync()
        introduce(each, "e1")
        asked = send(each, "p12", routed("p12", ip("e1"), udp()), "e1", is_udp)
        send(each, "e1", reply(asked), "p12", is_udp)

    compared(scenario)


def test_two_gateway_ports_of_one_router(compared):
    """A router with gateway ports on two chassis reaches both outsides, each by its own chassis."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_outside(each)
        each.nbctl("--wait=sb", "ls-add", "other")
        join(each, "r0", "other", "00:00:00:00:ff:0f", "172.17.0.254/24")
        each.nbctl("--wait=sb", "lsp-add", "other", "p91", "--", "lsp-set-addresses", "p91", "00:00:00:00:09:01 172.17.0.1")
        each.chassis["hv2"].add_vif("p91")
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", "hv1", 10)
        each.nbctl("lrp-set-gateway-chassis", "r0-other", "hv2", 10)
        each.nbctl("--gateway-port=r0-outside", "lr-nat-add", "r0", "snat", MINE, "10.0.1.0/24")
        each.nbctl("--gateway-port=r0-other", "lr-nat-add", "r0", "snat", "172.17.0.254", "10.0.1.0/24")
        each.settle()
        introduce(each, "e1")
        for port in ("p11", "p12"):
            assert send(each, port, routed(port, ip("e1"), udp()), "e1", is_udp)[IP].src == MINE
            asked = send(each, port, routed(port, "172.17.0.1", udp()), "p91", is_udp)
            assert asked[IP].src == "172.17.0.254"
            send(each, "p91", reply(asked), port, is_udp)

    compared(scenario)
