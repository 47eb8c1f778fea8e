"""Addresses that OVN answers for, refuses and learns: proxies, port security, unknown addresses, MAC bindings."""

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from logical import BROADCAST, add_switches, ip, ip6, mac, packet, routed, send
from waiting import until


def request(port, target, **fields):
    """An ARP request of the port's host."""
    fields = {"hwsrc": mac(port), "psrc": ip(port)} | fields
    return Ether(src=mac(port), dst=BROADCAST) / ARP(pdst=target, **fields)


def answers(frame):
    return ARP in frame and frame[ARP].op == 2


def test_arp_and_nd_proxies(compared):
    """A router's port answers for the addresses and networks of arp_proxy, with its MAC address or the one given."""

    def scenario(each):
        add_switches(each, ipv6=True)
        each.nbctl("--wait=hv", "lsp-set-options", "s1-r0", "router-port=r0-s1", "arp_proxy=0a:58:a9:fe:01:01 169.254.239.254 169.254.238.0/24 fd07::/64")
        for address in ("169.254.239.254", "169.254.238.17"):
            assert send(each, "p11", request("p11", address), "p11", answers)[ARP].hwsrc == "0a:58:a9:fe:01:01"
        ask = Ether(src=mac("p11"), dst="33:33:ff:00:00:05") / IPv6(src=ip6("p11"), dst="ff02::1:ff00:5", hlim=255)
        ask = ask / ICMPv6ND_NS(tgt="fd07::5") / ICMPv6NDOptSrcLLAddr(lladdr=mac("p11"))
        assert send(each, "p11", ask, "p11", lambda frame: ICMPv6ND_NA in frame)[ICMPv6NDOptDstLLAddr].lladdr == "0a:58:a9:fe:01:01"
        each.nbctl("--wait=hv", "lsp-set-options", "s1-r0", "router-port=r0-s1", "arp_proxy=169.254.1.1")
        assert send(each, "p12", request("p12", "169.254.1.1"), "p12", answers)[ARP].hwsrc == "00:00:00:00:ff:01"

    compared(scenario)


def test_arp_responders(compared):
    """A host's own chassis answers for the addresses of others, but neither for the host itself nor for unused ones."""

    def scenario(each):
        add_switches(each)
        assert send(each, "p11", request("p11", ip("p12")), "p11", answers)[ARP].hwsrc == mac("p12")
        assert send(each, "p11", request("p11", "10.0.1.254"), "p11", answers)[ARP].hwsrc == "00:00:00:00:ff:01"
        # A probe for the own address reaches the others, and so does one for an unused address.
        send(each, "p11", request("p11", ip("p11"), psrc="0.0.0.0"), "p12", lambda frame: frame[ARP].pdst == ip("p11"))
        send(each, "p11", request("p11", "10.0.1.99"), "p12", lambda frame: frame[ARP].pdst == "10.0.1.99")
        # Without responder, the host itself is asked.
        each.nbctl("--wait=hv", "set", "NB_Global", ".", "options:ignore_lsp_down=false")
        each.nbctl("--wait=hv", "lsp-set-options", "p12", "disable_arp_nd_rsp=true")
        send(each, "p11", request("p11", ip("p12")), "p12", lambda frame: frame[ARP].pdst == ip("p12"))

    compared(scenario)


def test_port_security(compared):
    """A port may send only from its MAC and IP addresses, and gets only packets for them."""

    def scenario(each):
        add_switches(each, ipv6=True)
        for port in ("p11", "p12"):
            each.nbctl("lsp-set-port-security", port, f"{mac(port)} {ip(port)} {ip6(port)}")
        each.central.sync()
        good = packet("p11", "p12")
        forged = [good.copy() for _ in range(2)]
        forged[0][Ether].src = "00:00:00:00:01:99"
        forged[1][IP].src = "10.0.1.99"
        each.receive("p11", *forged)
        each.receive("p11", request("p11", "10.0.1.98", hwsrc="00:00:00:00:01:99"), request("p11", "10.0.1.98", psrc="10.0.1.77"))
        ether = Ether(src=mac("p11"), dst=mac("p12"))
        each.receive("p11", ether / IPv6(src="fd00:1::99", dst=ip6("p12")) / UDP(sport=1, dport=2))
        advertised = IPv6(src=ip6("p11"), dst=ip6("p12"), hlim=255) / ICMPv6ND_NA(tgt="fd00:1::99") / ICMPv6NDOptDstLLAddr(lladdr=mac("p11"))
        each.receive("p11", ether / advertised)
        # Other addresses of the receiver are refused by its own chassis.
        each.receive("p11", Ether(src=mac("p11"), dst=mac("p12")) / IP(src=ip("p11"), dst="10.0.1.88") / UDP())
        each.receive("p11", ether / IPv6(src=ip6("p11"), dst="fd00:1::88") / UDP())
        assert bytes(send(each, "p11", good, "p12")) == bytes(good)
        send(each, "p11", ether / IPv6(src=ip6("p11"), dst=ip6("p12")) / UDP(sport=1, dport=2), "p12")
        send(each, "p11", request("p11", "10.0.1.99"), "p12")
        assert len(each.sent("p12")) == 3

    compared(scenario)


