"""LACP with Open vSwitch's daemon at the other end of two cables."""

import json

import pytest

from switch import run
from waiting import until

# (bond_mode, LACP of ours, of the peer)
MODES = [("balance-tcp", "active", "active"), ("balance-slb", "active", "passive"), ("active-backup", "passive", "active")]


def members(switch):
    """The members of bond0 as `lacp/show` has them."""
    return json.loads(switch.ours.appctl("--format", "json", "lacp/show", "bond0"))["bond0"]["members"]


def counters(switch):
    return json.loads(switch.ours.appctl("--format", "json", "lacp/show-stats"))["bond0"]


def may_enable(switch):
    return [member["may_enable"] for _, member in sorted(members(switch).items())]


def peer_may_enable(peer):
    return [line.split()[1] == "true" for line in peer.appctl("lacp/show").splitlines() if "may_enable" in line]


def cabled_bonds(making, mode, lacp, peer_lacp):
    """Our switch and the peer's, each with a bond over the same two cables and a host."""
    switch, peer = making.switch(start="kernel"), making.switch(start="kernel", maker=making.peers)
    for number in (1, 2):
        run(
            ["ip", "link", "add", f"l{number}", "netns", switch.namespace, "type", "veth"]
            + ["peer", "name", f"l{number}", "netns", peer.namespace]
        )
    hosts = []
    for number, (end, mine) in enumerate(((switch, lacp), (peer, peer_lacp)), start=1):
        for cable in ("l1", "l2"):
            run(["ip", "-n", end.namespace, "link", "set", cable, "up"])
        host = making.host(end, number)
        words = ["--", "add-bond", "br0", "bond0", "l1", "l2", f"bond_mode={mode}", f"lacp={mine}"]
        settings = ["other_config:lacp-time=fast", f"other_config:lacp-system-id=02:00:00:00:01:0{number}"]
        end.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", *words, *settings)
        end.vsctl("add-port", "br0", host.port)
        hosts.append(host)
    return switch, peer, hosts


@pytest.mark.parametrize("mode, lacp, peer_lacp", MODES)
def test_a_bond_to_open_vswitch(making, mode, lacp, peer_lacp):
    switch, peer, (one, other) = cabled_bonds(making, mode, lacp, peer_lacp)
    until(lambda: may_enable(switch) == [True, True], "two members of ours")
    until(lambda: peer_may_enable(peer) == [True, True], "two members of the peer")
    # Each knows what the other announces.
    for member in members(switch).values():
        assert member["partner"]["system_id"] == "02:00:00:00:01:02" and member["partner"]["key"] > 0, member
        expected = {"timeout", "aggregation", "synchronized", "collecting", "distributing"}
        assert set(member["actor"]["state"]) - {"activity"} == expected, member
    for name in ("l1", "l2"):
        until(lambda name=name: switch.vsctl("get", "interface", name, "lacp_current") == "true", "lacp_current")
    one.ping(other.address)
    other.ping(one.address)
    assert switch.vsctl("get", "interface", one.port, "lacp_current") == "[]"

    # A cable fails: the other carries the traffic.
    run(["ip", "-n", peer.namespace, "link", "set", "l1", "down"])
    until(lambda: may_enable(switch) == [False, True], "the end of a member of ours")
    until(lambda: peer_may_enable(peer) == [False, True], "the end of a member of the peer")
    one.ping(other.address)
    run(["ip", "-n", peer.namespace, "link", "set", "l1", "up"])
    until(lambda: may_enable(switch) == [True, True] and peer_may_enable(peer) == [True, True], "both members again")
    one.ping(other.address)
    assert counters(switch)["l1"]["carrier_changed"] >= 2 and counters(switch)["l2"]["rx_bad"] == 0

    # Without a partner nothing is forwarded, unless the bond may fall back to active-backup.
    peer.vsctl("set", "port", "bond0", "lacp=off")
    until(lambda: may_enable(switch) == [False, False], "the end of the partner")
    until(lambda: switch.vsctl("get", "interface", "l1", "lacp_current") == "false", "no partner")
    assert "lacp_status: configured" in switch.ours.appctl("bond/show", "bond0")
    one.cannot_ping(other.address)
    switch.vsctl("set", "port", "bond0", "other_config:lacp-fallback-ab=true")
    peer.vsctl("set", "port", "bond0", "bond_mode=active-backup")
    until(lambda: may_enable(switch) == [True, True], "the fallback")
    # The peer's active member has to be ours, too.
    active = [line for line in switch.ours.appctl("bond/show", "bond0").splitlines() if "active member mac" in line]
    peer.appctl("bond/set-active-member", "bond0", active[0].split("(")[1].rstrip(")"))
    one.ping(other.address)


def test_links_to_two_systems_stay_apart(making):
    """Of two partners, one has the bond; the other has it when the first one is gone."""
    switch, peer, _ = cabled_bonds(making, "active-backup", "active", "active")
    until(lambda: may_enable(switch) == [True, True], "two members of ours")
    peer.vsctl("--", "--id=@l2", "get", "interface", "l2", "--", "remove", "port", "bond0", "interfaces", "@l2")
    peer.vsctl("add-port", "br0", "l2", "--", "set", "port", "l2", "lacp=active", "other_config:lacp-time=fast")
    known = ("02:00:00:00:01:02", "00:00:00:00:00:00")
    until(lambda: members(switch)["l2"]["partner"]["system_id"] not in known, "another partner")
    until(lambda: sorted(may_enable(switch)) == [False, True], "one partner")
    assert may_enable(switch) == [True, False]
    peer.vsctl("set", "port", "bond0", "lacp=off")
    until(lambda: may_enable(switch) == [False, True], "the other partner")
