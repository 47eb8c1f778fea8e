"""Address translation by OVN's routers on both makers' switches: gateway routers and distributed gateway ports."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether

from logical import (
    OUTSIDE_ADDRESS,
    OUTSIDE_MAC,
    BROADCAST,
    add_outside,
    add_switches,
    converse,
    frames,
    introduce,
    ip,
    join,
    mac,
    reply,
    routed,
    send,
    syn,
)
from waiting import until


def udp(dport=2000, sport=1000):
    return UDP(sport=sport, dport=dport)


def is_udp(frame):
    return UDP in frame


def distributed(each, hosts=(1,), **options):
    """Hosts behind a router whose port to the outside is on hv1."""
    add_switches(each, numbers=(1,), **options)
    add_outside(each, hosts=hosts, **options)
    each.nbctl("--wait=hv", "lrp-set-gateway-chassis", "r0-outside", "hv1", 10)


def gateway_router(each, hosts=(1,), options=()):
    """Hosts behind a router that is connected to a gateway router on hv1, by a switch of their own."""
    add_switches(each, numbers=(1,))
    each.nbctl("--wait=sb", "ls-add", "join")
    join(each, "r0", "join", "00:00:00:00:fe:01", "100.64.0.1/24")
    each.nbctl("lr-add", "g0", "--", "set", "Logical_Router", "g0", "options:chassis=hv1", *options)
    join(each, "g0", "join", "00:00:00:00:fe:02", "100.64.0.2/24")
    add_outside(each, router="g0", hosts=hosts)
    each.nbctl("lr-route-add", "r0", "0.0.0.0/0", "100.64.0.2")
    each.nbctl("lr-route-add", "g0", "10.0.0.0/16", "100.64.0.1")
    each.central.sync()


def test_snat_on_a_distributed_gateway_port(compared):
    """Hosts of both chassis reach the outside with the router's address, and answers come back."""

    def scenario(each):
        distributed(each)
        each.nbctl("lr-nat-add", "r0", "snat", OUTSIDE_ADDRESS, "10.0.1.0/24")
        introduce(each, "e1")
        for port in ("p11", "p12"):
            asked = send(each, port, routed(port, ip("e1"), udp(sport=int(port[1:]) + 1000)), "e1", is_udp)
            assert (asked[IP].src, asked.src) == (OUTSIDE_ADDRESS, OUTSIDE_MAC)
            assert send(each, "e1", reply(asked), port)[IP].dst == ip(port)
        converse(each, "p12", "e1", routed("p12", ip("e1"), syn(80)))

    compared(scenario)


def test_dnat_and_floating_addresses(compared):
    """A dnat and a dnat_and_snat rule lead to hosts, the latter in both directions."""

    def scenario(each):
        distributed(each)
        each.nbctl("lr-nat-add", "r0", "dnat", "172.16.0.100", ip("p11"))
        each.nbctl("lr-nat-add", "r0", "dnat_and_snat", "172.16.0.101", ip("p12"))
        introduce(each, "e1")
        for address, port in (("172.16.0.100", "p11"), ("172.16.0.101", "p12")):
            asked = send(each, "e1", routed("e1", address, udp()), port)
            assert asked[IP].dst == ip(port)
            assert send(each, port, reply(asked), "e1", is_udp)[IP].src == address
        assert send(each, "p12", routed("p12", ip("e1"), udp(9)), "e1", is_udp)[IP].src == "172.16.0.101"
        echo = ICMP(type=8, id=5, seq=1) / b"echo"
        assert send(each, "e1", routed("e1", "172.16.0.101", echo), "p12", lambda frame: ICMP in frame)[IP].dst == ip("p12")

    compared(scenario)


def test_a_distributed_floating_address(compared):
    """The chassis of the logical port itself translates, and answers questions for the external address."""

    def scenario(each):
        distributed(each)
        each.nbctl("lr-nat-add", "r0", "dnat_and_snat", "172.16.0.102", ip("p12"), "p12", "00:00:00:00:fa:02")
        each.central.sync()
        introduce(each, "e1")
        request = Ether(src=mac("e1"), dst=BROADCAST) / ARP(hwsrc=mac("e1"), psrc=ip("e1"), pdst="172.16.0.102")
        assert send(each, "e1", request, "e1", lambda frame: ARP in frame and frame[ARP].op == 2)[ARP].hwsrc == "00:00:00:00:fa:02"
        frame = routed("e1", "172.16.0.102", udp())
        frame.dst = "00:00:00:00:fa:02"
        asked = send(each, "e1", frame, "p12", is_udp)
        answer = send(each, "p12", reply(asked), "e1", is_udp)
        assert (answer.src, answer[IP].src) == ("00:00:00:00:fa:02", "172.16.0.102")
        send(each, "p12", routed("p12", ip("e1"), udp(7)), "e1", is_udp)

    compared(scenario)


