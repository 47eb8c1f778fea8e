"""Bonds with Linux's bonding driver at the other end: Debian's kernel in a virtual machine, with VLAN devices on its bond."""

import re
import subprocess

import pytest

from hosts import finish
from linux_bonds import PAIR, PORT, SPEEDS_MBPS, VLAN, VM, VM6, Ends, device, vlan_device

LACP = "mode 802.3ad xmit_hash_policy layer3+4"
BYTES = 20_000


@pytest.fixture(scope="module")
def machine(module_making, tmp_path_factory):
    made = Ends(module_making, tmp_path_factory.mktemp("vm"))
    yield made
    made.vm.end()


@pytest.fixture
def ends(machine):
    machine.reset()
    return machine


def exchange(ends):
    """One connection more over IPv4 and over IPv6, whose every byte comes back."""
    for address in (VM, VM6):
        ends.host.python("transfer.py", "exchange", address, PORT, BYTES, 0)


def start_steady(ends, count):
    """Connections that send all the time."""
    start = lambda: ends.host.start_python("transfer.py", "tcp-steady", VM, PORT, stdin=subprocess.PIPE)
    return [start() for _ in range(count)]


@pytest.mark.parametrize("mode, lacp", [("balance-tcp", "active"), ("active-backup", "passive")])
def test_lacp_negotiates_and_flows_use_both_links(ends, mode, lacp):
    ends.add_bond(mode, PAIR, f"lacp={lacp}")
    ends.add_linux_bond(f"{LACP} lacp_rate fast", PAIR)
    ends.until(lambda: ends.may_enable() == [True, True] and ends.agree(PAIR), "two ends that agree")
    ends.ping()

    # Linux chooses a link for each connection, and so does balance-tcp: more connections, until both links carried some.
    before = {tap: ends.bytes(tap) for tap in PAIR}

    def are_used():
        exchange(ends)
        come, sent = zip(*([after - first for after, first in zip(ends.bytes(tap), before[tap])] for tap in PAIR))
        return min(come) >= BYTES and (min(sent) >= BYTES or mode == "active-backup")

    ends.until(are_used, "traffic on both links")


def test_lacp_notices_a_failure_that_leaves_the_carrier_up(ends):
    ends.add_bond("balance-tcp", PAIR, "lacp=active")
    ends.add_linux_bond(f"{LACP} lacp_rate fast", PAIR)
    ends.until(lambda: ends.agree(PAIR), "two ends that agree")
    steady = start_steady(ends, 4)
    ends.vm.run("ip link set eth1 down")
    ends.until(lambda: ends.may_enable() == [True, False], "the end of a member")
    ends.until(lambda: not ends.bond()["members"]["tap1"]["enabled"], "a disabled member of the bond")
    ends.ping()
    exchange(ends)
    ends.vm.run("ip link set eth1 up")
    ends.until(lambda: ends.may_enable() == [True, True] and ends.agree(PAIR), "both members again")
    ends.ping()
    for process in steady:
        finish(process)


def test_lacp_with_a_passive_linux_aggregates_links_of_one_speed(ends):
    taps = list(SPEEDS_MBPS)
    ends.add_bond("balance-tcp", taps, "lacp=active")
    ends.add_linux_bond(f"{LACP} lacp_rate slow lacp_active off ad_select bandwidth", taps)
    ends.until(lambda: ends.may_enable() == [True, True, False] and ends.agree(PAIR), "an aggregate of two links")
    assert "activity" not in ends.members()["tap0"]["partner"]["state"]

    def stays_apart():
        linux, other = ends.linux_bond(), ends.members()["tap2"]
        theirs = linux.members["eth2"]
        return theirs["aggregator"] != linux.aggregator and theirs["actor"] == other["partner"] and not other["attached"]

    # Linux announces another key for it.
    ends.until(stays_apart, "the slower link outside the aggregate")
    ends.ping()
    exchange(ends)


def test_a_bond_falls_back_to_active_backup_until_linux_has_lacp(ends):
    ends.add_bond("balance-tcp", PAIR, "lacp=active", "other_config:lacp-fallback-ab=true")
    ends.add_linux_bond("mode active-backup", PAIR)
    ends.until(lambda: ends.may_enable() == [True, True] and ends.bond()["active_member"], "the fallback")
    assert ends.bond()["lacp_status"] == "configured"
    ends.vm.run(f"ip link set bond0 type bond active_slave {device(ends.bond()['active_member'])}")
    ends.ping()
    exchange(ends)

    ends.vm.run("ip link del bond0")
    ends.add_linux_bond(f"{LACP} lacp_rate fast", PAIR)
    ends.until(lambda: ends.bond()["lacp_status"] == "negotiated" and ends.agree(PAIR), "two ends that agree")
    ends.ping()
    exchange(ends)


def test_active_backup_at_both_ends_fails_over(ends):
    ends.add_bond("active-backup", PAIR)
    ends.add_linux_bond("mode active-backup", PAIR)
    linux_active = lambda: ends.vm.run("cat /sys/class/net/bond0/bonding/active_slave").out.strip()
    active = lambda tap: ends.bond()["active_member"] == tap and linux_active() == device(tap)
    ends.until(lambda: active("tap0"), "the first member at both ends")
    ends.ping()
    steady = start_steady(ends, 1)
    for failed, other in (PAIR, PAIR[::-1]):
        with ends.without_carrier(failed):
            ends.until(lambda: active(other), "the other member at both ends")
            assert not ends.bond()["members"][failed]["enabled"]
            ends.ping()
        ends.until(lambda: ends.bond()["members"][failed]["enabled"], "the member's return")
        # Nothing prefers it.
        assert active(other)
        ends.ping()
    finish(steady[0])


def test_a_linux_bridge_learns_from_gratuitous_frames(ends):
    """The bridge has two of the cables as ports. Frames of the wrong one get lost, since the switch drops them."""
    vm, mac = ends.vm, ends.host.mac
    ends.add_bond("active-backup", PAIR)
    lines = ["link add bridge0 type bridge vlan_filtering 1"]
    lines += [f"link set {device(tap)} master bridge0 up" for tap in PAIR]
    vm.batch("ip", [*lines, "link set bridge0 up", *vlan_device("bridge0")])
    vm.batch("bridge", [f"vlan add vid {VLAN} dev {name}" for name in ("eth0", "eth1", "bridge0 self")])
    rarp = f"protocol 802.1q flower src_mac {mac} vlan_id {VLAN} vlan_ethtype 0x8035 action pass"
    vm.batch("tc", [f"qdisc add dev {device(tap)} clsact" for tap in PAIR])
    vm.batch("tc", [f"filter add dev {device(tap)} ingress {rarp}" for tap in PAIR])
    announced = lambda tap: int(re.search(r"(\d+) pkt", vm.run(f"tc -s filter show dev {device(tap)} ingress").out).group(1))
    learned = lambda tap: f"{mac} dev {device(tap)} vlan {VLAN}" in vm.run("bridge fdb show br bridge0").out

    ends.until(lambda: ends.bond()["active_member"] == "tap0", "an active member")
    ends.ping()
    assert learned("tap0")

    def until_moved(tap, before):
        ends.until(lambda: announced(tap) > before and learned(tap), f"the host's address on {tap}")
        ends.ping()

    # An operator's choice, and then a failure.
    for tap in PAIR[::-1]:
        before = announced(tap)
        ends.switch.appctl("bond/set-active-member", "bond0", tap)
        until_moved(tap, before)
    before = announced("tap1")
    with ends.without_carrier("tap0"):
        until_moved("tap1", before)
