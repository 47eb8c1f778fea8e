"""Routes and policies of OVN's routers on both makers' switches."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from logical import add_outside, add_switches, frames, introduce, ip, ip6, join, mac, packet, reply, routed, send, sent_to_one_of, syn
from waiting import until


def udp(dport=2000, sport=1000):
    return UDP(sport=sport, dport=dport)


def announce(each, port, address):
    """The host has one more address: the router learns it from an announcement."""
    announcement = Ether(src=mac(port), dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=mac(port), psrc=address, pdst=address)
    each.receive(port, announcement)
    until(lambda: any(known == address for _, known, _ in each.mac_bindings()), f"{address} known")
    each.central.sync()


def route(each, *words, router="r0"):
    options = [word for word in words if word.startswith("--")]
    each.nbctl(*options, "lr-route-add", router, *[word for word in words if not word.startswith("--")])
    each.central.sync()


def test_static_routes(compared):
    """The longest prefix wins, of equal ones that by destination; `discard` drops; a router's loop ends by its TTL."""

    def scenario(each):
        add_switches(each)
        route(each, "20.0.0.0/8", ip("p21"))
        route(each, "20.1.0.0/16", ip("p22"))
        route(each, "20.1.1.0/24", "discard")
        route(each, "--policy=src-ip", "10.0.1.2/32", ip("p21"))
        assert send(each, "p11", routed("p11", "20.2.0.1"), "p21")[Ether].dst == mac("p21")
        assert send(each, "p11", routed("p11", "20.1.2.1"), "p22")[IP].ttl == 63
        each.receive("p11", routed("p11", "20.1.1.1"))
        send(each, "p12", routed("p12", "30.0.0.1"), "p21")
        error = send(each, "p11", routed("p11", "20.2.0.1", ttl=1), "p11")
        assert (error[ICMP].type, error[IP].src) == (11, "10.0.1.254")
        error = send(each, "p11", routed("p11", "10.0.1.254", syn(9)), "p11")
        error = send(each, "p11", routed("p11", "10.0.1.254", udp(9)), "p11")
        assert (error[ICMP].type, error[ICMP].code) == (3, 3)

    compared(scenario)


def test_equal_cost_routes(compared):
    """Packets of several connections take several next hops, all of one connection the same."""

    def scenario(each):
        each.chooses_by_hash = True
        add_switches(each)
        for port in ("p21", "p22"):
            route(each, "--ecmp", "20.0.0.0/8", ip(port))
        ports = ("p21", "p22")
        by_port = [routed("p11", "20.0.0.1", syn(80, sport)) for sport in range(2000, 2020)]
        by_address = [routed("p11", f"20.0.0.{host}", udp()) for host in range(1, 20)]
        for sent in (by_port, by_address):
            first, again = ([sent_to_one_of(each, "p11", frame, ports)[0] for frame in sent] for _ in range(2))
            assert first == again
            assert set(first) == {"p21", "p22"}
        # The hash is symmetric, and leaves the ports of UDP out.
        by_udp_port = [routed("p11", "20.0.0.1", udp(sport=sport)) for sport in range(2000, 2020)]
        assert len({sent_to_one_of(each, "p11", frame, ports)[0] for frame in by_udp_port}) == 1

    compared(scenario)


def test_ipv6_routes(compared):
    """IPv6 routes, one of them by equal costs."""

    def scenario(each):
        each.chooses_by_hash = True
        add_switches(each, ipv6=True)
        route(each, "2001:db8::/32", "fd00:2::1")
        for port in ("1", "2"):
            route(each, "--ecmp", "2001:db9::/32", f"fd00:2::{port}")
        assert send(each, "p11", routed("p11", "2001:db8::1"), "p21")[IPv6].hlim == 63
        for sport in range(2000, 2008):
            sent_to_one_of(each, "p11", routed("p11", "2001:db9::1", udp(sport=sport)), ("p21", "p22"))

    compared(scenario)


