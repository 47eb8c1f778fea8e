"""Real programs through a stateful firewall, and through a gateway that translates addresses: host 1 is inside, host 2
outside, and both speak IPv4 and IPv6."""

import errno
import socket

import pytest

from hosts import finish
from test_hosts import iperf3, tcp_transfer, udp_transfer
from waiting import until

GATEWAY_MAC = "02:00:00:00:00:fe"
ZONE = 7

# Neighbours are resolved without connections.
COMMON = ["priority=100,arp,actions=normal", *[f"priority=100,icmp6,icmp_type={kind},actions=normal" for kind in (135, 136)]]

FIREWALL = [
    *COMMON,
    "priority=50,ip,actions=ct(table=1)",
    "priority=50,ipv6,actions=ct(table=1)",
    "table=1,priority=30,ct_state=+trk+inv,actions=drop",
    "table=1,priority=20,ct_state=+trk+new-rel,tcp,in_port=1,tp_dst=21,actions=ct(commit,alg=ftp),2",
    "table=1,priority=20,ct_state=+trk+new-rel,tcp6,in_port=1,tp_dst=21,actions=ct(commit,alg=ftp),2",
    "table=1,priority=20,ct_state=+trk+new-rel,udp,in_port=1,tp_dst=69,actions=ct(commit,alg=tftp),2",
    "table=1,priority=20,ct_state=+trk+new-rel,udp6,in_port=1,tp_dst=69,actions=ct(commit,alg=tftp),2",
    "table=1,priority=10,ct_state=+trk+new,ip,in_port=1,actions=ct(commit),2",
    "table=1,priority=10,ct_state=+trk+new,ipv6,in_port=1,actions=ct(commit),2",
    "table=1,priority=10,ct_state=+trk+new+rel,ip,in_port=2,actions=ct(commit),1",
    "table=1,priority=10,ct_state=+trk+new+rel,ipv6,in_port=2,actions=ct(commit),1",
    "table=1,priority=5,ct_state=+trk-new,in_port=1,actions=2",
    "table=1,priority=5,ct_state=+trk-new,in_port=2,actions=1",
]


def at_port(family, address, port):
    return f"[{address}]:{port}" if family == "6" else f"{address}:{port}"


def gateway(inside, outside):
    """Connections from inside have an address of the gateway; its port 8080 leads to port 80 of the host inside."""
    flows = []
    for family, network in inside.networks.items():
        there = outside.networks[family]
        source = f"nat(src={there.gateway})"
        forwarded = at_port(family, network.host, 80)
        ip, six = {"4": ("ip", ""), "6": ("ipv6", "6")}[family]
        flows += [
            f"priority=50,{ip},actions=ct(zone={ZONE},nat,table=1)",
            *(
                f"table=1,priority=20,ct_state=+trk+new-rel,{proto}{six},in_port=1,tp_dst={port},"
                f"actions=ct(commit,zone={ZONE},{source},alg={helper},table=2)"
                for proto, port, helper in (("tcp", 21, "ftp"), ("udp", 69, "tftp"))
            ),
            # Ports of SCTP change, too, and so its checksum.
            f"table=1,priority=20,ct_state=+trk+new-rel,sctp{six},in_port=1,"
            f"actions=ct(commit,zone={ZONE},nat(src={at_port(family, there.gateway, '40000-40100')}),table=2)",
            f"table=1,priority=10,ct_state=+trk+new-rel,{ip},in_port=1,actions=ct(commit,zone={ZONE},{source},table=2)",
            f"table=1,priority=10,ct_state=+trk+new+rel,{ip},actions=ct(commit,zone={ZONE},nat,table=2)",
            f"table=1,priority=10,ct_state=+trk+new-rel,tcp{six},in_port=2,tp_dst=8080,"
            f"actions=ct(commit,zone={ZONE},nat(dst={forwarded}),table=2)",
        ]
    return flows + [
        "table=1,priority=30,ct_state=+trk+inv,actions=drop",
        "table=1,priority=5,ct_state=+trk-new,actions=resubmit(,2)",
        f"table=2,in_port=1,actions=mod_dl_src:{GATEWAY_MAC},mod_dl_dst:{outside.mac},2",
        f"table=2,in_port=2,actions=mod_dl_src:{GATEWAY_MAC},mod_dl_dst:{inside.mac},1",
    ]


