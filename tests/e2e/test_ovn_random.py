"""Random ACLs, load balancers, translations and policies of OVN, and random packets through them, on both makers' switches.

FLOWSTONE_OVN_SEEDS=3,4,5 names other networks than the usual ones, FLOWSTONE_OVN_PACKETS another number of packets.
"""

import os
import random

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Ether
from scapy.layers.sctp import SCTP, SCTPChunkInit

from logical import add_outside, add_switches, frames, gateway, introduce, ip, ip6, mac
from waiting import until

PORTS = ("p11", "p12", "p13", "p21", "p22", "p23")
SERVICES = (53, 80, 443, 8080)
VIPS = ("10.0.9.1", "10.0.9.2", "172.16.0.110", "172.16.0.111")
FLOATING = {"172.16.0.101": "p11", "172.16.0.102": "p12", "172.16.0.103": "p23"}
PACKETS = int(os.environ.get("FLOWSTONE_OVN_PACKETS", 40))


def match(choose):
    """A random match of ACLs and policies."""
    terms = [
        choose.choice([f"ip4.src == {ip(choose.choice(PORTS))}", "ip4.src == 10.0.1.0/24", "ip4.dst == 10.0.2.0/24", "ip", "ip4", "ip6"]),
        choose.choice(["udp", "tcp", "icmp4", "icmp", "sctp", "ip"]),
    ]
    service = choose.choice(SERVICES)
    terms += choose.choice([[], [f"udp.dst == {service}"], [f"tcp.dst == {service}"], [f"tcp.dst >= {service}"], ["ip.ttl == 64"], ["ip.is_frag"], ["ct.est"]])
    return " && ".join(terms)


def acl(choose, switch):
    direction = choose.choice(["from-lport", "to-lport"])
    action = choose.choice(["allow", "allow-related", "allow-related", "drop", "reject", "allow-stateless", "pass"])
    text = match(choose)
    if choose.random() < 0.4:
        side = "inport" if direction == "from-lport" else "outport"
        text += f' && {side} == "{choose.choice([port for port in PORTS if port[1] == switch[1]])}"'
    options = ["--log"] if choose.random() < 0.2 else []
    return [*options, "--may-exist", "acl-add", switch, direction, choose.randrange(1, 1000), text, action]


def configure(each, choose):
    """Random rows of the northbound database."""
    each.nbctl("lrp-set-gateway-chassis", "r0-outside", choose.choice(["hv1", "hv2", "hv3"]), 10)
    if choose.random() < 0.7:
        each.nbctl("lr-nat-add", "r0", "snat", "172.16.0.254", "10.0.0.0/16")
    for address, port in FLOATING.items():
        if choose.random() < 0.6:
            place = [port, f"00:00:00:00:fa:{address[-2:]}"] if choose.random() < 0.5 else []
            each.nbctl("lr-nat-add", "r0", "dnat_and_snat", address, ip(port), *place)
    for number, vip in enumerate(VIPS):
        if choose.random() < 0.7:
            name = f"lb{number}"
            ports = choose.random() < 0.8
            protocol = [choose.choice(["udp", "tcp"])] if ports else []
            backend = ip(choose.choice(PORTS))
            each.nbctl("lb-add", name, f"{vip}:80" if ports else vip, f"{backend}:8080" if ports else backend, *protocol)
            if choose.random() < 0.7 or number < 2:
                each.nbctl("ls-lb-add", choose.choice(["s1", "s2"]), name)
            if choose.random() < 0.7:
                each.nbctl("lr-lb-add", "r0", name)
    for switch in ("s1", "s2"):
        for _ in range(choose.randrange(0, 8)):
            each.nbctl(*acl(choose, switch))
    for number in range(choose.randrange(0, 3)):
        action = choose.choice([["allow"], ["drop"], ["reroute", ip(choose.choice(PORTS))]])
        text = f"ip4.src == {ip(choose.choice(PORTS))} && udp.dst == {choose.choice(SERVICES)}"
        each.nbctl("--may-exist", "lr-policy-add", "r0", 100 + number, text, *action)
    each.central.sync()


