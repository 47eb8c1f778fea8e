"""Logical networks of OVN that scenarios share: switches with hosts, a router between them, the outside, and packets of hosts.

Host pNH is host H of switch N: 10.0.N.H, fd00:N::H and 00:00:00:00:0N:0H, on chassis hvH. Host eH is a machine outside of OVN:
172.16.0.H, fd00:ee::H and 00:00:00:00:0e:0H.
"""

import time

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether

from waiting import until

BROADCAST = "ff:ff:ff:ff:ff:ff"
# The VLAN of the outside in the underlay, which keeps tunnels' packets away from its hosts.
OUTSIDE_VLAN = 10
OUTSIDE_MAC = "00:00:00:00:ff:0e"
OUTSIDE_ADDRESS = "172.16.0.254"


def mac(port):
    return f"00:00:00:00:0{'e' if port[0] == 'e' else port[1]}:0{port[-1]}"


def ip(port):
    return f"172.16.0.{port[1]}" if port[0] == "e" else f"10.0.{port[1]}.{port[2]}"


def ip6(port):
    return f"fd00:ee::{port[1]}" if port[0] == "e" else f"fd00:{port[1]}::{port[2]}"


def gateway(port):
    """The MAC address of the router's port in the host's network."""
    return OUTSIDE_MAC if port[0] == "e" else f"00:00:00:00:ff:0{port[1]}"


def add_switches(each, numbers=(1, 2), hosts=(1, 2), router="r0", ipv6=False):
    """Logical switches with hosts pNH, and a router between them (10.0.N.254, fd00:N::fe, 00:00:00:00:ff:0N)."""
    # Each port in a transaction of its own: northd numbers them in the order of their names otherwise.
    if router:
        each.nbctl("--wait=sb", "lr-add", router)
    for number in numbers:
        switch = f"s{number}"
        each.nbctl("--wait=sb", "ls-add", switch)
        if router:
            addresses = [f"10.0.{number}.254/24", *([f"fd00:{number}::fe/64"] if ipv6 else [])]
            join(each, router, switch, f"00:00:00:00:ff:0{number}", *addresses)
        for host in hosts:
            port = f"p{number}{host}"
            address = f"{mac(port)} {ip(port)}" + (f" {ip6(port)}" if ipv6 else "")
            each.nbctl("--wait=sb", "lsp-add", switch, port, "--", "lsp-set-addresses", port, address)
    for host in hosts:
        each.chassis[f"hv{host}"].add_vifs(*(f"p{number}{host}" for number in numbers))
    each.settle()


def join(each, router, switch, address, *networks, options=()):
    """Connects a router and a switch, by the ports ROUTER-SWITCH and SWITCH-ROUTER."""
    own, peer = f"{switch}-{router}", f"{router}-{switch}"
    each.nbctl("--wait=sb", "lrp-add", router, peer, address, *networks)
    words = ["lsp-add", switch, own, "--", "lsp-set-type", own, "router", "--", "lsp-set-addresses", own, "router"]
    each.nbctl("--wait=sb", *words, "--", "lsp-set-options", own, f"router-port={peer}", *options)


def add_outside(each, router="r0", hosts=(1,), ipv6=False, switch="outside", options=()):
    """A switch for the router's port `ROUTER-outside` (172.16.0.254) whose localnet port leads to machines in the underlay."""
    for chassis in each.chassis.values():
        chassis.switch.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=phys:br-phys")
    each.nbctl("--wait=sb", "ls-add", switch)
    words = ["lsp-add", switch, "local", "--", "lsp-set-type", "local", "localnet", "--", "lsp-set-addresses", "local", "unknown"]
    words += ["--", "lsp-set-options", "local", "network_name=phys"]
    each.nbctl("--wait=sb", *words, "--", "set", "Logical_Switch_Port", "local", f"tag_request={OUTSIDE_VLAN}", f"tag={OUTSIDE_VLAN}")
    networks = [f"{OUTSIDE_ADDRESS}/24", *(["fd00:ee::fe/64"] if ipv6 else [])]
    join(each, router, switch, OUTSIDE_MAC, *networks, options=options)
    for host in hosts:
        each.add_external(f"e{host}", OUTSIDE_VLAN)


