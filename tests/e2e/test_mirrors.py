"""Mirrors: what an analyser behind the output port of a mirror sees, on the same switch and behind a tunnel to another one."""

import contextlib
import re
import subprocess

import pytest

from hosts import finish
from overlays import LOCAL, Site, cable, outer
from waiting import until


@contextlib.contextmanager
def sniffed(host):
    """The frames that a host receives meanwhile, in a list that is filled at the end."""
    sniffer = host.start_python("sniff.py", "e0", stdin=subprocess.PIPE)
    frames = []
    yield frames
    frames += [bytes.fromhex(line) for line in finish(sniffer).out.split()]


def mirror(switch, bridge, *columns):
    """A mirror of a bridge with the name m; ports are named in columns, as in output_port=@p1."""
    words, names = [], {name for column in columns for name in re.findall(r"@(\w+)", column)}
    for name in sorted(names):
        words += ["--", f"--id=@{name}", "get", "port", name]
    words += ["--", "--id=@mirror", "create", "mirror", "name=m", *columns]
    switch.vsctl(*words, "--", "add", "bridge", bridge, "mirrors", "@mirror")


def counts(switch):
    """Packets and bytes that the mirror has sent, as the database has them: none yet if they were not written."""
    words = ("--if-exists", "get", "mirror", "m", "statistics:tx_packets", "statistics:tx_bytes")
    return tuple(int(count) for count in switch.vsctl(*words).split() or (0, 0))


def lan(making, n=3):
    """Hosts on one bridge."""
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number, offloads=False) for number in range(1, n + 1)]
    switch.vsctl("set", "open", ".", "other_config:stats-update-interval=1000")
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    for host in hosts:
        switch.vsctl("add-port", "br0", host.port)
        # Other packets would count.
        host.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/e0/disable_ipv6")
    return switch, hosts


def echoes(frames, vlan=None):
    """Requests and replies among the frames, as (type, sequence number); with the tag of a VLAN, those that have it."""
    head = b"" if vlan is None else bytes([0x81, 0, vlan >> 8, vlan & 255])
    at = 14 + len(head)
    wanted = [f for f in frames if f[12:at] == head + b"\x08\x00" and f[at + 9] == 1]
    return [(f[at + 20], int.from_bytes(f[at + 26 : at + 28], "big")) for f in wanted]


BOTH = [(kind, n) for n in range(1, 11) for kind in (8, 0)]


def test_port_mirroring(making):
    """Both directions of a port, exactly once, with the statistics of the database; the output port is cut off."""
    switch, (one, two, analyser) = lan(making)
    mirror(switch, "br0", "select_src_port=@p1", "select_dst_port=@p1", "output_port=@p3")
    one.ping(two.address)
    with sniffed(analyser) as frames:
        one.run("ping", "-c", 10, "-i", "0.02", two.address)
    assert echoes(frames) == BOTH
    # Two echoes before, and these.
    until(lambda: counts(switch)[0] >= 22, "statistics")
    analyser.cannot_ping(one.address)


def test_statistics_are_exact(making):
    """Packets that cached flows forward count like others, in packets and bytes."""
    switch, (one, two, analyser) = lan(making)
    mirror(switch, "br0", "select_src_port=@p1", "output_port=@p3", "filter=\"udp,udp_dst=9\"")
    one.ping(two.address)
    with sniffed(analyser) as frames:
        one.run(
            "python3", "-c",
            f"import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            f"for n in range(1000): s.sendto(b'x' * (n % 100), ('{two.address}', 9)); time.sleep(0.001)",
        )
        until(lambda: switch.appctl("revalidator/wait") == "" and counts(switch)[0] == 1000, "statistics")
    # The kernel sends frames of its own through the cable.
    copies = [frame for frame in frames if frame[12:14] == b"\x08\x00" and frame[23] == 17]
    assert counts(switch) == (len(copies), sum(len(frame) for frame in copies))


def test_mirroring_to_a_vlan(making):
    """Copies have the tag of the VLAN at trunks, and replace none of the packets."""
    switch, (one, two, trunk) = lan(making)
    switch.vsctl("set", "bridge", "br0", "flood_vlans=99")
    for host in (one, two):
        switch.vsctl("set", "port", host.port, "tag=7")
    switch.vsctl("set", "port", "p3", "trunks=99")
    mirror(switch, "br0", "select_src_port=@p1,@p2", "output_vlan=99")
    one.ping(two.address)
    with sniffed(trunk) as frames, sniffed(two) as own:
        one.run("ping", "-c", 10, "-i", "0.02", two.address)
    assert echoes(frames, vlan=99) == BOTH
    assert echoes(own) == [(8, n) for n in range(1, 11)] and not echoes(own, vlan=99)


@pytest.mark.parametrize("snaplen", [60, 200])
def test_snaplen(making, snaplen):
    switch, (one, two, analyser) = lan(making)
    mirror(switch, "br0", "select_all=true", "output_port=@p3", f"snaplen={snaplen}")
    one.ping(two.address)
    with sniffed(analyser) as frames:
        one.run("ping", "-c", 10, "-i", "0.02", "-s", 400, two.address)
    assert echoes(frames) == BOTH and {len(frame) for frame in frames if frame[12:14] == b"\x08\x00"} == {snaplen}


@pytest.mark.parametrize("snaplen", [None, 80])
@pytest.mark.parametrize(
    "kind, options",
    [
        ("gre", ["key=5"]),
        ("erspan", ["key=5", "erspan_ver=1", "erspan_idx=3"]),
        ("erspan", ["key=5", "erspan_ver=2", "erspan_dir=0", "erspan_hwid=1"]),
    ],
    ids=["gre", "erspan1", "erspan2"],
)
def test_mirroring_through_a_tunnel(making, kind, options, snaplen):
    """A second switch receives the copies from a tunnel, whole or shortened, and sends them to its analyser."""
    site, far = Site(making, 1, offloads=False), Site(making, 2, offloads=False)
    cable(site, far, offloads=False)
    second = site.add_host(3)
    site.switch.vsctl("add-port", "br-int", second.port)
    for here, there in ((site, far), (far, site)):
        here.tunnel(kind, f"remote_ip={outer(there.number)}", *options)
    far.flows("in_port=2,actions=1")
    shortened = [f"snaplen={snaplen}"] if snaplen else []
    mirror(site.switch, "br-int", "select_src_port=@p1", "select_dst_port=@p1", "output_port=@t0", *shortened)
    # The neighbour is known then.
    site.host.ping(second.address)
    until(lambda: outer(2) in site.switch.appctl("tnl/neigh/show"), "the neighbour")
    with sniffed(far.host) as frames:
        site.host.run("ping", "-c", 10, "-i", "0.02", "-s", 200, second.address)
    assert echoes(frames) == BOTH
    lengths = {len(frame) for frame in frames if frame[12:14] == b"\x08\x00" and frame[23] == 1}
    assert lengths == {snaplen or 14 + 20 + 8 + 200}
    # The copies that come back are not mirrored: nothing else left.
    assert site.switch.vsctl("get", "bridge", LOCAL, "mirrors") == "[]"