def frame(choose, answers):
    """A random frame of a random host, and the port that receives it."""
    if answers and choose.random() < 0.35:
        return answer(choose, *choose.choice(answers))
    source = choose.choice([*PORTS, "e1"])
    target = choose.choice([*(ip(port) for port in PORTS), *VIPS, *FLOATING, ip("e1"), "10.0.1.254", "172.16.0.254", "10.0.1.99"])
    fields = {"ttl": choose.choice([64, 64, 64, 64, 2, 1])}
    sport, dport = choose.choice([1000, 1001]), choose.choice(SERVICES)
    tcp = TCP(sport=sport, dport=dport, seq=100, ack=200, flags=choose.choice(["S", "S", "S", "A", "R", "FA", "PA"]))
    payload = choose.choice(
        [
            UDP(sport=sport, dport=dport),
            UDP(sport=sport, dport=dport) / b"data",
            tcp,
            tcp,
            ICMP(type=8, id=sport, seq=1) / b"echo",
            SCTP(sport=sport, dport=dport) / SCTPChunkInit(init_tag=1, n_out_streams=1, n_in_streams=1),
        ]
    )
    if source != "e1" and choose.random() < 0.15:
        other = choose.choice(PORTS)
        payload = ICMPv6EchoRequest(id=sport) if ICMP in payload else payload
        network = IPv6(src=ip6(source), dst=ip6(other), hlim=fields["ttl"])
        target = ip(other)
    else:
        network = IP(src=ip(source), dst=target, **fields)
    near = [port for port in PORTS if ip(port) == target and port[1] == source[1] and source != "e1"]
    ether = Ether(src=mac(source), dst=mac(near[0]) if near else gateway(source))
    return source, ether / network / payload


def answer(choose, port, asked):
    """The answer to a frame that a port has got, or an error about it."""
    ether = Ether(src=asked.dst, dst=asked.src)
    if IP not in asked or asked.dst != mac(port):
        return port, ether / IP(src=ip(port), dst=ip("p11")) / UDP(sport=53, dport=1000)
    network = IP(src=asked[IP].dst, dst=asked[IP].src)
    if choose.random() < 0.2:
        return port, ether / network / ICMP(type=3, code=3) / bytes(asked[IP])[:28]
    if UDP in asked:
        return port, ether / network / UDP(sport=asked[UDP].dport, dport=asked[UDP].sport)
    if TCP in asked:
        flags = choose.choice(["SA", "SA", "A", "RA", "FA"])
        return port, ether / network / TCP(sport=asked[TCP].dport, dport=asked[TCP].sport, flags=flags, seq=200, ack=asked[TCP].seq + 1)
    if ICMP in asked and asked[ICMP].type == 8:
        return port, ether / network / ICMP(type=0, id=asked[ICMP].id, seq=1) / b"echo"
    return port, ether / network / UDP(sport=53, dport=1000)


def quiet(each):
    """Waits until no port has sent a frame for some polls in a row."""
    ports = [*PORTS, "e1"]
    last = []

    def settled():
        last.append(tuple(len(each.sent(port)) for port in ports))
        return len(last) > 4 and len(set(last[-4:])) == 1

    until(settled, "silence")


@pytest.mark.parametrize("seed", [int(seed) for seed in os.environ.get("FLOWSTONE_OVN_SEEDS", "1,2").split(",")])
def test_random_networks(compared, seed):
    """Random packets through a random configuration have the same fates."""

    def scenario(each):
        choose = random.Random(seed)
        add_switches(each, hosts=(1, 2, 3), ipv6=True)
        add_outside(each)
        configure(each, choose)
        introduce(each, "e1")
        each.repeats = True
        for _ in range(PACKETS):
            known = [(port, one) for port in (*PORTS, "e1") for one in frames(each, port) if IP in one]
            known.sort(key=lambda pair: (pair[0], bytes(pair[1])))
            source, sent = frame(choose, known)
            each.receive(source, sent)
            quiet(each)

    compared(scenario, chassis=3)