def test_port_ranges_and_exempted_addresses(compared):
    """Source ports come from the rule's range, and connections to exempted addresses keep their addresses."""

    def scenario(each):
        distributed(each, hosts=(1, 2))
        each.nbctl("--portrange", "lr-nat-add", "r0", "snat", "172.16.0.99", "10.0.1.0/24", "4000-4001")
        each.nbctl("create", "Address_Set", "name=near", f'addresses="{ip("e2")}"')
        # One port, as any other choice in a range is by chance; ovn-nbctl itself takes no such range.
        uuid = each.nbctl("--bare", "--columns=_uuid", "find", "NAT", "type=snat")
        sets = each.nbctl("--bare", "--columns=_uuid", "find", "Address_Set", "name=near")
        each.nbctl("set", "NAT", uuid, f"exempted_ext_ips={sets}", "external_port_range=4000")
        for host in ("e1", "e2"):
            introduce(each, host)
        asked = send(each, "p11", routed("p11", ip("e1"), udp()), "e1", is_udp)
        assert (asked[IP].src, asked[UDP].sport) == ("172.16.0.99", 4000)
        send(each, "e1", reply(asked), "p11")
        asked = send(each, "p11", routed("p11", ip("e2"), udp()), "e2", is_udp)
        assert (asked[IP].src, asked[UDP].sport) == (ip("p11"), 1000)
        # Another connection to the same machine finds no port and passes untranslated, one to another port of it gets the same.
        assert send(each, "p11", routed("p11", ip("e1"), udp(sport=1001)), "e1", is_udp)[IP].src == ip("p11")
        asked = send(each, "p11", routed("p11", ip("e1"), udp(sport=1002, dport=3)), "e1", is_udp)
        assert asked[UDP].sport == 4000

    compared(scenario)


def test_stateless_translation(compared):
    """A stateless rule rewrites addresses without connections, in both directions."""

    def scenario(each):
        distributed(each)
        each.nbctl("--stateless", "lr-nat-add", "r0", "dnat_and_snat", "172.16.0.103", ip("p12"))
        each.central.sync()
        introduce(each, "e1")
        asked = send(each, "e1", routed("e1", "172.16.0.103", udp()), "p12")
        assert asked[IP].dst == ip("p12")
        assert send(each, "p12", reply(asked), "e1", is_udp)[IP].src == "172.16.0.103"
        send(each, "p12", routed("p12", ip("e1"), syn(80)), "e1", lambda frame: IP in frame)

    compared(scenario)


def test_a_gateway_router_translates(compared):
    """A gateway router translates for hosts behind another router, from outside and from inside."""

    def scenario(each):
        gateway_router(each)
        each.nbctl("lr-nat-add", "g0", "snat", OUTSIDE_ADDRESS, "10.0.1.0/24")
        each.nbctl("lr-nat-add", "g0", "dnat_and_snat", "172.16.0.101", ip("p12"))
        each.central.sync()
        introduce(each, "e1")
        asked = send(each, "p11", routed("p11", ip("e1"), udp()), "e1", is_udp)
        assert (asked[IP].src, asked[IP].ttl) == (OUTSIDE_ADDRESS, 62)
        assert send(each, "e1", reply(asked), "p11")[IP].dst == ip("p11")
        asked = send(each, "e1", routed("e1", "172.16.0.101", syn(80)), "p12")
        send(each, "p12", reply(asked), "e1", lambda frame: IP in frame)
        # One host of the router to the other's external address, and back.
        asked = send(each, "p11", routed("p11", "172.16.0.101", udp(5)), "p12", is_udp)
        assert asked[IP].dst == ip("p12")
        send(each, "p12", reply(asked), "p11", is_udp)

    compared(scenario)


