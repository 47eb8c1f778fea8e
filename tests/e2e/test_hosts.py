"""Real hosts in network namespaces: pings, VLANs, and transfers with every byte checked, while flows change."""

import json
import subprocess
import threading

import pytest

import losses
from hosts import Host, TaggingHost, finish
from waiting import until

TCP_BYTES = 30_000_000
UDP_DATAGRAMS = 2000


@pytest.fixture(params=["userspace", "kernel"])
def making(request, making):
    """All of this with cached flows in userspace alone, and with the flows that the kernel supports in the kernel."""
    making.offload = request.param == "kernel"
    return making


def connect(switch, *hosts, bridge="br0"):
    """A bridge with the hosts' cables as its ports, numbered like the hosts."""
    words = ["add-br", bridge]
    for host in hosts:
        words += ["--", "add-port", bridge, host.port]
        words += ["--", "set", "interface", host.port, f"ofport_request={host.number}"]
    switch.vsctl(*words)


class Churn:
    """Adds and deletes flows continuously, by two programs in turn; none of them redirects a packet."""

    def __init__(self, switch):
        self.switch = switch
        self.rounds = 0
        self.stopping = threading.Event()
        self.problem = None
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        # More specific and less specific than the traffic's own megaflows, with another path to the same port.
        # The target of a resubmit is added first, and stays.
        flows = "table=5,cookie=9,actions=normal\n"
        flows += "".join(
            f"table=0,priority={1000 + n % 7},cookie=9,tcp,tp_dst={n},actions=normal\n"
            f"table=0,priority={2000 + n % 5},cookie=9,udp,tp_src={n},nw_ttl=64,actions=resubmit(,5)\n"
            for n in range(5000, 5300)
        )
        try:
            while not self.stopping.is_set():
                self.switch.ofctl("add-flows", "br0", "-", input=flows)
                self.switch.ofctl("del-flows", "br0", "cookie=9/-1,tcp")
                self.switch.ofctl("del-flows", "br0", "table=0,cookie=9/-1")
                self.rounds += 1
        except AssertionError as problem:
            self.problem = problem

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()
        assert self.problem is None, self.problem
        assert self.rounds > 0


def tcp_transfer(sender, receiver, address, count=TCP_BYTES):
    sink = receiver.start_python("transfer.py", "tcp-sink", address, 6000)
    sent = sender.python("transfer.py", "tcp-source", address, 6000, count).out
    assert finish(sink).out == sent
    assert sent.split()[0] == str(count)


def udp_transfer(sender, receiver, address, length, count=UDP_DATAGRAMS):
    before = losses.counters(sender.switch, sender, receiver)
    sink = receiver.start_python("transfer.py", "udp-sink", address, 5100)
    sender.python("transfer.py", "udp-source", address, 5100, count, length)
    whole, spoilt, doubled = map(int, finish(sink).out.split())
    # The sender waits for the receiver, so that only a changing flow could lose a datagram.
    report = f"{whole} of {count} datagrams of {length} bytes arrived, {spoilt} spoilt, {doubled} doubled"
    if whole < count:
        after = losses.counters(sender.switch, sender, receiver)
        report += f"; what changed meanwhile:\n{losses.changes(before, after)}"
    print(report)
    assert (spoilt, doubled) == (0, 0) and whole >= count - count // 100, report


def iperf3(sender, receiver, address, *words):
    server = receiver.start("iperf3", "--server", "--one-off", "--bind", address, "--forceflush")
    until(lambda: "LISTEN" in receiver.run("ss", "-ltn", "sport = :5201").out, "iperf3 listening")
    report = json.loads(sender.run("iperf3", "--client", address, "--json", "--time", "2", *words).out)
    finish(server)
    return report["end"]


