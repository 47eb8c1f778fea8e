"""Bonds between two bridges over real cables: failover with traffic, by carrier and by BFD, and the state in the database; groups
that follow BFD on the same cables."""

import re
import subprocess

import pytest

from switch import run
from waiting import until

PINGS = 80


def cable(switch, number):
    """A cable between the ends aN and bN in the switch's namespace."""
    words = ["link", "add", f"a{number}", "type", "veth", "peer", "name", f"b{number}"]
    run(["ip", "-n", switch.namespace, *words])
    for end in "ab":
        set_link(switch, f"{end}{number}", "up")


def set_link(switch, name, state):
    run(["ip", "-n", switch.namespace, "link", "set", name, state])


def active(switch):
    """The name of the active member of bond0."""
    return re.search(r"active member mac: \S+\((\w+)\)", switch.appctl("bond/show", "bond0")).group(1)


def active_address(switch):
    return switch.vsctl("get", "port", "bond0", "bond_active_slave").strip('"')


def broadcasts(host):
    """How many broadcast packets a host has received."""
    names, values = [line.split() for line in host.run("cat", "/proc/net/netstat").out.splitlines() if "IpExt" in line]
    return int(values[names.index("InBcastPkts")])


@pytest.fixture
def hosts(kernel_switch, making):
    """Two hosts, on bridges that two cables connect: a bond on the first, two plain ports on the second."""
    switch = kernel_switch
    for number in (1, 2):
        cable(switch, number)
    hosts = [making.host(switch, number) for number in (1, 2)]
    for number, host in enumerate(hosts):
        switch.vsctl("add-br", f"br{number}", "--", "set", "bridge", f"br{number}", "datapath_type=netdev")
        switch.vsctl("add-port", f"br{number}", host.port)
    return switch, hosts


@pytest.mark.parametrize("mode", ["active-backup", "balance-slb"])
def test_traffic_survives_failures_of_members(hosts, mode):
    switch, (near, far) = hosts
    switch.vsctl("add-bond", "br0", "bond0", "a1", "a2", f"bond_mode={mode}")
    # Only now: two plain ports at each end would be a loop.
    for port in ("b1", "b2"):
        switch.vsctl("add-port", "br1", port)
    until(lambda: active(switch) != "none", "an active member")
    near.ping(far.address)
    ping = subprocess.Popen(
        near.words("ping", "-i", "0.1", "-c", PINGS, "-w", "60", far.address), stdout=subprocess.PIPE, text=True
    )
    try:
        for _ in range(2):
            before = active(switch)
            set_link(switch, before.replace("a", "b"), "down")
            until(lambda: active(switch) not in (before, "none"), "another active member")
            mac = switch.vsctl("get", "interface", active(switch), "mac_in_use").strip('"')
            until(lambda: active_address(switch) == mac, "its address in the database")
            assert f"member {before}: disabled" in switch.appctl("bond/show", "bond0")
            set_link(switch, before.replace("a", "b"), "up")
            until(lambda: f"member {before}: enabled" in switch.appctl("bond/show", "bond0"), "the member's return")
        text = ping.communicate(timeout=90)[0]
    finally:
        ping.kill()
    received = int(re.search(r"(\d+) received", text).group(1))
    assert received >= PINGS * 3 // 4, text
    assert f"bond bond0: active member is now {active(switch)}" in switch.log("ovs-vswitchd")


def test_broadcasts_enter_by_one_member(hosts):
    """The second bridge floods to both members: each broadcast frame reaches the host once, and none returns."""
    switch, (near, far) = hosts
    switch.vsctl("add-bond", "br0", "bond0", "a1", "a2", "bond_mode=balance-slb")
    for port in ("b1", "b2"):
        switch.vsctl("add-port", "br1", port)
    until(lambda: active(switch) != "none", "an active member")
    near.ping(far.address)
    before = broadcasts(near)
    far.run("ping", "-b", "-c", "5", "-i", "0.2", "-W", "1", "10.1.0.255", check=False)
    until(lambda: broadcasts(near) >= before + 5, "the broadcast frames")
    # A copy would be here before the answer to a later request.
    near.ping(far.address)
    assert broadcasts(near) == before + 5