def test_a_gateway_router_forces_the_source(compared):
    """With lb_force_snat_ip and dnat_force_snat_ip, translated connections have the router's address as their source."""

    def scenario(each):
        options = ["options:dnat_force_snat_ip=100.64.0.2", "options:lb_force_snat_ip=100.64.0.2"]
        gateway_router(each, options=options)
        each.nbctl("lr-nat-add", "g0", "dnat", "172.16.0.100", ip("p11"))
        each.nbctl("lb-add", "lb", "172.16.0.110:80", f"{ip('p12')}:8080")
        each.nbctl("lr-lb-add", "g0", "lb")
        each.central.sync()
        introduce(each, "e1")
        asked = send(each, "e1", routed("e1", "172.16.0.100", udp()), "p11")
        assert asked[IP].src == "100.64.0.2"
        send(each, "p11", reply(asked), "e1", is_udp)
        asked, answered = converse(each, "e1", "p12", routed("e1", "172.16.0.110", syn(80)))
        assert (asked[IP].src, answered[IP].src) == ("100.64.0.2", "172.16.0.110")

    compared(scenario)


def test_errors_about_translated_packets(compared):
    """An ICMP error about a translated packet reaches its sender with the inner addresses translated back."""

    def scenario(each):
        distributed(each)
        each.nbctl("lr-nat-add", "r0", "snat", OUTSIDE_ADDRESS, "10.0.1.0/24")
        introduce(each, "e1")
        asked = send(each, "p12", routed("p12", ip("e1"), udp()), "e1", is_udp)
        error = ICMP(type=3, code=3) / bytes(asked[IP])
        answered = send(each, "e1", routed("e1", OUTSIDE_ADDRESS, error), "p12", lambda frame: ICMP in frame)
        assert IP(bytes(answered[ICMP].payload)).src == ip("p12")

    compared(scenario)


def test_ipv6_translation(compared):
    """IPv6 addresses are translated like IPv4's."""

    def scenario(each):
        distributed(each, ipv6=True)
        each.nbctl("lr-nat-add", "r0", "dnat_and_snat", "fd00:ee::65", "fd00:1::2")
        each.nbctl("lr-nat-add", "r0", "snat", "fd00:ee::fe", "fd00:1::/64")
        each.nbctl("static-mac-binding-add", "r0-outside", "fd00:ee::1", mac("e1"))
        each.central.sync()
        asked = send(each, "e1", routed("e1", "fd00:ee::65", udp()), "p12", is_udp)
        send(each, "p12", reply(asked), "e1", is_udp)
        asked = send(each, "p11", routed("p11", "fd00:ee::1", udp(6)), "e1", is_udp)
        send(each, "e1", reply(asked), "p11", is_udp)

    compared(scenario)


def test_floating_addresses_reach_each_other(compared):
    """Hosts on two chassis talk by their distributed external addresses, and both sides see only these."""

    def scenario(each):
        distributed(each)
        for port, host in (("p11", 1), ("p12", 2)):
            each.nbctl("lr-nat-add", "r0", "dnat_and_snat", f"172.16.0.10{host}", ip(port), port, f"00:00:00:00:fa:0{host}")
        each.central.sync()
        asked, answered = converse(each, "p11", "p12", routed("p11", "172.16.0.102", syn(80)))
        assert (asked[IP].src, answered[IP].src) == ("172.16.0.101", "172.16.0.102")
        asked = send(each, "p12", routed("p12", "172.16.0.101", udp()), "p11", is_udp)
        send(each, "p11", reply(asked), "p12", is_udp)

    compared(scenario)


def test_a_source_port_that_is_in_use_is_replaced(compared):
    """Connections of two hosts from equal ports to one machine get different ports, and answers come back to each."""

    def scenario(each):
        distributed(each)
        each.nbctl("lr-nat-add", "r0", "snat", OUTSIDE_ADDRESS, "10.0.1.0/24")
        introduce(each, "e1")
        asked = {port: send(each, port, routed(port, ip("e1"), udp()), "e1", is_udp) for port in ("p11", "p12")}
        assert asked["p11"][UDP].sport != asked["p12"][UDP].sport
        for port, frame in asked.items():
            assert send(each, "e1", reply(frame), port)[UDP].dport == 1000
        asked = {port: send(each, port, routed(port, ip("e1"), syn(80)), "e1", lambda frame: TCP in frame) for port in ("p11", "p12")}
        for port, frame in asked.items():
            send(each, "e1", reply(frame), port, lambda frame: TCP in frame)
        pings = {}
        for port in ("p11", "p12"):
            echo = ICMP(type=8, id=5, seq=1) / b"echo"
            pings[port] = send(each, port, routed(port, ip("e1"), echo), "e1", lambda frame: ICMP in frame)
        for port, frame in pings.items():
            answer = reply(frame, ICMP(type=0, id=frame[ICMP].id, seq=1) / b"echo")
            assert send(each, "e1", answer, port, lambda frame: ICMP in frame)[ICMP].id == 5

    compared(scenario)


