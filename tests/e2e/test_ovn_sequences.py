"""Packets of many connections, bursts, and whole connections through OVN's stateful pipelines on both makers' switches."""

from scapy.layers.inet import ICMP, IP, TCP, UDP

from logical import add_outside, add_switches, converse, frames, introduce, ip, packet, reply, routed, send, syn
from physical import vary_own_bindings
from waiting import until

MINE = "172.16.0.254"


def udp(dport=2000, sport=1000):
    return UDP(sport=sport, dport=dport)


def is_tcp(frame):
    return TCP in frame


def gateway_router(each, *options):
    """A router with all of its ports on hv1, and the outside."""
    add_switches(each)
    add_outside(each)
    each.nbctl("--wait=hv", "set", "Logical_Router", "r0", "options:chassis=hv1", *(f"options:{option}" for option in options))


def segment(first, flags, seq, ack, data=b""):
    """A later segment of the connection that `first` opens, from the same side."""
    frame = first.copy()
    frame[TCP].flags, frame[TCP].seq, frame[TCP].ack = flags, seq, ack
    return frame / data if data else frame


def test_bursts_of_connections(compared):
    """A burst of packets of many connections passes ACLs, load balancers and tunnels."""

    def scenario(each):
        each.repeats = True
        add_switches(each)
        each.nbctl("lb-add", "lb", "10.0.9.9:80", f"{ip('p12')}:8080", "udp", "--", "ls-lb-add", "s1", "lb")
        each.nbctl("acl-add", "s1", "from-lport", 1000, "udp", "allow-related")
        each.nbctl("--wait=hv", "acl-add", "s1", "to-lport", 1000, "udp.src == 2100", "drop")
        # A dummy device holds a hundred packets.
        sports = range(2050, 2140)
        each.receive("p11", *(routed("p11", "10.0.9.9", udp(80, sport)) for sport in sports))
        until(lambda: len(frames(each, "p12")) == len(sports) - 1, lambda: f"all but one: {len(frames(each, 'p12'))}")
        each.receive("p12", *(reply(frame) for frame in frames(each, "p12")))
        until(lambda: len(frames(each, "p11")) == len(sports) - 1, lambda: f"all answers: {len(frames(each, 'p11'))}")
        each.receive("p11", *(packet("p11", "p22", udp(9, sport)) for sport in sports))
        until(lambda: len(frames(each, "p22")) == len(sports) - 1, lambda: f"all of the other switch: {len(frames(each, 'p22'))}")

    compared(scenario)


def test_a_whole_connection(compared):
    """A TCP connection through NAT and a stateful ACL is opened, carries data both ways, is closed, and its port used again."""

    def scenario(each):
        gateway_router(each)
        each.nbctl("lr-nat-add", "r0", "snat", MINE, "10.0.1.0/24")
        each.nbctl("acl-add", "s1", "from-lport", 1000, "tcp", "allow-related")
        each.nbctl("--wait=hv", "acl-add", "s1", "to-lport", 10, 'outport == "p12" && ip4', "drop")
        introduce(each, "e1")
        first = routed("p12", ip("e1"), syn(80))
        asked, answered = converse(each, "p12", "e1", first)
        back = reply(asked)
        theirs, mine = answered[TCP].seq + 1, first[TCP].seq + 1
        send(each, "p12", segment(first, "PA", mine, theirs, b"question"), "e1", is_tcp)
        send(each, "e1", segment(back, "PA", theirs, mine + 8, b"answer"), "p12", is_tcp)
        send(each, "p12", segment(first, "FA", mine + 8, theirs + 6), "e1", is_tcp)
        send(each, "e1", segment(back, "FA", theirs + 6, mine + 9), "p12", is_tcp)
        send(each, "p12", segment(first, "A", mine + 9, theirs + 7), "e1", is_tcp)
        again = first.copy()
        again[TCP].seq = 90000
        converse(each, "p12", "e1", again)
        reset = segment(first, "R", 90001, 0)
        send(each, "p12", reset, "e1", is_tcp)
        # Not part of any connection.
        each.receive("e1", segment(back, "PA", 1, 1, b"stray"))
        each.receive("p12", segment(routed("p12", ip("e1"), syn(80, 1009)), "A", 7, 7))
        send(each, "p12", routed("p12", ip("e1"), udp(9)), "e1", lambda frame: UDP in frame)

    compared(scenario)


def test_a_router_commits_everything(compared):
    """With ct-commit-all, a router tracks all connections in its zones."""

    def scenario(each):
        gateway_router(each, "ct-commit-all=true")
        each.nbctl("lr-nat-add", "r0", "snat", MINE, "10.0.1.0/24")
        each.nbctl("lr-nat-add", "r0", "dnat_and_snat", "172.16.0.101", ip("p12"))
        each.central.sync()
        introduce(each, "e1")
        converse(each, "p11", "e1", routed("p11", ip("e1"), syn(80)))
        converse(each, "e1", "p12", routed("e1", "172.16.0.101", syn(80)))
        converse(each, "e1", "p22", routed("e1", ip("p22"), syn(80)))
        converse(each, "p11", "p22", packet("p11", "p22", syn(80, 1001)))

    compared(scenario)