def introduce(each, host, address=OUTSIDE_ADDRESS, hardware=OUTSIDE_MAC):
    """A machine outside asks for the router's address, and the router learns that of the machine from its question."""
    request = Ether(src=mac(host), dst=BROADCAST) / ARP(hwsrc=mac(host), psrc=ip(host), pdst=address)

    answered = lambda: any(ARP in frame and frame[ARP].op == 2 and frame[ARP].psrc == address for frame in frames(each, host))

    def asked():
        # The way to the outside may not be ready yet; ARP is compared without repetitions.
        each.receive(host, request)
        until(lambda: answered() or time.monotonic() > retry, "an answer or its time")
        return answered()

    retry = time.monotonic() + 2
    until(asked, f"an answer for {address} at {host}", interval_s=0.5)
    assert frames(each, host)[-1][ARP].hwsrc == hardware
    until(lambda: any(known == ip(host) for _, known, _ in each.mac_bindings()), f"the router knows {host}")
    each.central.sync()


def packet(source, destination, payload=None, **fields):
    """A packet from one port to another, by the router if their switches differ."""
    same = source[1] == destination[1]
    ether = Ether(src=mac(source), dst=mac(destination) if same else gateway(source))
    return ether / IP(src=ip(source), dst=ip(destination), **fields) / (payload or UDP(sport=1000, dport=2000))


def routed(source, address, payload=None, **fields):
    """A packet from a port to an address, by its router."""
    ether = Ether(src=mac(source), dst=gateway(source))
    network = IPv6(src=ip6(source), dst=address, **fields) if ":" in address else IP(src=ip(source), dst=address, **fields)
    return ether / network / (payload or UDP(sport=1000, dport=2000))


def frames(each, port):
    """All frames that the port has sent so far."""
    return [Ether(frame) for frame in each.sent(port)]


def arrives(each, port, count=1):
    """Waits until the port has sent so many frames in all, and returns the last one."""
    until(lambda: len(each.sent(port)) >= count, lambda: f"{count} frames at {port}, only {len(each.sent(port))}")
    return Ether(each.sent(port)[-1])


def matching(each, port, selects):
    """The frames at a port for which `selects` holds."""
    return [frame for frame in frames(each, port) if selects(frame)]


def send(each, source, frame, port, selects=lambda frame: True):
    """A port receives a frame; waits for one more frame that `port` sends and `selects` holds for, and returns that."""
    before = len(matching(each, port, selects))
    each.receive(source, frame)
    shown = lambda: f"frame {before + 1} at {port}; it has {[one.summary() for one in frames(each, port)]}"
    return until(lambda: matching(each, port, selects)[before:], shown)[0]


def exchange(each, source, frame, port):
    """Repeats a UDP packet until it has arrived at `port` and the answer to it has come back, however gateways move meanwhile."""
    each.repeats = True
    wanted = lambda one: UDP in one and one[UDP].dport == frame[UDP].dport
    back = lambda: [one for one in frames(each, source) if UDP in one and one[UDP].dport == frame[UDP].sport]

    def answered():
        before = len(matching(each, port, wanted))
        each.receive(source, frame)
        # Each answer counts, also those to requests of earlier rounds.
        found = matching(each, port, wanted)[before:]
        for asked in found:
            each.receive(port, reply(asked))
        return back()

    until(answered, f"an answer to {frame.summary()}", interval_s=0.3)


def sent_to_one_of(each, source, frame, ports):
    """A port receives a frame; waits until one of the ports sends a frame, and returns that port and the frame."""
    before = {port: len(each.sent(port)) for port in ports}
    each.receive(source, frame)
    found = lambda: [port for port in ports if len(each.sent(port)) > before[port]]
    (port,) = until(found, f"a frame at one of {ports}")
    return port, Ether(each.sent(port)[-1])


def reply(frame, payload=None):
    """The answer to a frame that has arrived, with the ports swapped; for TCP give the payload's flags by `payload`."""
    ether = Ether(src=frame.dst, dst=frame.src)
    network = IPv6(src=frame[IPv6].dst, dst=frame[IPv6].src) if IPv6 in frame else IP(src=frame[IP].dst, dst=frame[IP].src)
    if payload is None:
        kind = TCP if TCP in frame else UDP
        payload = kind(sport=frame[kind].dport, dport=frame[kind].sport)
        if kind is TCP:
            payload.flags, payload.seq, payload.ack = "SA", 5000, frame[TCP].seq + 1
    return ether / network / payload


def syn(dport, sport=1000):
    return TCP(sport=sport, dport=dport, flags="S", seq=100)


def converse(each, client, server, first):
    """A TCP connection is opened by the packet `first`; returns it as it reached the server, and the answer at the client."""
    tcp = lambda frame: TCP in frame
    asked = send(each, client, first, server, tcp)
    answered = send(each, server, reply(asked), client, tcp)
    third = first.copy()
    third[TCP].flags, third[TCP].seq, third[TCP].ack = "A", first[TCP].seq + 1, answered[TCP].seq + 1
    send(each, client, third, server, tcp)
    return asked, answered
