"""Ports that are added, removed and fail while others have traffic: connections of other hosts survive, for all
types, and the port works again when its device does."""

import subprocess

import pytest

from ends import KINDS, AfXdp, End
from hosts import finish
from waiting import until


class Bystanders:
    """Connections between unaffected hosts, with continuous packets."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __enter__(self):
        self.echoes = [two.start_python("transfer.py", "tcp-echo", two.at(1), 6000) for _, two in self.pairs]
        self.steady = [
            one.start_python("transfer.py", "tcp-steady", two.at(1), 6000, stdin=subprocess.PIPE) for one, two in self.pairs
        ]
        return self

    def __exit__(self, kind, *_):
        told = [finish(process, check=kind is None) for process in self.steady + self.echoes]
        if kind is None:
            for one in told[: len(self.pairs)]:
                assert int(one.out.split()[0]) > 0
                print(f"rounds, longest wait in s: {one.out.strip()}")


class Pings:
    """A host that pings another continuously, whether answered or not."""

    def __init__(self, host, address):
        self.host, self.address = host, address

    def __enter__(self):
        self.process = self.host.start("ping", "-f", "-i", "0.01", self.address, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def place(module_making):
    """A switch and two pairs of hosts on it: over packet sockets and over AF_XDP."""
    switch = module_making.switch(start="kernel")
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    hosts = [kind(module_making, switch, number) for number, kind in enumerate((End, End, AfXdp, AfXdp), 1)]
    for host in hosts:
        host.settle("e0", 1)
    return module_making, switch, [hosts[:2], hosts[2:]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_port_is_added_removed_and_fails(place, kind):
    making, switch, pairs = place
    (one, _), (other, _) = pairs
    number = 10 + list(KINDS).index(kind)
    victim_address = f"10.1.0.{number}"
    with Bystanders(pairs), Pings(one, victim_address), Pings(other, victim_address):
        victim = KINDS[kind](making, switch, number)

        def works():
            victim.run("ip", "addr", "flush", "dev", "e0")
            victim.settle("e0", 1)
            for host in (one, other):
                # A new device may have a new address.
                host.run("ip", "neigh", "flush", "dev", "e0")
                host.ping(victim_address)
                victim.ping(host.at(1))

        works()
        for _ in range(3):
            victim.delete_port()
            victim.add_port()
        victim.replug()
        works()
        victim.delete_device()
        victim.revive()
        works()
        victim.delete_host()
        victim.revive()
        works()
        victim.delete_port()


def test_the_switch_is_killed_and_restarted(place):
    _, switch, pairs = place
    with Bystanders(pairs):
        for _ in range(2):
            switch.kill("ovs-vswitchd")
            switch.start_switch("--enable-dummy")
            for one, two in pairs:
                one.ping(two.at(1))
    until(lambda: switch.vsctl("get", "interface", "p1", "error") == "[]", "the port")


def test_packet_threads_are_waited_for_once_however_many_ports_go(making):
    switch = making.switch()
    ports = [f"p{number}" for number in range(40)]
    switch.add_dummy_bridge("br0", *ports)

    def waits():
        return int(switch.appctl("coverage/read-counter", "devices_synchronize", check=False) or 0)

    def delete(*gone):
        """Deletes ports in one transaction, and returns how often the switch waited."""
        before = waits()
        switch.vsctl(*[word for port in gone for word in ("--", "del-port", "br0", port)])
        return waits() - before

    assert delete(ports[0]) == 1
    assert delete(*ports[1:]) == 1
    # A bridge with its ports.
    switch.add_dummy_bridge("br1", *ports[1:])
    before = waits()
    switch.vsctl("del-br", "br1", "--", "del-br", "br0")
    assert waits() - before == 1
