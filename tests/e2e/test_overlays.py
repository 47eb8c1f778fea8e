"""Two sites with a switch each, joined by an underlay, share an overlay of every type of tunnel."""

import pytest

from overlays import LAYER3, TYPES, add_tunnels, cases, exchange, join, route_between, watched


@pytest.mark.parametrize(("name", "version"), cases(TYPES))
def test_a_switch_at_both_ends(making, name, version):
    kind, options, _ = TYPES[name]
    one, two = join(making)
    add_tunnels(kind, version, options, one, two)
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, 1300, 4000)


@pytest.mark.parametrize(("name", "version"), cases(LAYER3))
def test_packets_without_ethernet(making, name, version):
    kind, options, _ = LAYER3[name]
    one, two = join(making)
    add_tunnels(kind, version, options, one, two)
    route_between(one, two)
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, 1300, 4000)