def test_allowed_addresses_matches_and_priorities(compared):
    """Rules apply to allowed machines only, and of rules with matches the one with the highest priority."""

    def scenario(each):
        distributed(each, hosts=(1, 2))
        each.nbctl("lr-nat-add", "r0", "snat", "172.16.0.99", ip("p11"))
        each.nbctl("create", "Address_Set", "name=near", f'addresses="{ip("e1")}"')
        uuid = each.nbctl("--bare", "--columns=_uuid", "find", "NAT", "type=snat")
        sets = each.nbctl("--bare", "--columns=_uuid", "find", "Address_Set", "name=near")
        each.nbctl("set", "NAT", uuid, f"allowed_ext_ips={sets}")
        each.nbctl("--match=udp.dst == 9", "--priority=10", "lr-nat-add", "r0", "snat", "172.16.0.98", ip("p12"))
        each.nbctl("--match=udp", "--priority=5", "lr-nat-add", "r0", "snat", "172.16.0.97", ip("p12"))
        for host in ("e1", "e2"):
            introduce(each, host)
        source = lambda port, host, dport: send(each, port, routed(port, ip(host), udp(dport)), host, is_udp)[IP].src
        assert source("p11", "e1", 1) == "172.16.0.99"
        assert source("p11", "e2", 1) == ip("p11")
        assert source("p12", "e1", 9) == "172.16.0.98"
        assert source("p12", "e1", 8) == "172.16.0.97"

    compared(scenario)


def test_fragments_are_translated(compared):
    """All fragments of a packet are translated, as are those of the answer."""

    def scenario(each):
        distributed(each)
        each.nbctl("lr-nat-add", "r0", "dnat_and_snat", "172.16.0.101", ip("p11"))
        introduce(each, "e1")
        whole = IP(src=ip("p11"), dst=ip("e1"), id=7) / udp() / (bytes(range(256)) * 12)
        pieces = IP(bytes(whole)).fragment(1400)
        each.receive("p11", *(Ether(src=mac("p11"), dst="00:00:00:00:ff:01") / piece for piece in pieces))
        arrived = lambda port: [frame for frame in frames(each, port) if IP in frame and (frame[IP].frag or frame[IP].flags.MF)]
        until(lambda: len(arrived("e1")) == len(pieces), "all fragments outside")
        assert {frame[IP].src for frame in arrived("e1")} == {"172.16.0.101"}
        back = IP(src=ip("e1"), dst="172.16.0.101", id=8) / udp(1000, 2000) / (bytes(range(256)) * 12)
        each.receive("e1", *(Ether(src=mac("e1"), dst=OUTSIDE_MAC) / piece for piece in IP(bytes(back)).fragment(1400)))
        until(lambda: len(arrived("p11")) == len(pieces), "all fragments of the answer")

    compared(scenario)


def test_a_hosts_connections_end_with_its_rule(compared):
    """A rule that is removed takes effect for connections that it translated, and another one takes its place."""

    def scenario(each):
        distributed(each)
        each.nbctl("lr-nat-add", "r0", "snat", "172.16.0.99", "10.0.1.0/24")
        introduce(each, "e1")
        source = lambda sport: send(each, "p12", routed("p12", ip("e1"), udp(sport=sport)), "e1", is_udp)[IP].src
        assert source(1000) == "172.16.0.99"
        each.nbctl("--wait=hv", "lr-nat-del", "r0", "snat", "10.0.1.0/24")
        assert source(1000) == ip("p12")
        each.nbctl("--wait=hv", "lr-nat-add", "r0", "snat", "172.16.0.98", "10.0.1.0/24")
        source(1000)
        assert source(1001) == "172.16.0.98"

    compared(scenario)
