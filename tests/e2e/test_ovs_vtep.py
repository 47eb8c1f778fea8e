"""ovs-vtep: two emulated VTEPs, driven by vtep-ctl, with frames between their ports; and the same with all of Open
vSwitch's programs, compared: rows, bridges, ports, and where frames go."""

import os
import signal

import pytest
from scapy.layers.l2 import Dot1Q, Ether

from vteps import NAME, Pair, address
from waiting import until

MAC1, MAC2, MAC3, FAR = "02:00:00:00:01:01", "02:00:00:00:01:02", "02:00:00:00:02:01", "02:00:00:00:09:09"
ALL = "ff:ff:ff:ff:ff:ff"
KEY = 33
# The Ethernet type of local experiments (IEEE 802, section 9.2.4).
EXPERIMENTAL = 0x88B5


@pytest.fixture
def pairs(making):
    made = []

    def make(maker=None):
        made.append(Pair(making, maker))
        return made[-1].start()

    yield make
    wrong = [line for each in made for line in each.stop()]
    assert not wrong, "\n".join(wrong)


def tagged(source, destination, vlan):
    return Ether(src=source, dst=destination) / Dot1Q(vlan=vlan, type=EXPERIMENTAL)


def shows(host, check, what):
    """Waits until what the host shows satisfies the check."""
    last = {}

    def satisfied():
        nonlocal last
        last = host.shown()
        return check(last)

    until(satisfied, lambda: f"{what}: {last}")


def is_complete(shown):
    """Whether BFD is set at all tunnels, for which Open vSwitch's script needs several commands."""
    ports = shown["bridges"]["vtep_bfd"][2]
    return all("bfd_remote_dst_mac" in bfd for kind, _, _, bfd in ports if kind == "vxlan") and all(
        "enabled" in tunnel[3] and "bfd_dst_mac" in tunnel[2] for tunnel in shown["rows"]["tunnels"]
    )


def connect(pair, mode=None):
    """A logical switch over both hosts: p1 untagged and VLAN 7 of p2 of the first one, p1 of the second one."""
    for host, other in ((pair.one, pair.two), (pair.two, pair.one)):
        until(lambda host=host: host.vtep("list-ports", NAME).split() == ["p1", "p2"], "the ports of the physical switch")
        host.vtep("add-ls", "ls0", "--", "set", "Logical_Switch", "ls0", f"tunnel_key={KEY}")
        host.vtep("bind-ls", NAME, "p1", "0", "ls0")
        host.vtep("add-mcast-remote", "ls0", "unknown-dst", other.address)
        if mode:
            host.vtep("set-replication-mode", "ls0", mode)
    pair.one.vtep("bind-ls", NAME, "p2", "7", "ls0")


