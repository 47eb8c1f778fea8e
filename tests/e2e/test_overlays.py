"""Two sites with a switch each, joined by an underlay, share an overlay of every type of tunnel: with the switch at both ends,
and with Open vSwitch at the other one."""

import pytest

from overlays import Site, cable, exchange, inner6, outer, watched

# Options of a tunnel by name of the case; outer IP versions; whether it carries Ethernet.
TYPES = {
    "vxlan": ("vxlan", ["key=7"], (4, 6)),
    "vxlan-gbp": ("vxlan", ["key=7", "exts=gbp"], (4, 6)),
    "vxlan-csum": ("vxlan", ["key=7", "csum=true", "dst_port=8472"], (4, 6)),
    "vxlan-gpe": ("vxlan", ["key=7", "exts=gpe"], (4, 6)),
    "geneve": ("geneve", ["key=7"], (4, 6)),
    "geneve-csum": ("geneve", ["key=7", "csum=true"], (4, 6)),
    "gre": ("gre", [], (4, 6)),
    "gre-csum": ("gre", ["key=7", "csum=true"], (4, 6)),
    "gre-seq": ("gre", ["key=7", "seq=true"], (4, 6)),
    "gre-all": ("gre", ["key=7", "csum=true", "seq=true"], (4, 6)),
    "ip6gre": ("ip6gre", ["key=7"], (6,)),
    "erspan1": ("erspan", ["key=7", "erspan_ver=1", "erspan_idx=3"], (4, 6)),
    "erspan2": ("erspan", ["key=7", "erspan_ver=2", "erspan_dir=1", "erspan_hwid=4"], (4, 6)),
    "ip6erspan": ("ip6erspan", ["key=7", "erspan_ver=1", "erspan_idx=3"], (6,)),
}
# Tunnels whose packets have no Ethernet header.
LAYER3 = {
    "vxlan-gpe": ("vxlan", ["key=7", "exts=gpe", "packet_type=legacy_l3"], (4, 6)),
    "gre": ("gre", ["key=7", "packet_type=legacy_l3"], (4, 6)),
    "gtpu": ("gtpu", ["key=7"], (4, 6)),
    "srv6": ("srv6", [], (6,)),
    "bareudp": ("bareudp", ["dst_port=6635", "payload_type=ip"], (4, 6)),
}
# Open vSwitch's userspace datapath has no group policies, and the checksum that it sends with a sequence number is wrong.
OURS_ALONE = {"vxlan-gbp", "gre-all", "bareudp"}


def cases(types, left_out=()):
    return [
        pytest.param(name, version, id=f"{name}-{version}")
        for name, case in types.items()
        for version in case[2]
        if name not in left_out
    ]


def join(making, maker=None, **options):
    """Two sites, the second one with the daemons of `maker`, and their hosts."""
    one, two = Site(making, 1, **options), Site(making, 2, maker=maker, **options)
    cable(one, two, options.get("offloads", True))
    return one, two


def add_tunnels(kind, version, options, one, two):
    for here, there in ((one, two), (two, one)):
        here.tunnel(kind, f"remote_ip={outer(there.number, version)}", *options)


@pytest.mark.parametrize(("name", "version"), cases(TYPES))
def test_a_switch_at_both_ends(making, name, version):
    kind, options, _ = TYPES[name]
    one, two = join(making)
    add_tunnels(kind, version, options, one, two)
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, 1300, 4000)
        exchange(two.host, one.host, 100, 1300, 4000)


@pytest.mark.parametrize(("name", "version"), cases(TYPES, OURS_ALONE))
def test_open_vswitch_at_the_other_end(making, peers, name, version):
    """Its userspace datapath does not complete checksums that a veth leaves open, and it loses some of many fragments that
    arrive at once, also between two of it."""
    kind, options, _ = TYPES[name]
    one, two = join(making, peers, offloads=False)
    add_tunnels(kind, version, options, one, two)
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, 1300, tcp_bytes=300_000)
        exchange(two.host, one.host, 100, 1300, tcp_bytes=300_000)


def route_between(one, two):
    """Flows that add the Ethernet headers of the receiving hosts, which know each other's addresses."""
    for here, there in ((one.host, two.host), (two.host, one.host)):
        for address in (there.address, inner6(there.number)):
            here.run("ip", "neigh", "replace", address, "lladdr", there.mac, "dev", "e0", "nud", "permanent")
    for here, there in ((one, two), (two, one)):
        rewrite = f"set_field:{there.host.mac}->eth_src,set_field:{here.host.mac}->eth_dst"
        here.flows(
            *(f"in_port=1,dl_type={kind},dl_dst={there.host.mac},actions=2" for kind in ("0x0800", "0x86dd")),
            f"in_port=2,actions={rewrite},1",
        )


@pytest.mark.parametrize(("name", "version"), cases(LAYER3))
def test_packets_without_ethernet(making, name, version):
    kind, options, _ = LAYER3[name]
    one, two = join(making)
    add_tunnels(kind, version, options, one, two)
    route_between(one, two)
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, 1300, 4000)


@pytest.mark.parametrize(("name", "version"), cases(LAYER3, OURS_ALONE))
def test_packets_without_ethernet_with_open_vswitch(making, peers, name, version):
    kind, options, _ = LAYER3[name]
    one, two = join(making, peers, offloads=False)
    add_tunnels(kind, version, options, one, two)
    route_between(one, two)
    # It refuses IPv6 in GTP-U ("Receive non-IP packet").
    versions = (4,) if kind == "gtpu" else (4, 6)
    with watched(one.host, two.host, versions=versions):
        exchange(one.host, two.host, 100, 1300, versions=versions, tcp_bytes=300_000)
