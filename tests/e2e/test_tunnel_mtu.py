"""Hosts whose link has the MTU of the underlay, so that their packets do not fit it with outer headers: the underlay carries
fragments if a tunnel allows them, and the hosts' path MTU discovery shortens packets if it does not."""

import re
import sys
import types

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from hosts import Host, Namespace
from overlays import UPLINK, Capture, LinuxEnd, Site, cable, exchange, inner6, outer, watched

MTU = 1500
# Headers in front of the inner IP packet, by version of the outer one.
OVERHEAD = {4: 20 + 8 + 8 + 14, 6: 40 + 8 + 8 + 14}
FRAGMENTS = {4: "ip[6:2] & 0x3fff != 0", 6: "ip6[6] == 44"}


def join(making, version, *options):
    """Two sites with a tunnel."""
    one, two = (Site(making, number, mtu=MTU, inner_mtu=MTU) for number in (1, 2))
    cable(one, two)
    for here, there in ((one, two), (two, one)):
        here.tunnel("vxlan", f"remote_ip={outer(there.number, version)}", "key=7", *options)
    return one, two


def fill(one, two):
    """Pings with packets of the whole MTU, which the network must not fragment."""
    one.ping(two.address, "-M", "do", "-s", MTU - 28)
    one.ping(inner6(two.number), "-M", "do", "-s", MTU - 48)


@pytest.mark.parametrize("options", [[], ["csum=true"]], ids=["plain", "csum"])
@pytest.mark.parametrize("version", [4, 6])
def test_outer_fragments(making, tmp_path, version, options):
    one, two = join(making, version, "df_default=false", *options)
    one.host.ping(two.host.address)
    with Capture(two.namespace, UPLINK, tmp_path, FRAGMENTS[version]) as capture:
        fill(one.host, two.host)
        fragments = capture.some(lambda _: True, "fragments of outer packets")
    assert max(map(len, fragments)) <= MTU + 14
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, MTU - 28, 4000)
        exchange(two.host, one.host, 100, MTU - 28, 4000)


@pytest.mark.parametrize("version", [4, 6])
def test_outer_fragments_with_linux(making, version):
    """The kernel's own device fragments, too, and reassembles."""
    site, linux = Site(making, 1, mtu=MTU, inner_mtu=MTU), LinuxEnd(making, 2, mtu=MTU, inner_mtu=MTU)
    cable(site, linux)
    site.tunnel("vxlan", f"remote_ip={outer(2, version)}", "key=7", "df_default=false")
    linux.tunnel("vxlan", "id", 7, "dstport", 4789, "remote", outer(1, version), "local", outer(2, version))
    site.host.ping(linux.address)
    fill(site.host, linux)
    with watched(site.host, linux):
        exchange(site.host, linux, 100, MTU - 28, 4000)
        exchange(linux, site.host, 100, MTU - 28, 4000)


def too_long(host, address, length):
    """The MTU in the error that a ping of this length brings back."""
    output = host.run("ping", "-c", "1", "-w", "10", "-M", "do", "-s", length, address, check=False)
    assert output.code == 1, str(output)
    return int(re.search(r"Frag needed and DF set \(mtu = (\d+)\)|Packet too big: mtu[= ]+(\d+)", output.out).expand(r"\1\2"))


@pytest.mark.parametrize("version", [4, 6])
def test_path_mtu_discovery(making, version):
    one, two = join(making, version)
    mtu = MTU - OVERHEAD[version]
    for host, other in ((one.host, two.host), (two.host, one.host)):
        host.ping(other.address)
        host.ping(inner6(other.number))
        assert too_long(host, other.address, MTU - 28) == mtu
        assert too_long(host, inner6(other.number), MTU - 48) == mtu
        for address in (other.address, inner6(other.number)):
            assert f" mtu {mtu} " in host.run("ip", "route", "get", address).out
        host.ping(other.address, "-M", "do", "-s", mtu - 28)
        host.ping(inner6(other.number), "-M", "do", "-s", mtu - 48)
    with watched(one.host, two.host):
        exchange(one.host, two.host, 100, MTU - 28, 4000)
        exchange(two.host, one.host, 100, MTU - 28, 4000)


@pytest.mark.parametrize("version", [4, 6])
def test_tcp_discovers_the_path_mtu(making, version):
    """Without pings before: a connection begins with segments that are too long."""
    one, two = join(making, version)
    server = two.host.start_python("transfer.py", "tcp-sink", two.host.address, 6001)
    sent = one.host.python("transfer.py", "tcp-source", two.host.address, 6001, 3_000_000, timeout=60).out
    assert server.communicate(timeout=60)[0] == sent
    assert f" mtu {MTU - OVERHEAD[version]} " in one.host.run("ip", "route", "get", two.host.address).out