def symmetric(each, networks=("20.0.0.0/8",)):
    """A gateway router on hv1 with next hops p21 and p22 whose answers return by the one that a connection came from."""
    add_switches(each)
    each.nbctl("set", "Logical_Router", "r0", "options:chassis=hv1")
    for network in networks:
        for port in ("p21", "p22"):
            route(each, "--ecmp-symmetric-reply", network, ip(port))


def test_symmetric_replies(compared):
    """Answers return to the next hop that the connection came from, whatever the hash says."""

    def scenario(each):
        symmetric(each)
        for number in range(8):
            port = ("p21", "p22")[number % 2]
            frame = packet(port, "p12", udp(sport=3000 + number))
            frame[IP].src = f"20.0.0.{number + 1}"
            asked = send(each, port, frame, "p12")
            answered = send(each, "p12", reply(asked), port)
            assert (answered[IP].dst, answered[Ether].dst) == (frame[IP].src, mac(port))
        # The next hop of a connection follows the side that it comes from now.
        frame = packet("p22", "p12", udp(sport=3000))
        frame[IP].src = "20.0.0.1"
        asked = send(each, "p22", frame, "p12")
        send(each, "p12", reply(asked), "p22")

    compared(scenario)


def test_policies(compared):
    """Policies allow, drop and reroute before and after the routes, with marks and several next hops."""

    def scenario(each):
        add_switches(each)
        each.nbctl("lr-policy-add", "r0", 1000, "udp.dst == 10", "drop")
        each.nbctl("lr-policy-add", "r0", 900, "udp.dst == 20", "reroute", ip("p22"))
        each.nbctl("lr-policy-add", "r0", 800, "ip4.src == 10.0.1.0/24 && udp.dst == 30", "allow", "pkt_mark=100")
        each.nbctl("lr-policy-add", "r0", 700, "udp.dst == 40", "reroute", ip("p22"), "pkt_mark=7")
        each.central.sync()
        each.receive("p11", packet("p11", "p21", udp(10)))
        send(each, "p11", packet("p11", "p21", udp(20)), "p22")
        send(each, "p11", packet("p11", "p21", udp(30)), "p21")
        # No route of the chassis serves packets with this mark, so that no tunnel takes them.
        each.receive("p11", packet("p11", "p21", udp(40)))
        each.nbctl("--wait=hv", "lr-policy-del", "r0", 900)
        send(each, "p11", packet("p11", "p21", udp(20)), "p21")

    compared(scenario)


def test_policies_with_several_next_hops(compared):
    """A policy with several next hops chooses by a hash."""

    def scenario(each):
        each.chooses_by_hash = True
        add_switches(each)
        route(each, "0.0.0.0/0", ip("p21"))
        each.nbctl("--wait=hv", "lr-policy-add", "r0", 900, "ip4.dst == 30.0.0.0/8", "reroute", f"{ip('p21')},{ip('p22')}")
        chosen = {sent_to_one_of(each, "p11", routed("p11", "30.0.0.1", syn(80, sport)), ("p21", "p22"))[0] for sport in range(2000, 2016)}
        assert len(chosen) == 2

    compared(scenario)


def test_chains_of_policies(compared):
    """A policy jumps to a chain, whose policies judge next."""

    def scenario(each):
        add_switches(each)
        for words in (
            ["priority=1000", 'match="ip4.dst == 10.0.2.0/24"', "action=jump", "jump_chain=second"],
            ["priority=900", 'match="udp.dst == 20"', "action=drop", "chain=second"],
            ["priority=800", 'match="udp.dst == 30"', "action=reroute", f"nexthops={ip('p22')}", "chain=second"],
        ):
            each.nbctl("--id=@p", "create", "Logical_Router_Policy", *words, "--", "add", "Logical_Router", "r0", "policies", "@p")
        each.central.sync()
        each.receive("p11", packet("p11", "p21", udp(20)))
        send(each, "p11", packet("p11", "p21", udp(30)), "p22")
        send(each, "p11", packet("p11", "p21", udp(40)), "p21")

    compared(scenario)