class Network:
    """The network of a host: its address there, and the gateway's."""

    def __init__(self, host, gateway, length):
        self.host, self.gateway, self.length = host, gateway, length


def settle(host, networks, route):
    """Gives the host addresses, and the gateway as its neighbour, for a default route if `route`."""
    host.networks = networks
    for family, network in networks.items():
        nodad = ["nodad"] if family == "6" else []
        host.run("ip", "addr", "add", f"{network.host}/{network.length}", "dev", "e0", *nodad)
        host.run("ip", f"-{family}", "neigh", "replace", network.gateway, "lladdr", GATEWAY_MAC, "dev", "e0", "nud", "permanent")
        if route:
            host.run("ip", f"-{family}", "route", "add", "default", "via", network.gateway)


class Site:
    """Two hosts at a switch with a flow table; `to` is the address by which host 1 reaches host 2, for each version of IP."""

    def __init__(self, making, table, offloads):
        self.switch = making.switch(start="kernel")
        self.table = table
        self.one, self.two = (making.host(self.switch, number, offloads=offloads) for number in (1, 2))
        words = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure"]
        for host in (self.one, self.two):
            words += ["--", "add-port", "br0", host.port, "--", "set", "interface", host.port, f"ofport_request={host.number}"]
        self.switch.vsctl(*words)
        inside = {"4": Network("10.2.0.1", "10.2.0.254", 24), "6": Network("fd00:2::1", "fd00:2::fe", 64)}
        if table == "firewall":
            outside = {"4": Network("10.2.0.2", "10.2.0.254", 24), "6": Network("fd00:2::2", "fd00:2::fe", 64)}
        else:
            outside = {"4": Network("192.0.2.2", "192.0.2.100", 24), "6": Network("2001:db8::2", "2001:db8::100", 64)}
        settle(self.one, inside, route=table == "gateway")
        settle(self.two, outside, route=False)
        flows = FIREWALL if table == "firewall" else gateway(self.one, self.two)
        self.switch.ofctl("add-flows", "br0", "-", input="\n".join([*flows, ""]))
        self.to = {family: network.host for family, network in outside.items()}
        self.back = {family: network.host for family, network in inside.items()}

    def connections(self):
        return self.switch.appctl("dpctl/dump-conntrack")

    def talk(self, server, client, address, port, *words, server_words=(), script="talks.py"):
        """Runs a server on host 2 and a client on host 1, see the script. Returns what the client printed."""
        process = self.two.start_python(script, server, address, port, *server_words)
        try:
            return self.one.python(script, client, address, port, *words, timeout=120).out.strip()
        finally:
            process.kill()
            process.communicate()


SITES = [("firewall", True), ("gateway", True), ("gateway", False)]


@pytest.fixture(scope="module", params=SITES, ids=["firewall", "gateway", "gateway-no-offloads"])
def shared_site(request, module_making):
    return Site(module_making, *request.param)


@pytest.fixture
def site(shared_site):
    """A site without connections."""
    shared_site.switch.appctl("dpctl/flush-conntrack")
    return shared_site


@pytest.fixture(params=["4", "6"], ids=["ipv4", "ipv6"])
def family(request):
    return request.param


def test_http(site, family):
    address = site.to[family]
    assert site.talk("http-server", "http-client", address, 80, 50, 20_000) == "50"
    assert site.talk("http-server", "http-client", address, 80, 2, 3_000_000) == "2"
    assert f"src={address}" in site.connections()
    server = site.two.start_python("talks.py", "http-server", address, 80)
    url = f"http://{at_port(family, address, 80)}/1000"
    assert site.one.run("curl", "-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{size_download}", url).out == "1000"
    server.kill()
    server.communicate()


