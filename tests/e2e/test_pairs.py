"""Every type of port against every other: pings, TCP and UDP over IPv4 and IPv6 with all bytes checked, frames of
9,000 bytes, fragments, VLAN tags set by hosts and by the switch, and every checksum verified by the receiver."""

import itertools

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from ends import KINDS, MTU, PORT, VID
from watch import NEEDS_CSUM, total, wrong

TCP_BYTES = 1_500_000
DATAGRAMS = 64
# Lengths for IPv6, which takes the same paths.
TCP6_BYTES = 300_000
DATAGRAMS6 = 16

# Types whose hosts' large frames reach the switch unsegmented, and leave it so.
WHOLE = {"system", "internal", "local", "patch"}


@pytest.fixture(scope="module")
def ends(module_making):
    """Two hosts of each kind on one switch, created on first use."""
    switch = module_making.switch(start="kernel")
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    made = {}

    def end(kind, which):
        if (kind, which) not in made:
            made[kind, which] = KINDS[kind](module_making, switch, len(made) + 1)
        return made[kind, which]

    return end


def exchange(one, two, network, *lengths):
    """Pings with frames of all sizes, then TCP and datagrams of these lengths, in both directions."""
    address = two.at(network)
    one.ping(address)
    one.ping(address, "-s", MTU - 28, "-M", "do")
    one.ping(address, "-s", 3 * MTU)
    one.python("transfer.py", "exchange", address, PORT, TCP_BYTES, DATAGRAMS, *lengths, timeout=60)


def exchange6(one, two, network):
    """The same over IPv6, with less traffic."""
    address = two.at6(network)
    one.ping(address)
    one.ping(address, "-s", 3 * MTU)
    one.python("transfer.py", "exchange", address, PORT, TCP6_BYTES, DATAGRAMS6, MTU - 100, 2 * MTU, timeout=60)


PAIRS = list(itertools.combinations_with_replacement(KINDS, 2))


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=map("-".join, PAIRS))
def test_pair(ends, a, b):
    """Checksums and large frames survive on every path, also those that the switch must complete and segment."""
    one, two = ends(a, 0), ends(b, 1)
    switch = one.switch
    with one.watched(first=True), two.watched(first=False):
        exchange(one, two, 1, 100, MTU - 100, 2 * MTU)
        exchange(one, two, 5, MTU - 100, 2 * MTU)
        exchange6(one, two, 1)
        exchange6(one, two, 5)
        for access, network in ((one, 6), (two, 7)):
            switch.vsctl("set", "port", access.port, f"tag={VID}")
            exchange(one, two, network, 2 * MTU)
            switch.vsctl("remove", "port", access.port, "tag", VID)
    for end in (one, two):
        seen = end.seen
        assert not seen["bad"], seen
        assert min(seen["tcp"], seen["udp"], seen["fragments"], seen["tagged"]) > 0, seen
        assert min(seen["tcp6"], seen["udp6"], seen["icmp6"], seen["fragments6"]) > 0, seen
    if a in WHOLE and b in WHOLE:
        assert min(one.seen["tagged_large"], two.seen["tagged_large"]) > 0, (one.seen, two.seen)


LAYERS = [(TCP(sport=5, dport=6, flags="PA"), 16), (UDP(sport=5, dport=6), 6)]


@pytest.mark.parametrize(("layer", "field"), LAYERS, ids=["tcp", "udp"])
@pytest.mark.parametrize("version", [4, 6])
def test_the_verifier_finds_errors(layer, field, version):
    """Tests the verifier with scapy: it finds each changed byte, and each misplaced partial checksum."""
    network = IP(src="10.0.0.1", dst="10.0.0.2") if version == 4 else IPv6(src="fd00::1", dst="fd00::2")
    kind = type(layer).__name__.lower() + ("" if version == 4 else "6")
    frame = bytes(Ether() / network / layer / Raw(b"odd number of bytes"))
    at, addresses, summed = (34, 26, range(14, 34)) if version == 4 else (54, 22, (18, 19, *range(22, 54)))
    nothing = (0, 0, 0, 0, 0, 0)
    assert wrong(frame, nothing) == (None, kind) == wrong(frame + bytes(6), nothing)
    for byte in (*summed, *range(at, len(frame))):
        spoilt = bytearray(frame)
        spoilt[byte] ^= 0x40
        output = wrong(bytes(spoilt), nothing)
        assert output[0], (byte, output)
    pseudo = total(frame[addresses:at]) + frame[23 if version == 4 else 20] + len(frame) - at
    unfinished = bytearray(frame)
    unfinished[at + field : at + field + 2] = (pseudo % 0xFFFF).to_bytes(2, "big")
    unfinished = bytes(unfinished)
    assert wrong(unfinished, nothing)[0] == f"{kind} checksum"
    assert wrong(unfinished, (NEEDS_CSUM, 0, 0, 0, at, field)) == (None, kind)
    for start, offset in ((at + 4, field), (at - 4, field), (at, field + 2)):
        assert wrong(unfinished, (NEEDS_CSUM, 0, 0, 0, start, offset))[0]
    assert wrong(frame, (NEEDS_CSUM, 0, 0, 0, at, field))[0] == f"sum of the pseudo-header for {kind}"
    assert wrong(frame, (0, 1, at + 20, 1448, 0, 0))[0]