def test_route_tables(compared):
    """Routes of a table serve the ports that use it, beside those of the main one."""

    def scenario(each):
        add_switches(each, numbers=(1, 2, 3))
        each.nbctl("lrp-set-options", "r0-s3", "route_table=blue")
        route(each, "20.0.0.0/8", ip("p21"))
        route(each, "--route-table=blue", "20.0.0.0/8", ip("p22"))
        route(each, "--route-table=blue", "21.0.0.0/8", ip("p21"))
        send(each, "p11", routed("p11", "20.0.0.1"), "p21")
        send(each, "p31", routed("p31", "20.0.0.1"), "p22")
        send(each, "p32", routed("p32", "21.0.0.1"), "p21")
        each.receive("p11", routed("p11", "21.0.0.1"))

    compared(scenario)


def test_static_mac_bindings_and_learned_ones(compared):
    """A next hop's address is asked for, learned from the answer, changed by an announcement, or set."""

    def scenario(each):
        add_switches(each)
        route(each, "20.0.0.0/8", "10.0.2.77")
        is_request = lambda frame: ARP in frame and frame[ARP].op == 1
        request = send(each, "p11", routed("p11", "20.0.0.1", udp(1)), "p22", is_request)
        assert request[ARP].pdst == "10.0.2.77"
        answer = ARP(op=2, hwsrc=mac("p22"), psrc="10.0.2.77", hwdst=request[ARP].hwsrc, pdst=request[ARP].psrc)
        # The packet that had to wait arrives after the answer.
        assert send(each, "p22", Ether(src=mac("p22"), dst=request.src) / answer, "p22", lambda frame: UDP in frame)[UDP].dport == 1
        until(lambda: each.mac_bindings(), "a binding")
        each.central.sync()
        send(each, "p11", routed("p11", "20.0.0.1", udp(2)), "p22", lambda frame: UDP in frame)
        route(each, "21.0.0.0/8", "10.0.2.88")
        each.nbctl("--wait=hv", "static-mac-binding-add", "r0-s2", "10.0.2.88", mac("p21"))
        send(each, "p11", routed("p11", "21.0.0.1", udp(3)), "p21", lambda frame: UDP in frame)

    compared(scenario)