HOSTS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
V4, V6 = {"src": "10.1.0.1", "dst": "10.1.0.2", "ttl": 37}, {"src": inner6(1), "dst": inner6(2), "hlim": 37}
LAST = 99


def filled(packet, length=MTU):
    """The bytes of a frame with an IP packet of this length."""
    return bytes(packet / Raw(bytes(n & 0xFF for n in range(length + 14 - len(packet)))))


def frames(version):
    """Frames that are too long, some of which get no answer, each of another flow."""
    ether = Ether(**HOSTS)
    back = IP(**{**V4, "src": V4["dst"], "dst": V4["src"]})
    v4 = lambda **fields: ether / IP(**{**V4, "flags": "DF", **fields})
    v6 = lambda **fields: ether / IPv6(**{**V6, **fields})
    return [
        filled(v4(tos=0xB9, id=77) / UDP(sport=1)),
        filled(v4() / TCP(sport=2, flags="A")),
        filled(v4() / ICMP()),
        filled(v4(proto=200), MTU - OVERHEAD[version] + 1),
        filled(v4(options=[b"\x01\x01\x01\x00"]) / UDP(sport=3)),
        filled(v4(flags=0) / UDP(sport=4)),
        filled(v4(flags="MF") / UDP(sport=5)),
        filled(v4(flags="DF", frag=3, proto=201)),
        filled(v4() / ICMP(type=3, code=1) / back / UDP()),
        filled(v4(dst="224.0.0.9") / UDP(sport=6)),
        filled(v4(src="0.0.0.0") / UDP(sport=7)),
        filled(v4(src="127.0.0.1") / UDP(sport=8)),
        filled(v6(tc=0xB9, fl=5) / UDP(sport=9)),
        filled(v6() / TCP(sport=10, flags="A")),
        filled(v6() / ICMPv6EchoRequest()),
        filled(v6() / IPv6ExtHdrFragment(offset=0, m=1, nh=17) / UDP(sport=11)),
        filled(v6() / ICMPv6DestUnreach()),
        filled(v6(src="::") / UDP(sport=12)),
    ]


SEND = """
import socket, sys
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind(("e0", 0))
for line in sys.stdin:
    sender.send(bytes.fromhex(line))
"""


def answers(host, directory, sent, expected=None):
    """What a host gets back for frames, sorted; waits for those that are expected."""
    send = lambda some: host.run(sys.executable, "-c", SEND, input="\n".join(frame.hex() for frame in some))
    last = filled(Ether(**HOSTS) / IP(**V4, flags="DF") / UDP(sport=LAST))
    with Capture(host.name, "e0", directory, f"ether src {HOSTS['dst']}") as capture:
        send(sent)
        is_last = lambda frame: frame[34:36] + frame[62:64] == bytes([3, 4, 0, LAST])
        for frame in expected or []:
            if is_last(frame):
                continue
            capture.some(lambda got, frame=frame: got == frame, f"the answer {Ether(frame)!r}")
        send([last])
        capture.some(is_last, "the answer to the last frame")
        is_answer = lambda frame: len(frame) > 500
        return sorted(filter(is_answer, capture.frames()))


def linux_bridge(making, version):
    """A host at a bridge of the kernel with a VXLAN device."""
    namespace = Namespace("lb")
    making.namespaces.append(namespace)
    host = Host(types.SimpleNamespace(namespace=namespace.name), 1, mtu=MTU)
    making.namespaces.append(host)
    link = lambda *words: namespace.run("ip", "link", *words)
    link("add", UPLINK, "mtu", MTU, "type", "veth", "peer", "name", "u1")
    link("add", "b0", "type", "bridge")
    namespace.run("ip", "addr", "add", f"{outer(1, version)}/{24 if version == 4 else 64}", "dev", UPLINK, *["nodad"][: version == 6])
    vxlan = ["id", 7, "dstport", 4789, "local", outer(1, version), "remote", outer(2, version)]
    link("add", "v0", "mtu", MTU, "type", "vxlan", *vxlan, *["df", "set"][: 4 if version == 4 else 0])
    for port in ("v0", host.port):
        link("set", port, "master", "b0")
    for device in (UPLINK, "u1", "b0", "v0"):
        link("set", device, "up")
    namespace.run("ip", "neigh", "replace", outer(2, version), "lladdr", "02:00:00:00:ee:02", "dev", UPLINK)
    return host


@pytest.mark.parametrize("version", [4, 6])
def test_answers_are_those_of_linux(making, tmp_path, version):
    """Byte by byte, and to the same packets. (The kernel answers no tagged frames, and also later fragments of IPv6.)"""
    one, two = join(making, version)
    one.host.ping(two.host.address)
    sent = frames(version)
    theirs = answers(linux_bridge(making, version), tmp_path, sent)
    assert len(theirs) == 10
    assert answers(one.host, tmp_path, sent, theirs) == theirs
