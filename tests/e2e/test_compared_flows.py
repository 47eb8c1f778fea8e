"""The rule by which tests/compare accepts cached flows that match less of a tunnel than Open vSwitch's."""

import sys

import pytest
from switch import TOP

sys.path.insert(0, str(TOP / "tests/compare"))

import megaflows  # noqa: E402


def flow(tunnel, actions="2", port=4789):
    return f"recirc_id(0),tunnel({tunnel}),in_port({port}),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no), packets:0, bytes:0, used:?, actions:{actions}"


PEERS = "tun_id=0x5,src=1.1.2.92,dst=1.1.2.88,flags(-oam+key)"


@pytest.mark.parametrize(
    "ours",
    [
        "",
        "tun_id=0x5",
        "tun_id=5,src=1.1.2.92",
        "tun_id=0x5/0xff,src=1.1.2.0/255.255.255.0",
        "tun_id=0x5,dst=1.1.2.88,flags(-oam)",
        # The peer matches a TOS of 0 and does not show it.
        "src=1.1.2.92,tos=0/0x3",
        "tos=0x4/0x3",
        # A packet keeps its flag OAM on the way out through another tunnel.
        "flags(+oam+key)",
    ],
)
def test_a_subset_of_the_peers_tunnel_is_accepted(ours):
    assert megaflows.wider(flow(PEERS), flow(ours))


@pytest.mark.parametrize(
    "ours",
    [
        "tun_id=0x6",
        "tun_id=0x6/0xfe",
        "src=1.1.2.93",
        "src=1.1.3.0/255.255.255.0",
        "ttl=64",
        "tos=0x1/0x3",
        "ipv6_src=2001:cafe::92",
        "flags(-key)",
        "flags(-oam+key+csum)",
        "flags(df|key)",
        "geneve({class=0xffff,type=0,len=4,0x11})",
        "erspan(ver=1)",
        "gtpu(flags=0x30,msgtype=255)",
    ],
)
def test_another_value_or_a_field_that_the_peer_does_not_match_is_a_difference(ours):
    assert not megaflows.wider(flow(PEERS), flow(ours))


def test_the_peers_masks_count():
    theirs = flow("tun_id=0x5/0xf,src=1.1.2.0/255.255.255.0,ipv6_src=2001:cafe::/ffff:ffff::")
    assert megaflows.wider(theirs, flow("tun_id=0x5/0x7,src=1.1.2.0/255.255.0.0,ipv6_src=2001:cafe::/ffff::"))
    assert not megaflows.wider(theirs, flow("tun_id=0x5"))
    assert not megaflows.wider(theirs, flow("src=1.1.2.92"))
    assert not megaflows.wider(theirs, flow("ipv6_src=2001:cafe::/ffff:ffff:ffff::"))


def test_contents_that_the_peer_does_not_show_are_accepted_in_their_group():
    ours = flow("geneve({class=0xffff,type=0,len=4,0x11223344})")
    assert megaflows.wider(flow("tun_id=0x5,geneve({}{}),flags(+key)"), ours)
    assert not megaflows.wider(flow("tun_id=0x5,geneve(),flags(+key)"), ours)
    shown = "geneve({class=0xffff,type=0,len=4,0x11223344}{}),flags(+key)"
    assert megaflows.wider(flow(shown), ours)
    assert megaflows.wider(flow(shown), flow("geneve({class=0xffff,type=0,len=4,0x44/0xff}{class=1,type=2,len=0})"))
    assert not megaflows.wider(flow(shown), flow("geneve({class=0xffff,type=0,len=4,0x45/0xff})"))
    assert not megaflows.wider(flow(shown), flow("geneve({class=1,type=2,len=0}{class=1,type=3,len=0})"))
    assert megaflows.wider(flow("erspan(ver=1/0x1,idx=0x7/0xffffffff)"), flow("erspan(ver=1,idx=0x7)"))
    assert megaflows.wider(flow("gtpu()"), flow("gtpu(flags=0x30,msgtype=255)"))
    # Nor does it show the key of a packet that has none.
    assert megaflows.wider(flow("src=1.1.2.92,flags(-key)"), flow("tun_id=0x0"))
    assert not megaflows.wider(flow("src=1.1.2.92,flags(-key)"), flow("tun_id=0x1"))


def test_all_outside_of_the_tunnel_must_be_equal():
    assert not megaflows.wider(flow(PEERS), flow("tun_id=0x5", actions="3"))
    assert not megaflows.wider(flow(PEERS), flow("tun_id=0x5", port=4790))
    assert not megaflows.wider(flow(PEERS), flow("tun_id=0x5").replace("ipv4(frag=no)", "ipv4(tos=0/0x3,frag=no)"))
    assert not megaflows.wider(flow(PEERS), flow("tun_id=0x5").replace("tunnel(tun_id=0x5),", ""))
    # A tunnel among the actions is none of the match.
    push = "set(tunnel(tun_id=0x5,src=1.1.2.88,dst=1.1.2.92)),4789"
    assert not megaflows.wider(flow(PEERS, push), flow("tun_id=0x5", push.replace("0x5", "0x6")))


def test_fields_of_a_megaflow_in_a_trace():
    theirs = "Megaflow: recirc_id=0,eth,ip,tun_id=0x5,tun_src=1.1.2.92,tun_dst=1.1.2.88,tun_tos=0,tun_flags=+key,in_port=10,nw_frag=no"
    assert megaflows.wider(theirs, "Megaflow: recirc_id=0,eth,ip,tun_id=0x5,tun_src=1.1.2.92,tun_tos=0,in_port=10,nw_frag=no")
    assert not megaflows.wider(theirs, "Megaflow: recirc_id=0,eth,ip,tun_id=0x6,in_port=10,nw_frag=no")
    assert not megaflows.wider(theirs, "Megaflow: recirc_id=0,eth,ip,tun_id=0x5,in_port=10,nw_ecn=0,nw_frag=no")


def test_texts_are_aligned_line_by_line():
    theirs = "\n".join(["> vxlan", "v2 aabb", flow(PEERS), flow("tun_id=0x9,src=1.1.2.92,flags(+key)", "3"), ""])
    # The order of cached flows depends on their masks.
    ours = "\n".join(["> vxlan", "v2 aabb", flow("src=1.1.2.92", "3"), flow("tun_id=0x5"), ""])
    a, b, count = megaflows.aligned(theirs, ours)
    assert (a == b, count) == (True, 2)
    a, b, count = megaflows.aligned(theirs, ours.replace("aabb", "aabc"))
    assert (a == b, count) == (False, 2)
    # One flow of ours does not stand for two of the peer's.
    a, b, count = megaflows.aligned("\n".join([flow("tun_id=0x5"), flow("tun_id=0x6")]), flow(""))
    assert (a == b, count) == (False, 1)
    assert megaflows.aligned(theirs, theirs) == (theirs, theirs, 0)