def test_bfd_of_routes(compared):
    """A route with BFD serves while the next hop answers ovn-controller's BFD packets."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_outside(each)
        each.nbctl("--wait=hv", "set", "Logical_Router", "r0", "options:chassis=hv1")
        introduce(each, "e1")
        route(each, "--bfd", "20.0.0.0/8", ip("e1"), "r0-outside")
        state = lambda: each.nbctl("--bare", "--columns=status", "list", "BFD")
        is_bfd = lambda frame: UDP in frame and frame[UDP].dport == 3784
        heard = lambda: [frame for frame in frames(each, "e1") if is_bfd(frame)]
        until(heard, "BFD packets")
        answered = 0

        def up():
            nonlocal answered
            packets = heard()
            for one in packets[answered:]:
                each.receive("e1", bfd_answer(one))
            answered = len(packets)
            return state() == "up"

        # The session is in the controller, which begins it anew.
        with each.chaos.sparing("controller"):
            until(up, lambda: f"BFD up, it is {state()}")
            each.central.sync()
            send(each, "p12", routed("p12", "20.0.0.1", udp(7)), "e1", lambda frame: UDP in frame and frame[UDP].dport == 7)
            # Silence takes the route away.
            until(lambda: state() == "down", "BFD down")

    compared(scenario)


def bfd_answer(frame):
    """The BFD packet of a neighbour: Init if the other side is down, else Up."""
    asked = bytes(frame[UDP].payload)
    state = 2 if asked[1] >> 6 == 1 else 3
    answer = bytes([asked[0], state << 6, 5, 24]) + b"\0\0\0\x07" + asked[4:8] + (1000000).to_bytes(4, "big") * 2 + bytes(4)
    ether = Ether(src=frame.dst, dst=frame.src)
    return ether / IP(src=frame[IP].dst, dst=frame[IP].src, ttl=255) / UDP(sport=49152, dport=3784) / answer


def test_two_routers_between_switches(compared):
    """Routers behind a switch of their own, and routers that are connected directly."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        each.nbctl("--wait=sb", "lr-add", "r1")
        each.nbctl("--wait=sb", "ls-add", "s2")
        join(each, "r1", "s2", "00:00:00:00:ff:02", "10.0.2.254/24")
        for host in ("1", "2"):
            port = f"p2{host}"
            each.nbctl("--wait=sb", "lsp-add", "s2", port, "--", "lsp-set-addresses", port, f"{mac(port)} {ip(port)}")
            each.chassis[f"hv{host}"].add_vif(port)
        each.nbctl("lrp-add", "r0", "r0-r1", "00:00:00:00:fe:01", "100.64.0.1/30", "peer=r1-r0")
        each.nbctl("lrp-add", "r1", "r1-r0", "00:00:00:00:fe:02", "100.64.0.2/30", "peer=r0-r1")
        each.settle()
        route(each, "10.0.2.0/24", "100.64.0.2")
        route(each, "0.0.0.0/0", "100.64.0.1", router="r1")
        assert send(each, "p11", packet("p11", "p22"), "p22")[IP].ttl == 62
        assert send(each, "p22", packet("p22", "p12"), "p12")[IP].ttl == 62
        echo = ICMP(type=8, id=1, seq=1)
        assert send(each, "p11", routed("p11", "100.64.0.2", echo), "p11")[ICMP].type == 0
        error = send(each, "p11", packet("p11", "p22", ttl=2), "p11")
        assert (error[ICMP].type, error[IP].src) == (11, "100.64.0.2")

    compared(scenario)


def test_bindings_age(compared):
    """A learned address that no packet uses is forgotten after its age, and one in use is kept."""

    def scenario(each):
        add_switches(each)
        each.nbctl("--wait=hv", "set", "Logical_Router", "r0", "options:mac_binding_age_threshold=4")
        known = lambda: {address for _, address, _ in each.mac_bindings()}

        def one_forgotten():
            frame = Ether(src=mac("p22"), dst="00:00:00:00:ff:02") / IP(src="10.0.2.77", dst=ip("p12")) / udp()
            each.receive("p22", frame)
            return known() == {"10.0.2.77"}

        # Bindings would age while a kill is waited out.
        with each.chaos.burst():
            for address in ("10.0.2.77", "10.0.2.78"):
                announce(each, "p22", address)
            assert known() == {"10.0.2.77", "10.0.2.78"}
            until(one_forgotten, lambda: f"one forgotten: {known()}", 60)
        until(lambda: not known(), "all forgotten", 60)
        each.repeats = True

    compared(scenario)


def test_symmetric_replies_of_tcp_and_ipv6(compared):
    """Connections by TCP and over IPv6 return to their next hops, too."""

    def scenario(each):
        add_switches(each, ipv6=True)
        each.nbctl("set", "Logical_Router", "r0", "options:chassis=hv1")
        for port in ("p21", "p22"):
            route(each, "--ecmp-symmetric-reply", "20.0.0.0/8", ip(port))
            route(each, "--ecmp-symmetric-reply", "2001:db8::/32", ip6(port))
        for number in range(4):
            port = ("p21", "p22")[number % 2]
            ether = Ether(src=mac(port), dst="00:00:00:00:ff:02")
            for network in (IP(src=f"20.0.0.{number + 1}", dst=ip("p12")), IPv6(src=f"2001:db8::{number + 1}", dst=ip6("p12"))):
                plain = lambda frame: UDP in frame or TCP in frame
                for payload in (udp(sport=3000 + number), syn(80, 3000 + number)):
                    asked = send(each, port, ether / network / payload, "p12", plain)
                    assert send(each, "p12", reply(asked), port, plain)[Ether].dst == mac(port)

    compared(scenario)


