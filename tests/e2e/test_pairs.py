"""Every type of port against every other: pings, TCP and UDP with all bytes checked, frames of 9,000 bytes, fragments, VLAN
tags set by hosts and by the switch, and every checksum summed up by the receiver."""

import itertools

import pytest

from ends import KINDS, MTU, PORT, VID

TCP_BYTES = 1_500_000
DATAGRAMS = 64

# Those whose hosts' large frames reach the switch whole, and leave it so.
WHOLE = {"system", "internal", "local", "patch"}


@pytest.fixture(scope="module")
def ends(module_making):
    """Two hosts of each kind on one switch, made when they are first asked for."""
    switch = module_making.switch(start="kernel")
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    made = {}

    def end(kind, which):
        if (kind, which) not in made:
            made[kind, which] = KINDS[kind](module_making, switch, len(made) + 1)
        return made[kind, which]

    return end


def exchange(one, two, network, *lengths):
    """Pings with frames of all sizes, then TCP and datagrams of these lengths, to there and back."""
    address = two.at(network)
    one.ping(address)
    one.ping(address, "-s", MTU - 28, "-M", "do")
    one.ping(address, "-s", 3 * MTU)
    one.python("transfer.py", "exchange", address, PORT, TCP_BYTES, DATAGRAMS, *lengths, timeout=60)


PAIRS = list(itertools.combinations_with_replacement(KINDS, 2))


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=map("-".join, PAIRS))
def test_pair(ends, a, b):
    """Checksums and large frames survive on every way, also those that the switch has to finish and to cut."""
    one, two = ends(a, 0), ends(b, 1)
    switch = one.switch
    with one.watched(first=True), two.watched(first=False):
        exchange(one, two, 1, 100, MTU - 100, 2 * MTU)
        exchange(one, two, 5, MTU - 100, 2 * MTU)
        for access, network in ((one, 6), (two, 7)):
            switch.vsctl("set", "port", access.port, f"tag={VID}")
            exchange(one, two, network, 2 * MTU)
            switch.vsctl("remove", "port", access.port, "tag", VID)
    for end in (one, two):
        seen = end.seen
        assert not seen["bad"], seen
        assert min(seen["tcp"], seen["udp"], seen["fragments"], seen["tagged"]) > 0, seen
    if a in WHOLE and b in WHOLE:
        assert min(one.seen["tagged_large"], two.seen["tagged_large"]) > 0, (one.seen, two.seen)
