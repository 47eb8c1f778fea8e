"""Packets that do not fit: outer fragments that arrive, and inner packets that are too large for the underlay with the outer
headers."""

import subprocess

import pytest

import losses
from hosts import finish
from overlays import DATAGRAMS, PORT, LinuxEnd, Site, cable, inner6, outer

MTU = 1500


def join(making, version, offloads):
    """A site and a Linux host whose inner packets have the underlay's MTU: the kernel sends outer fragments."""
    site, linux = Site(making, 1, inner_mtu=MTU, offloads=offloads), LinuxEnd(making, 2, inner_mtu=MTU)
    cable(site, linux, offloads)
    site.tunnel("vxlan", f"remote_ip={outer(2, version)}", "key=7")
    linux.tunnel("vxlan", "id", 7, "dstport", 4789, "remote", outer(1, version), "local", outer(2, version))
    site.host.ping(linux.address)
    return site, linux


def sent_fragments(linux):
    """The number of IPv4 fragments that a host has sent, as the kernel counts them."""
    lines = [line.split() for line in linux.run("cat", "/proc/net/snmp").out.splitlines() if line.startswith("Ip: ")]
    return int(dict(zip(*lines))["FragCreates"])


def test_outer_fragments(making):
    """Datagrams arrive whole whose packets need two outer fragments each; the acknowledgements are small. With outer IPv6, the
    kernel has the sender send smaller packets instead."""
    site, linux = join(making, 4, offloads=True)
    host = site.host
    # Otherwise the kernel would tell the sender to send smaller packets.
    linux.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_no_pmtu_disc")
    before, counters = sent_fragments(linux), losses.counters(site.switch, host, linux)
    for length in (1440, 1472, 4000):
        sink = host.start_python("transfer.py", "udp-sink", host.address, PORT)
        linux.python("transfer.py", "udp-source", host.address, PORT, DATAGRAMS, length)
        found = finish(sink).out.split()
        changed = lambda: losses.changes(counters, losses.counters(site.switch, host, linux))
        assert found == [str(DATAGRAMS), "0", "0"], f"{length} bytes: {found}; what changed meanwhile:\n{changed()}"
    assert sent_fragments(linux) - before >= 6 * DATAGRAMS


@pytest.mark.parametrize("offloads", [True, False], ids=["offloads", "plain"])
@pytest.mark.parametrize("version", [4, 6])
def test_inner_packets_that_are_too_large(making, version, offloads):
    """They are dropped, which is counted."""
    site, linux = join(making, version, offloads)
    host = site.host
    count = lambda: losses.counters(site.switch).get(("switch counts", "datapath_drop_too_big"), 0)
    room = MTU - (50 if version == 4 else 70)
    host.ping(linux.address, "-M", "do", "-s", room - 28)
    before = count()
    ping = host.run("ping", "-c", "3", "-i", "0.2", "-W", "1", "-M", "do", "-s", room - 27, linux.address, check=False)
    assert ping.code == 1 and " 0 received" in ping.out, str(ping)
    assert count() > before


@pytest.mark.parametrize("version", [4, 6])
def test_the_path_mtu_is_reported(making, version):
    """Hosts with the MTU of the underlay learn that their packets are too large: a connection gets through."""
    site, linux = join(making, version, offloads=True)
    server = linux.start_python("transfer.py", "serve", PORT, stdin=subprocess.PIPE)
    for address in (linux.address, inner6(2)):
        site.host.python("transfer.py", "exchange", address, PORT, 200_000, 1, 100, timeout=30)
    server.communicate(timeout=60)