def scenario(pair, record):
    """What both makers' emulators do alike; `record` notes what the hosts show."""
    one, two = pair.one, pair.two
    first, second = (lambda frame: one.receive("p1", frame)), (lambda frame: one.receive("p2", frame))
    remote = lambda frame: two.receive("p1", frame)
    connect(pair)

    def note(step, *hosts):
        for host in hosts:
            shows(host, is_complete, "settings and status of BFD")
        record(step, [host.shown() for host in hosts])

    # Broadcasts and unknown destinations go to all ports but their own, with the tags of their VLANs.
    with_tag, without = pair.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", "h2.p1")
    assert Ether(with_tag)[Dot1Q].vlan == 7 and Dot1Q not in Ether(without)
    pair.goes(second, tagged(MAC2, ALL, 7), "h1.p1", "h2.p1")
    pair.goes(remote, Ether(src=MAC3, dst=ALL), "h1.p1", "h1.p2")
    pair.goes(first, Ether(src=MAC1, dst=FAR), "h1.p2", "h2.p1")
    # Tags that are not bound.
    pair.goes(second, tagged(MAC2, ALL, 8))
    pair.goes(second, Ether(src=MAC2, dst=ALL))

    # Learned addresses are reported; known ones have their frames alone.
    for host, expected in ((one, [("ls0", MAC1), ("ls0", MAC2)]), (two, [("ls0", MAC3)])):
        until(lambda host=host, expected=expected: host.local_macs() == expected, lambda host=host: f"addresses, only {host.local_macs()}")
    pair.goes(first, Ether(src=MAC1, dst=MAC2), "h1.p2")
    one.vtep("add-ucast-remote", "ls0", MAC3, two.address)
    two.vtep("add-ucast-remote", "ls0", MAC1, one.address)
    pair.goes(first, Ether(src=MAC1, dst=MAC3), "h2.p1")
    pair.goes(remote, Ether(src=MAC3, dst=MAC1), "h1.p1")

    # An endpoint without a switch, to which a remote address moves.
    one.vtep("add-ucast-remote", "ls0", FAR, address(9))
    pair.goes(first, Ether(src=MAC1, dst=FAR), f"{address(9)}/{KEY}")
    pair.goes(lambda frame: one.receive_tunnelled(9, KEY, frame), Ether(src=FAR, dst=MAC1), "h1.p1")
    pair.goes(lambda frame: one.receive_tunnelled(9, KEY + 1, frame), Ether(src=FAR, dst=MAC1))
    one.vtep("add-ucast-remote", "ls0", FAR, address(8))
    pair.goes(first, Ether(src=MAC1, dst=FAR), f"{address(8)}/{KEY}")
    for host in pair.hosts:
        endpoints = 3 - host.number
        shows(host, lambda shown, n=endpoints: len(shown["rows"]["tunnels"]) == n, f"{endpoints} tunnels")
    for host, expected in ((one, [("ls0", MAC1), ("ls0", MAC2)]), (two, [("ls0", MAC3)])):
        send = first if host is one else remote
        known = expected[0][1]
        # An address is forgotten after 15 s without frames.
        pair.goes(send, Ether(src=known, dst=FAR if host is one else ALL), *([f"{address(8)}/{KEY}"] if host is one else ["h1.p1", "h1.p2"]))
    note("connected", one, two)

    # All endpoints of unknown destinations receive copies, in one of the modes.
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    one.vtep("set-replication-mode", "ls0", "source_node")
    pair.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", "h2.p1", f"{address(9)}/{KEY}")
    pair.goes(lambda frame: one.receive_tunnelled(9, KEY, frame), Ether(src=FAR, dst=ALL), "h1.p1", "h1.p2")
    one.vtep("set-replication-mode", "ls0", "service_node")
    one.vtep("del-mcast-remote", "ls0", "unknown-dst", two.address)
    pair.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    one.vtep("del-mcast-remote", "ls0", "unknown-dst", address(9))
    pair.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2")

    # A second logical switch takes a binding.
    one.vtep("add-ls", "ls1", "--", "set", "Logical_Switch", "ls1", f"tunnel_key={KEY + 1}")
    rebound = ["unbind-ls", NAME, "p2", "7", "--", "bind-ls", NAME, "p2", "7", "ls1", "--", "bind-ls", NAME, "p1", "9", "ls1"]
    one.vtep(*rebound)
    pair.goes(first, Ether(src=MAC1, dst=ALL))
    pair.goes(first, tagged(MAC1, ALL, 9), "h1.p2")
    [frame] = pair.goes(second, tagged(MAC2, ALL, 7), "h1.p1")
    assert Ether(frame)[Dot1Q].vlan == 9
    until(lambda: ("ls1", MAC2) in one.local_macs(), "the address in the other switch")

    # Bindings, ports and logical switches are removed.
    one.vtep("unbind-ls", NAME, "p1", "9")
    pair.goes(second, tagged(MAC2, ALL, 7))
    one.vtep("unbind-ls", NAME, "p2", "7")
    shows(one, lambda shown: "ls1" not in shown["bridges"], "no bridge of ls1")
    one.vtep("unbind-ls", NAME, "p1", "0", "--", "clear-remote-macs", "ls0")
    shows(one, lambda shown: "ls0" not in shown["bridges"] and not shown["rows"]["tunnels"], "no bridge of ls0")
    shows(one, lambda shown: not shown["rows"]["unicast Local"], "no local addresses")
    one.vtep("del-ls", "ls1")
    one.switch.vsctl("del-port", "p2")
    one.add_port("p3")
    shows(one, lambda shown: [port[0] for port in shown["rows"]["ports"]] == ["p1", "p3"], "the port p3 in the place of p2")
    note("disconnected", one)


def test_both_emulators_do_the_same(making, pairs):
    recorded = []
    for maker in (making.peers, None):
        steps = {}
        scenario(pairs(maker), steps.__setitem__)
        recorded.append(steps)
    theirs, ours = recorded
    different = []
    for step, shown in theirs.items():
        for number, (their, our) in enumerate(zip(shown, ours[step]), 1):
            for title in ("rows", "bridges"):
                keys = their[title].keys() | our[title].keys()
                both = [(key, their[title].get(key), our[title].get(key)) for key in sorted(keys)]
                different += [f"{step}, host {number}, {key}:\n  {a}\n  {b}" for key, a, b in both if a != b]
    assert not different, "theirs, ours:\n" + "\n".join(different)