def test_neighbours_of_ipv6(compared):
    """A router asks for an IPv6 next hop, learns it from the advertisement, and sends on what had to wait."""

    def scenario(each):
        add_switches(each, ipv6=True)
        route(each, "2001:db8::/32", "fd00:2::77")
        asked = send(each, "p11", routed("p11", "2001:db8::1", udp(1)), "p22", lambda frame: ICMPv6ND_NS in frame)
        assert asked[ICMPv6ND_NS].tgt == "fd00:2::77"
        answer = IPv6(src="fd00:2::77", dst=asked[IPv6].src, hlim=255) / ICMPv6ND_NA(tgt="fd00:2::77", R=0, S=1, O=1)
        frame = Ether(src=mac("p22"), dst=asked.src) / answer / ICMPv6NDOptDstLLAddr(lladdr=mac("p22"))
        assert send(each, "p22", frame, "p22", lambda frame: UDP in frame)[UDP].dport == 1
        until(lambda: each.mac_bindings(), "a binding")
        each.central.sync()
        send(each, "p11", routed("p11", "2001:db8::1", udp(2)), "p22", lambda frame: UDP in frame)
        # The router answers for its own addresses.
        question = IPv6(src=ip6("p11"), dst="ff02::1:ff00:fe", hlim=255) / ICMPv6ND_NS(tgt="fd00:1::fe")
        frame = Ether(src=mac("p11"), dst="33:33:ff:00:00:fe") / question / ICMPv6NDOptSrcLLAddr(lladdr=mac("p11"))
        assert send(each, "p11", frame, "p11", lambda frame: ICMPv6ND_NA in frame)[ICMPv6ND_NA].tgt == "fd00:1::fe"

    compared(scenario)


def test_bfd_of_policies(compared):
    """A policy with BFD reroutes to the next hops that answer."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_outside(each, hosts=(1, 2))
        each.nbctl("--wait=hv", "set", "Logical_Router", "r0", "options:chassis=hv1")
        for host in ("e1", "e2"):
            introduce(each, host)
        route(each, "0.0.0.0/0", ip("e2"))
        for host in ("e1", "e2"):
            each.nbctl("create", "BFD", "logical_port=r0-outside", f'dst_ip="{ip(host)}"', "min_tx=250", "min_rx=250", "detect_mult=10")
        hops = f"{ip('e1')},{ip('e2')}"
        each.nbctl("--bfd", "lr-policy-add", "r0", 100, "ip4.src == 10.0.1.0/24 && udp.dst == 7", "reroute", hops)
        answered = {"e1": 0, "e2": 0}

        def states(*hosts):
            for host in hosts:
                heard = [frame for frame in frames(each, host) if UDP in frame and frame[UDP].dport == 3784]
                for one in heard[answered[host] :]:
                    each.receive(host, bfd_answer(one))
                answered[host] = len(heard)
            rows = each.nbctl("--format=csv", "--no-headings", "--columns=dst_ip,status", "list", "BFD").split()
            return dict(row.replace('"', "").split(",") for row in rows)

        def rerouted():
            each.receive("p12", routed("p12", "20.0.0.1", udp(7)))
            states("e1")
            return [frame for frame in frames(each, "e1") if UDP in frame and frame[UDP].dport == 7]

        # The sessions are in the controller, which begins them anew.
        with each.chaos.sparing("controller"):
            until(lambda: states("e1") == {ip("e1"): "up", ip("e2"): "down"}, lambda: f"e1 up: {states()}")
            each.central.sync()
            until(rerouted, "a packet at e1")
            each.repeats = True
            until(lambda: set(states().values()) == {"down"}, "all down")

    compared(scenario)