def test_members_come_and_go(hosts):
    switch, (near, far) = hosts
    switch.vsctl("add-bond", "br0", "bond0", "a1", "a2", "bond_mode=active-backup", "other_config:bond-primary=a2")
    switch.vsctl("add-port", "br1", "b2")
    until(lambda: active(switch) == "a2", "the primary member")
    near.ping(far.address)
    switch.vsctl("del-bond-iface", "bond0", "a2")
    switch.vsctl("del-port", "b2", "--", "add-port", "br1", "b1")
    until(lambda: "bond0" not in switch.appctl("bond/list"), "a plain port")
    near.ping(far.address)
    switch.vsctl("add-bond-iface", "bond0", "a2")
    until(lambda: "a1, a2" in switch.appctl("bond/list"), "a bond of two members")
    switch.vsctl("del-port", "bond0")
    until(lambda: "bond0" not in switch.appctl("bond/list"), "no bond")


def set_bfd(switch, *interfaces, enable="true"):
    for name in interfaces:
        switch.vsctl("set", "interface", name, f"bfd:enable={enable}", "bfd:min_rx=100", "bfd:min_tx=100")


def is_up(switch, *interfaces):
    """Whether the sessions of all interfaces are up."""
    return all(switch.vsctl("get", "interface", name, "bfd_status:state") == "up" for name in interfaces)


def test_members_follow_bfd(hosts):
    """A member whose session ends fails although its cable has a carrier."""
    switch, (near, far) = hosts
    switch.vsctl("add-bond", "br0", "bond0", "a1", "a2", "bond_mode=active-backup")
    for port in ("b1", "b2"):
        switch.vsctl("add-port", "br1", port)
    set_bfd(switch, "a1", "a2", "b1", "b2")
    until(lambda: is_up(switch, "a1", "a2", "b1", "b2"), "all sessions")
    until(lambda: active(switch) != "none", "an active member")
    near.ping(far.address)
    before = active(switch)
    silent = before.replace("a", "b")
    set_bfd(switch, silent, enable="false")
    until(lambda: active(switch) not in (before, "none"), "another active member")
    assert f"member {before}: disabled" in switch.appctl("bond/show", "bond0")
    near.ping(far.address)
    set_bfd(switch, silent)
    until(lambda: f"member {before}: enabled" in switch.appctl("bond/show", "bond0"), "the member's return")


def test_groups_follow_bfd(hosts):
    """A bucket whose port's session ends is not live although the cable has a carrier."""
    switch, (near, far) = hosts
    for bridge, end, host in (("br0", "a", near), ("br1", "b", far)):
        switch.vsctl("set-fail-mode", bridge, "secure")
        for number in (1, 2):
            switch.vsctl("add-port", bridge, f"{end}{number}")
            switch.ofctl("add-flow", bridge, f"in_port={end}{number},actions=output:{host.port}")
        buckets = ",".join(f"bucket=watch_port:{end}{number},output:{end}{number}" for number in (1, 2))
        switch.ofctl("-O", "OpenFlow13", "add-group", bridge, f"group_id=1,type=ff,{buckets}")
        switch.ofctl("-O", "OpenFlow13", "add-flow", bridge, f"in_port={host.port},actions=group:1")
    set_bfd(switch, "a1", "a2", "b1", "b2")
    until(lambda: is_up(switch, "a1", "a2", "b1", "b2"), "all sessions")
    near.ping(far.address)

    def leaves_by(number):
        """Whether packets of the near host leave by this port now."""
        trace = switch.appctl("ofproto/trace", "br0", f"in_port={near.port},ip")
        return f"-> using bucket {number - 1}\n" in trace

    assert leaves_by(1)
    set_bfd(switch, "b1", enable="false")
    until(lambda: leaves_by(2), "the other bucket")
    near.ping(far.address)
    set_bfd(switch, "b1")
    until(lambda: leaves_by(1), "the first bucket again")
    near.ping(far.address)