def assert_tagged(namespace, sender, address, vid):
    """Watches the cable: pings of the sender pass with the tag."""
    words = ["tcpdump", "-i", sender.port, "-n", "-e", "-c", "1", "--immediate-mode", f"vlan {vid} and icmp"]
    capture = subprocess.Popen(
        namespace.words(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    until(lambda: sender.ping(address) and capture.poll() is not None, "a tagged packet on the cable")
    assert f"vlan {vid}," in capture.communicate()[0]


def test_a_blocking_flow_and_a_removed_port(making):
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number) for number in (1, 2, 3)]
    connect(switch, *hosts)
    for a, b in zip(hosts, [*hosts[1:], hosts[0]]):
        a.ping(b.address)
    table = switch.appctl("fdb/show", "br0")
    for host in hosts:
        assert f"{host.mac}" in table
    # A flow blocks the traffic only while it exists.
    switch.ofctl("add-flow", "br0", "priority=40000,icmp,in_port=1,actions=drop")
    hosts[0].cannot_ping(hosts[1].address)
    hosts[1].ping(hosts[2].address)
    switch.ofctl("del-flows", "br0", "icmp")
    hosts[0].ping(hosts[1].address)
    # A port that is removed and added again.
    switch.vsctl("del-port", "br0", "p2")
    hosts[0].cannot_ping(hosts[1].address)
    switch.vsctl("add-port", "br0", "p2")
    hosts[0].ping(hosts[1].address)


def test_interface_rows(making):
    switch = making.switch(start="kernel")
    host = making.host(switch, 1, mtu=1400)
    connect(switch, host)
    assert switch.vsctl("get", "interface", "p1", "mtu", "admin_state", "link_state") == "1400\nup\nup"
    index = making.namespaces[0].run("cat", "/sys/class/net/p1/ifindex").out.strip()
    assert switch.vsctl("get", "interface", "p1", "ifindex") == index
    making.namespaces[0].run("ip", "link", "set", "p1", "down")
    until(lambda: switch.vsctl("get", "interface", "p1", "admin_state") == "down", "the port seen down")
    making.namespaces[0].run("ip", "link", "set", "p1", "up")
    until(lambda: switch.vsctl("get", "interface", "p1", "link_state") == "up", "the port seen up")


@pytest.mark.parametrize("mtu", [1500, 9000])
@pytest.mark.parametrize("tagged", [False, True], ids=["untagged", "tagged"])
@pytest.mark.parametrize("offloads", [True, False], ids=["offloads", "no-offloads"])
def test_transfers_under_changing_flows(making, mtu, tagged, offloads):
    switch = making.switch(start="kernel")
    kind = TaggingHost if tagged else Host
    one, two = (making.host(switch, number, kind, mtu=mtu, offloads=offloads) for number in (1, 2))
    connect(switch, one, two)
    address = [host.add_vlan(5) for host in (one, two)][1] if tagged else two.address
    with Churn(switch):
        one.ping(address)
        if tagged:
            assert_tagged(making.namespaces[0], one, address, 5)
        tcp_transfer(one, two, address)
        # Whole datagrams, and datagrams that the sender fragments.
        udp_transfer(one, two, address, mtu - 100)
        udp_transfer(one, two, address, 2 * mtu)
        end = iperf3(one, two, address)
        assert end["sum_received"]["bytes"] > 0
        # Without flow control, the number of received datagrams depends on the machine's speed.
        end = iperf3(one, two, address, "--udp", "--bitrate", "5M")
        assert end["sum"]["packets"] > end["sum"]["lost_packets"]


def test_access_and_trunk_ports(making):
    """Host 1 is in VLAN 5 without tags, host 2 tags; host 3 is in VLAN 6."""
    switch = making.switch(start="kernel")
    one, two, three = (making.host(switch, n, TaggingHost if n == 2 else Host) for n in (1, 2, 3))
    connect(switch, one, two, three)
    switch.vsctl("set", "port", "p1", "tag=5", "--", "set", "port", "p3", "tag=6", "--", "set", "port", "t2", "trunks=5,7")
    tagged = two.add_vlan(5)
    two.add_vlan(6)
    one.run("ip", "addr", "add", f"10.7.0.{one.number}/24", "dev", "e0")
    three.run("ip", "addr", "add", f"10.8.0.{three.number}/24", "dev", "e0")
    with Churn(switch):
        one.ping(tagged)
        tcp_transfer(one, two, tagged)
        udp_transfer(two, one, f"10.7.0.{one.number}", 1400)
    one.cannot_ping(three.address)
    two.cannot_ping(f"10.8.0.{three.number}")
    switch.vsctl("set", "port", "t2", "trunks=5,6,7")
    two.ping(f"10.8.0.{three.number}")