def test_load_balanced_connections_have_the_routers_source(compared):
    """With lb_force_snat_ip=router_ip, a backend sees the address of the router's port that leads to it."""

    def scenario(each):
        gateway_router(each, "lb_force_snat_ip=router_ip")
        each.nbctl("lb-add", "lb", "172.16.0.100:80", f"{ip('p12')}:80", "--", "lr-lb-add", "r0", "lb")
        each.nbctl("lb-add", "skips", "172.16.0.100:81", f"{ip('p22')}:80", "--", "lr-lb-add", "r0", "skips")
        each.nbctl("--wait=hv", "set", "Load_Balancer", "skips", "options:skip_snat=true")
        introduce(each, "e1")
        asked, _ = converse(each, "e1", "p12", routed("e1", "172.16.0.100", syn(80)))
        assert asked[IP].src == "10.0.1.254"
        asked, _ = converse(each, "e1", "p22", routed("e1", "172.16.0.100", syn(81)))
        assert asked[IP].src == ip("e1")

    compared(scenario)


def test_routing_protocols_are_redirected(compared):
    """BGP and BFD to a router's port reach the logical port of a routing daemon."""

    def scenario(each):
        add_switches(each)
        options = ["routing-protocol-redirect=p11", "routing-protocols=BGP,BFD"]
        each.nbctl("--wait=hv", "lrp-set-options", "r0-s1", *options)
        asked = send(each, "p12", routed("p12", "10.0.1.254", syn(179)), "p11", is_tcp)
        answer = reply(asked)
        answer.src = "00:00:00:00:ff:01"
        send(each, "p11", answer, "p12", is_tcp)
        send(each, "p12", routed("p12", "10.0.1.254", udp(3784)), "p11", lambda frame: UDP in frame)
        echo = ICMP(type=8, id=1, seq=1)
        assert send(each, "p12", routed("p12", "10.0.1.254", echo), "p12", lambda frame: ICMP in frame)[ICMP].type == 0

    compared(scenario)


def test_stateless_acls_beside_load_balancers(compared):
    """A stateless ACL of a switch with a load balancer lets packets of connections pass that it does not track."""

    def scenario(each):
        add_switches(each)
        each.nbctl("lb-add", "lb", "10.0.9.9:80", f"{ip('p12')}:8080", "--", "ls-lb-add", "s1", "lb")
        each.nbctl("set", "Logical_Switch", "s1", "other_config:enable-stateless-acl-with-lb=true")
        each.nbctl("acl-add", "s1", "from-lport", 1000, "tcp", "allow-stateless")
        each.nbctl("--wait=hv", "acl-add", "s1", "to-lport", 1000, "tcp", "allow-stateless")
        converse(each, "p11", "p12", routed("p11", "10.0.9.9", syn(80)))
        converse(each, "p11", "p12", packet("p11", "p12", syn(81)))
        send(each, "p12", segment(packet("p12", "p11", syn(1)), "A", 5, 5), "p11", is_tcp)

    compared(scenario)


def test_connections_of_removed_next_hops(compared):
    """When a next hop of symmetric routes is removed, its connections are removed, too."""

    def scenario(each):
        add_switches(each)
        each.nbctl("set", "Logical_Router", "r0", "options:chassis=hv1")
        for port in ("p21", "p22"):
            each.nbctl("--ecmp-symmetric-reply", "lr-route-add", "r0", "20.0.0.0/8", ip(port))
        each.central.sync()
        for number, port in enumerate(("p21", "p22"), 1):
            frame = packet(port, "p12", syn(80, 3000 + number))
            frame[IP].src = f"20.0.0.{number}"
            converse(each, port, "p12", frame)
        each.nbctl("--wait=hv", "lr-route-del", "r0", "20.0.0.0/8", ip("p21"))
        frame = packet("p22", "p12", syn(80, 3009))
        frame[IP].src = "20.0.0.1"
        converse(each, "p22", "p12", frame)

    compared(scenario)


def test_traffic_stays_on_the_gateways_chassis(compared):
    """With reside-on-redirect-chassis, all packets of a switch cross the physical network to the gateway's chassis."""

    def scenario(each):
        add_switches(each)
        add_outside(each)
        words = ["lsp-add", "s1", "local1", "--", "lsp-set-type", "local1", "localnet", "--", "lsp-set-addresses", "local1", "unknown"]
        each.nbctl("--wait=sb", *words, "--", "lsp-set-options", "local1", "network_name=phys", "--", "set", "Logical_Switch_Port", "local1", "tag=11")
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", "hv1", 10)
        each.nbctl("--wait=hv", "lrp-set-options", "r0-s1", "reside-on-redirect-chassis=true")
        vary_own_bindings(each, "r0-s1", "r0-outside")
        introduce(each, "e1")
        asked = send(each, "p12", routed("p12", ip("e1"), udp()), "e1", lambda frame: UDP in frame)
        send(each, "e1", reply(asked), "p12", lambda frame: UDP in frame)
        send(each, "p12", packet("p12", "p21", udp(7)), "p21", lambda frame: UDP in frame)
        send(each, "p22", packet("p22", "p12", udp(8)), "p12", lambda frame: UDP in frame and frame[UDP].dport == 8)

    compared(scenario)
