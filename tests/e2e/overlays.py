"""Ends of overlays: sites with a switch, an uplink and hosts; a host with the kernel's own tunnels; captures between them.

Sites are numbered. Site N has the underlay addresses 172.31.1.N and fd00:ee::N, and by default the host N (see `hosts`), with
the addresses 10.1.0.N and fd00:1::N.
"""

import contextlib
import json
import subprocess

import pytest

import pcap
from hosts import Host, Namespace, finish
from switch import run
from waiting import until

UPLINK = "u0"
LOCAL, BRIDGE = "br-phy", "br-int"
TCP_BYTES, DATAGRAMS = 2_000_000, 48
PORT = 6000
# The longest datagram with ICMP that IPv4 carries.
LARGEST = 65_507


# Tunnels by name of the case: type, options, and the versions of outer IP.
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


def cases(types, left_out=()):
    """Parameters of tests: name and outer version of each tunnel."""
    return [
        pytest.param(name, version, id=f"{name}-{version}")
        for name, case in types.items()
        for version in case[2]
        if name not in left_out
    ]


def outer(number, version=4):
    """The underlay address of a site."""
    return f"172.31.1.{number}" if version == 4 else f"fd00:ee::{number}"


def inner6(number):
    return f"fd00:1::{number}"


class Site:
    """A switch with two bridges of the userspace datapath: br-phy has the uplink as a port and, itself, the underlay
    addresses; br-int has hosts and tunnels."""

    def __init__(self, making, number, maker=None, mtu=1500, inner_mtu=1400, offloads=True):
        self.making, self.number, self.mtu = making, number, mtu
        self.switch = making.switch(start="kernel", maker=maker)
        self.namespace = self.switch.namespace
        self.inner_mtu, self.offloads = inner_mtu, offloads
        # The kernel sees the uplink's packets, too: it would answer ARP requests for br-phy there, with the uplink's address.
        run(self.switch.inside(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore"]))
        self.host = self.add_host(number)

    def ip(self, *words, **options):
        return run(["ip", "-n", self.namespace, *words], **options)

    def add_host(self, number):
        """A host that is no port yet."""
        host = self.making.host(self.switch, number, mtu=self.inner_mtu, offloads=self.offloads)
        host.run("ip", "addr", "add", f"{inner6(number)}/64", "dev", "e0", "nodad")
        return host

    def settle(self):
        """Makes the bridges, once the uplink is there."""
        mac = f"02:00:00:00:ee:{self.number:02x}"
        words = ["add-br", LOCAL, "--", "set", "bridge", LOCAL, "datapath_type=netdev", f"other_config:hwaddr={mac}"]
        words += ["--", "add-port", LOCAL, UPLINK, "--", "set", "interface", LOCAL, f"mtu_request={self.mtu}"]
        words += ["--", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"]
        words += ["--", "add-port", BRIDGE, self.host.port, "--", "set", "interface", self.host.port, "ofport_request=1"]
        self.switch.vsctl(*words)
        self.take_address(LOCAL)

    def take_address(self, device):
        """Gives a device the underlay addresses."""
        for version, length in ((4, 24), (6, 64)):
            self.ip("addr", "add", f"{outer(self.number, version)}/{length}", "dev", device, *["nodad"][: version == 6])
        self.ip("link", "set", device, "up")

    def tunnel(self, kind, *options, name="t0", ofport=2, bridge=BRIDGE):
        """Adds a tunnel port."""
        words = ["add-port", bridge, name, "--", "set", "interface", name, f"type={kind}", f"ofport_request={ofport}"]
        self.switch.vsctl(*words, *[f"options:{option}" for option in options])
        assert self.switch.vsctl("get", "interface", name, "error") == "[]"

    def flows(self, *flows, bridge=BRIDGE):
        """Replaces the flows of a bridge."""
        text = "".join(f"{line}\n" for line in ["delete", *(f"add {flow}" for flow in flows)])
        self.switch.ofctl("-O", "OpenFlow14", "add-flows", bridge, "-", input=text)


class LinuxEnd(Host):
    """A namespace that has the underlay addresses on its uplink, and a tunnel device of the kernel as its interface e0."""

    def __init__(self, making, number, mtu=1500, inner_mtu=1400):
        self.number, self.mtu, self.inner_mtu = number, mtu, inner_mtu
        self.address, self.mac = f"10.1.0.{number}", f"02:00:00:00:00:{number:02x}"
        Namespace.__init__(self, f"h{number}")
        making.namespaces.append(self)
        self.namespace = self.name
        # See `hosts.Host`.
        self.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ipfrag_max_dist")

    def settle(self):
        for version, length in ((4, 24), (6, 64)):
            address = f"{outer(self.number, version)}/{length}"
            self.run("ip", "addr", "add", address, "dev", UPLINK, *["nodad"][: version == 6])

    def tunnel(self, kind, *words):
        """Adds the tunnel device, with the inner addresses."""
        self.run("ip", "link", "add", "e0", "mtu", self.inner_mtu, "address", self.mac, "type", kind, *words)
        self.run("ip", "link", "set", "e0", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "e0")
        self.run("ip", "addr", "add", f"{inner6(self.number)}/64", "dev", "e0", "nodad")


def cable(one, two, offloads=True):
    """Joins the uplinks of two ends."""
    run(
        ["ip", "link", "add", UPLINK, "netns", one.namespace, "mtu", one.mtu, "type", "veth"]
        + ["peer", "name", UPLINK, "netns", two.namespace, "mtu", two.mtu]
    )
    for end in (one, two):
        inside = ["ip", "netns", "exec", end.namespace]
        if not offloads:
            run([*inside, "ethtool", "-K", UPLINK, "tx", "off", "tso", "off", "gso", "off", "gro", "off"])
        run([*inside, "ip", "link", "set", UPLINK, "up"])
        end.settle()


class Capture:
    """Frames that pass a device, in order; a context."""

    def __init__(self, namespace, device, directory, words=""):
        self.path = directory / f"{namespace}-{device}.pcap"
        command = ["ip", "netns", "exec", namespace, "tcpdump", "-i", device, "-U", "--immediate-mode", "-s", "0"]
        self.command = [*command, "-w", str(self.path), *words.split()]

    def __enter__(self):
        self.path.unlink(missing_ok=True)
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        while "listening on" not in line:
            assert line, "tcpdump ended"
            line = self.process.stderr.readline()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stderr.close()

    def frames(self):
        return pcap.packets(self.path)

    def some(self, matches, what):
        """Waits for frames that satisfy `matches`, and returns them."""
        return until(lambda: [frame for frame in self.frames() if matches(frame)], what)


@contextlib.contextmanager
def watched(*hosts, versions=(4, 6)):
    """Verifies all checksums of the packets that hosts receive, and that each receives some of each kind."""
    kinds = [f"{kind}{'6' if version == 6 else ''}" for version in versions for kind in ("tcp", "udp", "fragments")]
    watches = [host.start_python("watch.py", "e0", 5, "watched", stdin=subprocess.PIPE) for host in hosts]
    yield
    for host, watch in zip(hosts, watches):
        seen = json.loads(finish(watch).out)
        assert not seen["bad"], (host.name, seen)
        assert min(seen[kind] for kind in kinds) > 0, (host.name, seen)


def exchange(one, two, *lengths, versions=(4, 6), tcp_bytes=TCP_BYTES, datagrams=DATAGRAMS):
    """Pings, then TCP and datagrams of these lengths to `two` and back, over IPv4 and IPv6, with every byte checked."""
    addresses = {4: two.address, 6: inner6(two.number)}
    server = two.start_python("transfer.py", "serve", PORT, stdin=subprocess.PIPE)
    for address in (addresses[version] for version in versions):
        # Flows for fragments are there before datagrams in fragments follow each other closely.
        one.ping(address)
        one.ping(address, "-s", min(3 * max(lengths), LARGEST))
        one.python("transfer.py", "exchange", address, PORT, tcp_bytes, datagrams, *lengths, timeout=90)
    server.communicate(timeout=60)


def join(making, maker=None, **options):
    """Two sites, the second one with the daemons of `maker`, and their hosts."""
    one, two = Site(making, 1, **options), Site(making, 2, maker=maker, **options)
    cable(one, two, options.get("offloads", True))
    return one, two


def add_tunnels(kind, version, options, one, two):
    """A tunnel between two sites, at each the port t0 with the number 2."""
    for here, there in ((one, two), (two, one)):
        here.tunnel(kind, f"remote_ip={outer(there.number, version)}", *options)


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
