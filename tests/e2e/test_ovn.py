"""OVN over our databases and switches, and over those of Open vSwitch: both networks do and show the same."""

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether

from ovn import Network, difference
from waiting import until


@pytest.fixture
def network(making):
    made = []

    def make(maker=None):
        made.append(Network(making, maker))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def compared(making, network):
    """Runs a scenario on both networks, and compares what they show at its end."""

    def run(scenario, **settings):
        shown = []
        for maker in (making.peers, None):
            each = network(maker)
            each.start(**settings)
            scenario(each)
            shown.append(each.shown())
        theirs, ours = shown
        assert not (text := difference(ours, theirs)), text

    return run


def add_switches(each, numbers=(1, 2), hosts=(1, 2), router="r0"):
    """Logical switches with hosts pNH (10.0.N.H, 00:00:00:00:0N:0H), and a router between them (10.0.N.254, 00:00:00:00:ff:0N).
    Host H is on chassis hvH."""
    # Each port in a transaction of its own: northd numbers them in the order of their names otherwise.
    each.nbctl("lr-add", router)
    for number in numbers:
        switch, own, peer = f"s{number}", f"s{number}-{router}", f"{router}-s{number}"
        each.nbctl("--wait=sb", "ls-add", switch)
        each.nbctl("--wait=sb", "lrp-add", router, peer, f"00:00:00:00:ff:0{number}", f"10.0.{number}.254/24")
        words = ["lsp-add", switch, own, "--", "lsp-set-type", own, "router", "--", "lsp-set-addresses", own, "router"]
        each.nbctl("--wait=sb", *words, "--", "lsp-set-options", own, f"router-port={peer}")
        for host in hosts:
            port = f"p{number}{host}"
            each.nbctl("--wait=sb", "lsp-add", switch, port, "--", "lsp-set-addresses", port, f"{mac(port)} {ip(port)}")
    for host in hosts:
        for number in numbers:
            each.chassis[f"hv{host}"].add_vif(f"p{number}{host}")
    each.settle()


def mac(port):
    return f"00:00:00:00:0{port[1]}:0{port[2]}"


def ip(port):
    return f"10.0.{port[1]}.{port[2]}"


def packet(source, destination, payload=None, **fields):
    """A packet from one port to another, by the router if their switches differ."""
    same = source[1] == destination[1]
    ether = Ether(src=mac(source), dst=mac(destination) if same else f"00:00:00:00:ff:0{source[1]}")
    return ether / IP(src=ip(source), dst=ip(destination), **fields) / (payload or UDP(sport=1000, dport=2000))


def arrives(each, port, count=1):
    """Waits until the port has sent so many frames in all, and returns the last one."""
    until(lambda: len(each.sent(port)) >= count, lambda: f"{count} frames at {port}, only {len(each.sent(port))}")
    return Ether(each.sent(port)[-1])


def test_two_switches_and_a_router(compared):
    def scenario(each):
        add_switches(each)
        each.receive("p11", packet("p11", "p12"))
        assert bytes(arrives(each, "p12")) == bytes(packet("p11", "p12"))
        each.receive("p11", packet("p11", "p21"))
        assert arrives(each, "p21")[IP].ttl == 63
        each.receive("p11", packet("p11", "p22"))
        assert arrives(each, "p22")[Ether].src == "00:00:00:00:ff:02"
        request = Ether(src=mac("p22"), dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=ip("p22"), pdst="10.0.2.254", hwsrc=mac("p22"))
        each.receive("p22", request)
        assert arrives(each, "p22", 2)[ARP].hwsrc == "00:00:00:00:ff:02"
        echo = Ether(src=mac("p22"), dst="00:00:00:00:ff:02") / IP(src=ip("p22"), dst="10.0.1.254") / ICMP()
        each.receive("p22", echo)
        assert arrives(each, "p22", 3)[ICMP].type == 0

    compared(scenario)
