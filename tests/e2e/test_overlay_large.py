"""Large packets through tunnels over UDP are one packet on a veth, and reach the other end whole."""

import json
import subprocess

import pytest

from hosts import finish
from overlays import LAYER3, PORT, TYPES, UPLINK, LinuxEnd, Site, add_tunnels, cable, exchange, join, outer, route_between, watched

TCP_BYTES = 20_000_000
# With segments of 1400 bytes at most, packets that are not whole cannot have as many bytes on average, acknowledgements included.
WHOLE = 3000
NO_DF = ["df_default=false"]
CASES = {
    "vxlan": ("vxlan", TYPES, []),
    "vxlan-no-df": ("vxlan", TYPES, NO_DF),
    "vxlan-csum": ("vxlan-csum", TYPES, []),
    "geneve": ("geneve", TYPES, []),
    "vxlan-gpe": ("vxlan-gpe", LAYER3, []),
    "gtpu": ("gtpu", LAYER3, []),
    "bareudp-no-df": ("bareudp", LAYER3, NO_DF),
}


def sent(end):
    """Packets and bytes that an end has sent to the underlay."""
    text = end.ip("-s", "-j", "link", "show", UPLINK).out
    counters = json.loads(text)[0]["stats64"]["tx"]
    return counters["packets"], counters["bytes"]


def average(before, after):
    return (after[1] - before[1]) / (after[0] - before[0])


@pytest.mark.parametrize(("name", "types", "options"), CASES.values(), ids=CASES.keys())
def test_tcp_stays_whole(making, name, types, options):
    one, two = join(making)
    kind, others, _ = types[name]
    for version in (4, 6):
        add_tunnels(kind, version, [*others, *options], one, two)
        if types is LAYER3:
            route_between(one, two)
        one.host.ping(two.host.address)
        before = sent(one), sent(two)
        exchange(one.host, two.host, 100, tcp_bytes=TCP_BYTES, datagrams=1)
        assert min(map(average, before, (sent(one), sent(two)))) > WHOLE
        for site in (one, two):
            site.switch.vsctl("del-port", "t0")


@pytest.mark.parametrize("version", [4, 6])
def test_linux_at_the_other_end(making, version):
    """Linux takes our large packets, and sends others: large inner ones in one set of outer headers."""
    site = Site(making, 1)
    linux = LinuxEnd(making, 2)
    cable(site, linux)
    site.tunnel("vxlan", f"remote_ip={outer(2, version)}", "key=7")
    words = ["id", 7, "dstport", 4789, "remote", outer(1, version), "local", outer(2, version)]
    linux.tunnel("vxlan", *words)
    site.host.ping(linux.address)
    before = sent(site)
    with watched(site.host, linux):
        exchange(site.host, linux, 100, 1300, 4000, tcp_bytes=TCP_BYTES)
    assert average(before, sent(site)) > WHOLE / 2


@pytest.mark.parametrize("kind", ["vxlan", "gre"])
def test_tunnels_of_hosts(making, kind):
    """Large packets from a tunnel of a host's kernel are segmented behind its headers, before they get others."""
    one, two = join(making)
    add_tunnels(kind, 4, ["key=7"], one, two)
    for here, there in ((one.host, two.host), (two.host, one.host)):
        here.ping(there.address)
        words = ["type", "vxlan", "id", 9, "dstport", 4789, "local", here.address, "remote", there.address, "dev", "e0"]
        here.run("ip", "link", "add", "inside", "mtu", 1350, *words)
        here.run("ip", "link", "set", "inside", "up")
        here.run("ip", "addr", "add", f"10.9.0.{here.number}/24", "dev", "inside")
    server = two.host.start_python("transfer.py", "serve", PORT, stdin=subprocess.PIPE)
    before = sent(one)
    one.host.python("transfer.py", "exchange", "10.9.0.2", PORT, TCP_BYTES, 1, 100, timeout=90)
    finish(server)
    assert "too-big" not in one.switch.ours.appctl("dpif/show-drops")
    if kind == "vxlan":
        assert average(before, sent(one)) > WHOLE / 2
