"""Routes, addresses and neighbours of the underlay change in the kernel while packets pass a tunnel, which follows them.

The tunnel's remote address is 10.9.9.2, an address of the loopback device of a host with Linux's own VXLAN device. Two uplinks
lead there: u0 to the bridge br-phy, and u1 to br-phy1.
"""

import subprocess

import pytest

import losses
from hosts import finish
from overlays import PORT, UPLINK, LinuxEnd, Site, cable, outer
from switch import run
from waiting import until

REMOTE, REMOTE6 = "10.9.9.2", "fd00:99::2"
SECOND, SECOND_BRIDGE = "u1", "br-phy1"


def second(number, version=4):
    """The address of an end of the second uplink."""
    return f"172.31.2.{number}" if version == 4 else f"fd00:ef::{number}"


class Between:
    """A site, a host with two uplinks to it, and an echo at the far end of the overlay."""

    def __init__(self, making, version=4, remote=None):
        self.version = version
        self.site, self.linux = Site(making, 1), LinuxEnd(making, 2)
        cable(self.site, self.linux)
        run(
            ["ip", "link", "add", SECOND, "netns", self.site.namespace, "type", "veth"]
            + ["peer", "name", SECOND, "netns", self.linux.namespace]
        )
        words = ["add-br", SECOND_BRIDGE, "--", "set", "bridge", SECOND_BRIDGE, "datapath_type=netdev"]
        self.site.switch.vsctl(*words, "other_config:hwaddr=02:00:00:00:ef:01", "--", "add-port", SECOND_BRIDGE, SECOND)
        self.site.ip("link", "set", SECOND, "up")
        self.site.ip("link", "set", SECOND_BRIDGE, "up")
        self.site.ip("addr", "add", f"{second(1)}/24", "dev", SECOND_BRIDGE)
        self.site.ip("addr", "add", f"{second(1, 6)}/64", "dev", SECOND_BRIDGE, "nodad")
        self.linux.run("ip", "link", "set", SECOND, "up")
        self.linux.run("ip", "addr", "add", f"{second(2)}/24", "dev", SECOND)
        self.linux.run("ip", "addr", "add", f"{second(2, 6)}/64", "dev", SECOND, "nodad")
        self.remote = remote or (REMOTE if version == 4 else REMOTE6)
        if not remote:
            self.linux.run("ip", "addr", "add", self.remote, "dev", "lo")
        # The site's own address depends on the uplink; the host accepts either, and answers to the first. If Linux's VXLAN device
        # learned the other address and then the first one again, it would keep the route of the other for it (its FDB entry
        # caches the route), and ask for the first address at the wrong uplink, without end.
        words = ["id", 7, "dstport", 4789, "nolearning", "remote", outer(1, version), "local", self.remote]
        self.linux.tunnel("vxlan", *words)
        self.site.tunnel("vxlan", f"remote_ip={self.remote}", "key=7")

    def route(self, action, *words):
        """Changes the site's route to the remote address."""
        length = 32 if self.version == 4 else 128
        self.site.ip(*(["-6"] if self.version == 6 else []), "route", action, f"{self.remote}/{length}", *words)

    def via(self, uplink):
        """The words of a route over an uplink."""
        address = outer if uplink == UPLINK else second
        return ["via", address(2, self.version), "dev", "br-phy" if uplink == UPLINK else SECOND_BRIDGE]

    def received(self, uplink):
        """The number of packets that the far end has received over an uplink."""
        return int(self.linux.run("cat", f"/sys/class/net/{uplink}/statistics/rx_packets").out)

    def moves_to(self, uplink):
        """Waits until the traffic arrives over this uplink, and no longer over the other one."""
        other = SECOND if uplink == UPLINK else UPLINK

        def is_there():
            before = self.received(uplink), self.received(other)
            self.site.host.run("ping", "-c", "5", "-i", "0.05", "-W", "2", self.linux.address, check=False)
            return self.received(uplink) - before[0] >= 5 > self.received(other) - before[1]

        until(is_there, lambda: self.report(uplink))

    def answers(self):
        """Whether the far end answers one ping."""
        return self.site.host.run("ping", "-c", "1", "-W", "1", self.linux.address, check=False).code == 0

    def drops(self):
        """The number of packets that the site has dropped for want of a route."""
        counters = losses.counters(self.site.switch)
        return sum(counters.get(("switch counts", name), 0) for name in ("drop_action_tunnel_routing_failed",))

    def report(self, uplink):
        show = self.site.switch.ours.appctl
        return f"traffic over {uplink}:\n{show('ovs/route/show')}\n{show('tnl/neigh/show')}\n{show('dpctl/dump-flows')}"

    def steady(self):
        """A connection over which a number goes back and forth, without end."""
        echo = self.linux.start_python("transfer.py", "tcp-echo", self.linux.address, PORT)
        words = ["transfer.py", "tcp-steady", self.linux.address, PORT]
        return echo, self.site.host.start_python(*words, stdin=subprocess.PIPE)


