"""What a site's tunnels leave by: a VLAN of a trunk, a second bridge behind patch ports, two bridges with an uplink each, and the
uplink of the bridge that the tunnel's port is in."""

import pytest
from scapy.layers.l2 import Dot1Q, Ether

from overlays import BRIDGE, LOCAL, UPLINK, Capture, Site, add_tunnels, cable, exchange, join, outer, watched


def check(one, two):
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, 1300, 4000)
        exchange(two.host, one.host, 100, 1300, 4000)


@pytest.mark.parametrize("version", [4, 6])
def test_a_vlan(making, tmp_path, version):
    """The address of the underlay is in a VLAN: outer packets are tagged on the wire."""
    one, two = join(making)
    for site in (one, two):
        site.switch.vsctl("set", "port", LOCAL, "tag=20", "--", "set", "port", UPLINK, "trunks=20")
    add_tunnels("vxlan", version, ["key=7"], one, two)
    one.host.ping(two.host.address)
    with Capture(two.namespace, UPLINK, tmp_path, "vlan 20 and udp port 4789") as capture:
        check(one, two)
        frame = Ether(capture.some(len, "tagged packets")[0])
    assert frame[Dot1Q].vlan == 20
    assert "push_vlan(vid=20" in one.switch.ours.appctl("dpctl/dump-flows")
    # In another VLAN, nobody answers.
    two.switch.vsctl("set", "port", LOCAL, "tag=21")
    one.host.cannot_ping(two.host.address)
    two.switch.vsctl("set", "port", LOCAL, "tag=20")
    one.host.ping(two.host.address)


@pytest.mark.parametrize("version", [4, 6])
def test_patch_ports(making, version):
    """The uplink is in another bridge than the address."""
    one, two = join(making)
    for site in (one, two):
        words = ["add-br", "br-up", "--", "set", "bridge", "br-up", "datapath_type=netdev"]
        words += ["--", "del-port", UPLINK, "--", "add-port", "br-up", UPLINK]
        for bridge, port, peer in ((LOCAL, "to-up", "to-phy"), ("br-up", "to-phy", "to-up")):
            words += ["--", "add-port", bridge, port]
            words += ["--", "set", "interface", port, "type=patch", f"options:peer={peer}"]
        site.switch.vsctl(*words)
    add_tunnels("geneve", version, ["key=7"], one, two)
    check(one, two)
    trace = one.switch.ours.appctl("ofproto/trace", BRIDGE, f"in_port=1,dl_dst={two.host.mac},ip")
    assert 'bridge("br-phy")' in trace and 'bridge("br-up")' in trace and "tnl_push(" in trace, trace


def test_one_bridge(making):
    """Address, uplink, tunnel and host share a bridge; VLANs keep overlay and underlay apart."""
    one, two = Site(making, 1), Site(making, 2)
    cable(one, two)
    for site in (one, two):
        port = site.host.port
        site.switch.vsctl("del-br", BRIDGE, "--", "add-port", LOCAL, port, "tag=30")
    for here, there in ((one, two), (two, one)):
        here.tunnel("vxlan", f"remote_ip={outer(there.number)}", "key=7", bridge=LOCAL, ofport=9)
        here.switch.vsctl("set", "port", "t0", "tag=30", "--", "set", "port", UPLINK, "vlan_mode=access", "tag=0")
    check(one, two)


def test_two_types_between_three_hosts(making):
    """Two hosts of a site reach hosts of two others, by tunnels of two types in one bridge, over one uplink."""
    one, two = join(making)
    for here, there in ((one, two), (two, one)):
        here.tunnel("vxlan", f"remote_ip={outer(there.number)}", "key=1", name="t1", ofport=11)
        here.tunnel("geneve", f"remote_ip={outer(there.number, 6)}", "key=2", name="t2", ofport=12)
    more = [site.add_host(site.number + 2) for site in (one, two)]
    for site, host in zip((one, two), more):
        site.switch.vsctl("add-port", BRIDGE, host.port, "--", "set", "interface", host.port, "ofport_request=3")
        site.flows("in_port=1,actions=11", "in_port=11,actions=1", "in_port=3,actions=12", "in_port=12,actions=3")
    one.host.ping(two.host.address)
    more[0].ping(more[1].address)
    one.host.cannot_ping(more[1].address)
    for match in ("in_port=11", "in_port=12"):
        assert two.switch.ours.n_packets(BRIDGE, match) > 0


def test_the_uplink_is_replaced(making):
    """The uplink leaves the bridge and comes back, then the whole bridge does, with another Ethernet address."""
    one, two = join(making)
    add_tunnels("vxlan", 4, ["key=7"], one, two)
    one.host.ping(two.host.address)
    one.switch.vsctl("del-port", LOCAL, UPLINK)
    one.host.cannot_ping(two.host.address)
    one.switch.vsctl("add-port", LOCAL, UPLINK)
    one.host.ping(two.host.address)
    one.switch.vsctl("del-br", LOCAL)
    one.host.cannot_ping(two.host.address)
    words = ["add-br", LOCAL, "--", "set", "bridge", LOCAL, "datapath_type=netdev", "other_config:hwaddr=02:00:00:00:ee:41"]
    one.switch.vsctl(*words, "--", "add-port", LOCAL, UPLINK)
    one.take_address(LOCAL)
    one.host.ping(two.host.address)
    # The same for the tunnel's port.
    one.switch.vsctl("del-port", BRIDGE, "t0")
    one.host.cannot_ping(two.host.address)
    one.tunnel("vxlan", f"remote_ip={outer(2)}", "key=7")
    one.host.ping(two.host.address)