def test_no_connection_begins_outside(site, family):
    """Unless the gateway forwards its port."""
    server = site.one.start_python("talks.py", "http-server", site.back[family], 80)
    address = site.back[family] if site.table == "firewall" else site.two.networks[family].gateway
    words = ["curl", "-sS", "-o", "/dev/null", "-w", "%{size_download}", "--max-time"]
    refused = site.two.run(*words, "1", f"http://{at_port(family, address, 80)}/1000", check=False)
    assert refused.code == 28, str(refused)
    if site.table == "gateway":
        assert site.two.run(*words, "20", f"http://{at_port(family, address, 8080)}/1000").out == "1000"
    server.kill()
    server.communicate()


@pytest.mark.parametrize("mode", ["passive", "active"])
def test_ftp(site, family, mode):
    assert site.talk("ftp-server", "ftp-client", site.to[family], 21, mode, 300_000) == "300000"
    # Both kinds of connections, and the helper of the one that brought the other about.
    assert "helper=ftp" in site.connections()


def test_tftp(site, family):
    assert site.talk("tftp-server", "tftp-client", site.to[family], 69, 20_000) == "20000"
    assert "helper=tftp" in site.connections()


def test_dns(site, family):
    assert site.talk("dns-server", "dns-client", site.to[family], 53, 100) == "100"


def test_echo_requests(site, family):
    site.one.ping(site.to[family], f"-{family}")
    # A reply that is one datagram in many fragments.
    site.one.ping(site.to[family], f"-{family}", "-s", "8000")
    output = site.two.run("ping", f"-{family}", "-c", "1", "-W", "1", site.back[family], check=False)
    assert output.code != 0, str(output)


def test_a_closed_port(site, family):
    assert site.one.python("talks.py", "is-refused", site.to[family], 7777).out == "refused\n"
    # A closed port of TCP resets.
    url = f"http://{at_port(family, site.to[family], 7777)}/"
    output = site.one.run("curl", "-sS", "--max-time", "20", url, check=False)
    assert output.code == 7, str(output)


def test_a_packet_that_is_too_big(site, family):
    """The error of a router further away reaches the socket that sent the datagram."""
    assert site.talk("complains", "learns-mtu", site.to[family], 7000, server_words=(1300,)) == "1300"
    site.one.run("ip", f"-{family}", "route", "flush", "cache")


def test_hosts_that_reset(site, family):
    assert site.talk("resets", "is-reset", site.to[family], 9000) == "reset"
    until(lambda: "CLOS" in site.connections() or "TIME_WAIT" in site.connections(), site.connections)


def test_transfers(site, family):
    address = site.to[family]
    tcp_transfer(site.one, site.two, address, 5_000_000)
    udp_transfer(site.one, site.two, address, 1400, 300)


def test_iperf3(site):
    assert iperf3(site.one, site.two, site.to["4"], "--time", "1")["sum_received"]["bytes"] > 0


@pytest.mark.parametrize("length,count", [(3000, 30), (65_000, 5)])
def test_long_datagrams(site, family, length, count):
    """Of up to 45 fragments each, in both directions, in no more than one datagram at a time: the tracker holds a thousand."""
    assert site.talk("echo-server", "echo-client", site.to[family], 7, count, length) == str(count)


def test_sctp(site, family):
    """An association by the kernel, or by hand if the kernel has no SCTP."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
        script = "talks.py"
    except OSError as error:
        assert error.errno in (errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT), error
        script = "sctp.py"
    assert site.talk("sctp-server", "sctp-client", site.to[family], 6000, script=script) == "over SCTP"
    connections = site.connections()
    assert f"sctp,orig=(src={site.back[family]},dst={site.to[family]}," in connections, connections
