"""A site of the switch and one of Open vSwitch, whose userspace datapath is the other end, share an overlay of every type of
tunnel that both have.

Its userspace datapath does not complete checksums that a veth leaves open, and it loses some of many fragments that arrive at
once, also between two of it: there are no offloads here, and few fragments.
"""

import pytest

from overlays import LAYER3, TYPES, add_tunnels, cases, exchange, join, route_between, watched

# Open vSwitch's userspace datapath has no group policies, and the checksum that it sends with a sequence number is wrong.
OURS_ALONE = {"vxlan-gbp", "gre-all", "bareudp"}


@pytest.mark.parametrize(("name", "version"), cases(TYPES, OURS_ALONE))
def test_ethernet(making, peers, name, version):
    kind, options, _ = TYPES[name]
    one, two = join(making, peers, offloads=False)
    add_tunnels(kind, version, options, one, two)
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, 1300, tcp_bytes=300_000)


@pytest.mark.parametrize(("name", "version"), cases(LAYER3, OURS_ALONE))
def test_packets_without_ethernet(making, peers, name, version):
    kind, options, _ = LAYER3[name]
    one, two = join(making, peers, offloads=False)
    add_tunnels(kind, version, options, one, two)
    route_between(one, two)
    # It refuses IPv6 in GTP-U ("Receive non-IP packet").
    versions = (4,) if kind == "gtpu" else (4, 6)
    with watched(one.host, two.host, versions=versions):
        exchange(one.host, two.host, 100, 1300, versions=versions, tcp_bytes=300_000)