def test_port_security_with_several_addresses(compared):
    """Ranges, several MAC addresses, and multicast and broadcast of a network are allowed where they belong."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        allowed = [f"{mac('p11')} 10.0.1.0/28 10.0.1.129/25", "00:00:00:00:01:77", "00:00:00:00:01:78 10.0.1.78 fd00:1::78"]
        each.nbctl("--wait=hv", "lsp-set-port-security", "p11", *allowed)

        def frame(source_mac, source, destination=None):
            ether = Ether(src=source_mac, dst=mac("p12"))
            return ether / IP(src=source, dst=destination or ip("p12")) / UDP(sport=1, dport=2)

        for source_mac, source in ((mac("p11"), "10.0.1.14"), (mac("p11"), "10.0.1.129"), ("00:00:00:00:01:77", "1.2.3.4")):
            send(each, "p11", frame(source_mac, source), "p12")
        # Of a network with a host part, only that host may send.
        each.receive("p11", frame(mac("p11"), "10.0.1.130"), frame(mac("p11"), "10.0.1.17"), frame("00:00:00:00:01:78", "10.0.1.79"))
        send(each, "p11", frame("00:00:00:00:01:78", "10.0.1.78"), "p12")
        for destination in ("10.0.1.127", "10.0.1.255", "224.0.0.7", "255.255.255.255", ip("p11"), "10.0.1.15"):
            back = Ether(src=mac("p12"), dst=mac("p11")) / IP(src=ip("p12"), dst=destination) / UDP(sport=1, dport=2)
            each.receive("p12", back)
        # The switch does not know where the other MAC addresses are.
        each.nbctl("--wait=hv", "lsp-set-addresses", "p11", f"{mac('p11')} {ip('p11')}", "00:00:00:00:01:77")
        foreign = Ether(src=mac("p12"), dst="00:00:00:00:01:77") / IP(src=ip("p12"), dst="9.9.9.9") / UDP(sport=1, dport=2)
        send(each, "p12", foreign, "p11", lambda frame: frame[IP].dst == "9.9.9.9")

    compared(scenario)


def test_unknown_addresses_are_learned(compared):
    """A port with unknown addresses teaches the FDB, which forgets entries after their time."""

    def scenario(each):
        add_switches(each, numbers=(1,), hosts=(1, 2))
        for port in ("p11", "p12"):
            each.nbctl("--wait=sb", "lsp-set-addresses", port, "unknown")
        each.central.sync()
        # An unknown destination goes to all ports with unknown addresses.
        send(each, "p11", packet("p11", "p12"), "p12")
        until(lambda: each.learned() == [(mac("p11"), "p11")], lambda: f"only p11 learned, not {each.learned()}")
        each.central.sync()
        send(each, "p12", packet("p12", "p11"), "p11")
        until(lambda: len(each.learned()) == 2, "both learned")
        each.central.sync()
        # The MAC address moves.
        moved = packet("p11", "p12")
        each.receive("p12", Ether(src=mac("p11"), dst="00:00:00:00:01:33") / moved[IP])
        until(lambda: (mac("p11"), "p12") in each.learned(), "the move")
        each.nbctl("--wait=hv", "set", "Logical_Switch", "s1", "other_config:fdb_age_threshold=1")
        until(lambda: not each.learned(), "an empty FDB")
        each.central.sync()

    compared(scenario)


def test_mac_bindings_are_learned_and_age(compared):
    """A router asks for unknown neighbours, and learns from their answers."""

    def scenario(each):
        add_switches(each, ipv6=True)
        for port in ("p21", "p22"):
            each.nbctl("--wait=sb", "lsp-set-addresses", port, f"{mac(port)} unknown" if port == "p21" else "unknown")
        each.central.sync()
        asks = lambda frame: ARP in frame and frame[ARP].op == 1 and frame[ARP].psrc == "10.0.2.254"
        for where, target in (("p21", "10.0.2.1"), ("p22", "10.0.2.77")):
            asked = send(each, "p11", routed("p11", target), where, asks)
            answer = Ether(src=mac(where), dst=asked.src) / ARP(op=2, hwsrc=mac(where), psrc=target, hwdst=asked.src, pdst="10.0.2.254")
            each.receive(where, answer)
            until(lambda target=target: any(row[1] == target for row in each.mac_bindings()), f"{target} learned")
            each.central.sync()
            # The packet that waited may have gone out after the answer.
            send(each, "p11", routed("p11", target), where, lambda frame: IP in frame)
        asks6 = lambda frame: ICMPv6ND_NS in frame and frame[ICMPv6ND_NS].tgt == "fd00:2::77"
        asked = send(each, "p11", routed("p11", "fd00:2::77"), "p22", asks6)
        answer = Ether(src=mac("p22"), dst=asked.src) / IPv6(src="fd00:2::77", dst=asked[IPv6].src, hlim=255)
        each.receive("p22", answer / ICMPv6ND_NA(tgt="fd00:2::77", R=0, S=1) / ICMPv6NDOptDstLLAddr(lladdr=mac("p22")))
        until(lambda: len(each.mac_bindings()) >= 3, "three bindings")
        each.central.sync()

    compared(scenario)


def test_mac_bindings_age(compared):
    """An unused binding is forgotten after its time, and learned again when a packet needs it."""

    def scenario(each):
        add_switches(each)
        each.nbctl("--wait=sb", "lsp-set-addresses", "p22", "unknown")
        each.nbctl("--wait=hv", "set", "Logical_Router", "r0", "options:mac_binding_age_threshold=2")
        announced = Ether(src=mac("p22"), dst=BROADCAST) / ARP(op=2, hwsrc=mac("p22"), psrc="10.0.2.77", pdst="10.0.2.77")
        each.receive("p22", announced)
        until(lambda: each.mac_bindings(), "a learned binding")
        until(lambda: not each.mac_bindings(), "no bindings")
        each.nbctl("--wait=hv", "set", "Logical_Router", "r0", "options:mac_binding_age_threshold=0")
        asks = lambda frame: ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst == "10.0.2.77"
        send(each, "p11", routed("p11", "10.0.2.77"), "p22", asks)
        each.receive("p22", announced)
        until(lambda: each.mac_bindings(), "a learned binding")
        each.central.sync()
        send(each, "p11", routed("p11", "10.0.2.77"), "p22", lambda frame: IP in frame)

    compared(scenario)


def test_static_mac_bindings(compared):
    """A static binding is used at once, and overrides learned ones only if it says so."""

    def scenario(each):
        add_switches(each)
        each.nbctl("--wait=sb", "lsp-set-addresses", "p22", "unknown")
        each.nbctl("--wait=hv", "static-mac-binding-add", "r0-s2", "10.0.2.77", "00:00:00:00:02:77")
        assert send(each, "p11", routed("p11", "10.0.2.77"), "p22", lambda frame: IP in frame).dst == "00:00:00:00:02:77"
        each.receive("p22", Ether(src=mac("p22"), dst=BROADCAST) / ARP(op=2, hwsrc=mac("p22"), psrc="10.0.2.77", pdst="10.0.2.77"))
        until(lambda: each.mac_bindings(), "a learned binding")
        each.central.sync()
        send(each, "p11", routed("p11", "10.0.2.77"), "p22", lambda frame: IP in frame and frame.dst == mac("p22"))
        binding = each.nbctl("--bare", "--columns=_uuid", "list", "Static_MAC_Binding")
        each.nbctl("--wait=hv", "set", "Static_MAC_Binding", binding, 'mac="00:00:00:00:02:78"', "override_dynamic_mac=true")
        send(each, "p11", routed("p11", "10.0.2.77"), "p22", lambda frame: IP in frame and frame.dst == "00:00:00:00:02:78")

    compared(scenario)