@pytest.mark.parametrize("version", [4, 6])
def test_routes_change_under_traffic(making, version):
    between = Between(making, version)
    between.route("add", *between.via(UPLINK))
    between.site.host.ping(between.linux.address)
    echo, steady = between.steady()
    between.moves_to(UPLINK)
    between.route("replace", *between.via(SECOND))
    between.moves_to(SECOND)
    between.route("replace", *between.via(UPLINK))
    between.moves_to(UPLINK)
    # A longer prefix is preferred to a shorter one, as long as it is there.
    between.route("delete")
    wide = "10.9.0.0/16" if version == 4 else "fd00:99::/32"
    between.site.ip("route", "add", wide, *between.via(SECOND))
    between.moves_to(SECOND)
    between.route("add", *between.via(UPLINK))
    between.moves_to(UPLINK)
    between.route("delete")
    between.moves_to(SECOND)
    # Without any route, packets are dropped and counted.
    before = between.drops()
    between.site.ip("route", "delete", wide)
    until(lambda: not between.answers(), lambda: between.report(SECOND))
    between.site.host.cannot_ping(between.linux.address)
    assert between.drops() > before
    between.site.ip("route", "add", wide, *between.via(UPLINK))
    between.moves_to(UPLINK)
    count, _ = finish(steady).out.split()
    assert int(count) > 0
    echo.kill()
    echo.communicate()


@pytest.mark.parametrize("version", [4, 6])
def test_a_next_hop_vanishes(making, version):
    """Of two next hops of a route, one goes with its device; the traffic goes over the other one."""
    between = Between(making, version)
    hops = [word for uplink in (UPLINK, SECOND) for word in ("nexthop", *between.via(uplink))]
    between.route("add", *hops)
    between.site.host.ping(between.linux.address)
    lookup = between.site.switch.ours.appctl("ovs/route/show")
    assert between.remote in lookup, lookup
    echo, steady = between.steady()
    # What the far end sends comes over the first uplink throughout.
    for _ in range(2):
        between.route("replace", *between.via(SECOND))
        between.moves_to(SECOND)
        between.route("replace", *hops)
        until(between.answers, lambda: between.report(SECOND))
        # The kernel removes the next hop with the device, or the whole route, which is there again without.
        between.site.ip("link", "set", SECOND_BRIDGE, "down")
        between.route("replace", *between.via(UPLINK))
        between.moves_to(UPLINK)
        until(between.answers, lambda: between.report(UPLINK))
        between.site.ip("link", "set", SECOND_BRIDGE, "up")
        between.site.ip("addr", "replace", f"{second(1, 6)}/64", "dev", SECOND_BRIDGE, "nodad")
    count, _ = finish(steady).out.split()
    assert int(count) > 0
    echo.kill()
    echo.communicate()


def test_remotes_spread_over_next_hops(making):
    """Each remote address has one of the next hops; the traffic goes over the one that the switch shows, and over the other one
    once the device of the first is down."""
    between = Between(making)
    hops = [word for uplink in (UPLINK, SECOND) for word in ("nexthop", *between.via(uplink), "weight", "3")]
    between.site.ip("route", "add", "10.9.0.0/16", *hops)

    def uplink_of(remote):
        found = between.site.switch.ours.appctl("ovs/route/lookup", remote)
        return next((uplink for uplink in (UPLINK, SECOND) if f"dev {between.via(uplink)[3]}\n" in f"{found}\n"), None)

    until(lambda: uplink_of(REMOTE), lambda: between.report(UPLINK))
    assert {uplink_of(f"10.9.1.{n}") for n in range(32)} == {UPLINK, SECOND}
    chosen = uplink_of(REMOTE)
    between.moves_to(chosen)
    between.site.ip("link", "set", between.via(chosen)[3], "down")
    between.moves_to(SECOND if chosen == UPLINK else UPLINK)


@pytest.mark.parametrize(("version", "is_next_hop"), [(4, True), (4, False), (6, True)])
def test_a_neighbour_gets_another_mac(making, version, is_next_hop):
    """The switch learns it from ARP packets; if the neighbour is the other end itself, also from what that sends."""
    neighbour = outer(2, version)
    between = Between(making, version, remote=neighbour if is_next_hop else None)
    if not is_next_hop:
        between.route("add", *between.via(UPLINK))
    between.site.host.ping(between.linux.address)
    echo, steady = between.steady()
    between.linux.run("sh", "-c", f"echo 1 > /proc/sys/net/ipv4/conf/{UPLINK}/arp_notify")
    for last in range(1, 4):
        mac = f"02:00:00:00:aa:{last:02x}"
        between.linux.run("ip", "link", "set", UPLINK, "address", mac)
        row = lambda: f"{neighbour} " in (text := between.site.switch.ours.appctl("tnl/neigh/show")) and mac in text
        until(lambda: between.answers() and row(), lambda: between.report(UPLINK))
    assert int(finish(steady).out.split()[0]) > 0
    echo.kill()
    echo.communicate()


@pytest.mark.parametrize("version", [4, 6])
def test_an_own_address_changes(making, version):
    """The source of the outer header is the address that the bridge has; packets to an address that it lost are not for a
    tunnel."""
    between = Between(making, version)
    between.route("add", *between.via(UPLINK))
    between.site.host.ping(between.linux.address)
    length = 24 if version == 4 else 64
    old, new = outer(1, version), outer(9, version)
    between.site.ip("addr", "del", f"{old}/{length}", "dev", "br-phy")
    between.site.ip("addr", "add", f"{new}/{length}", "dev", "br-phy", *(["nodad"] if version == 6 else []))
    between.route("replace", *between.via(UPLINK))
    between.linux.run("ip", "link", "del", "e0")
    between.linux.tunnel("vxlan", "id", 7, "dstport", 4789, "remote", new, "local", between.remote)
    between.site.host.ping(between.linux.address)
    flows = between.site.switch.ours.appctl("dpctl/dump-flows")
    assert f"src={new},dst={between.remote}" in flows, flows
