"""Ports of type afxdp: AF_XDP sockets on veths, whose other ends are hosts in namespaces."""

import json
import threading

import pytest

from hosts import Host, TaggingHost, run
from test_hosts import assert_tagged, tcp_transfer, udp_transfer
from waiting import until

MODES = ["native", "generic"]


def connect(switch, *hosts, kind="afxdp", bridge="br0", **options):
    """A bridge with the hosts' cables as its ports, numbered like the hosts; afxdp ports have `options`."""
    words = ["add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
    for host in hosts:
        words += ["--", "add-port", bridge, host.port]
        words += ["--", "set", "interface", host.port, f"ofport_request={host.number}", f"type={kind}"]
        words += [f"options:{name.replace('_', '-').replace('n-rxq', 'n_rxq')}={value}" for name, value in options.items()]
    switch.vsctl(*words)
    for host in hosts:
        assert switch.vsctl("get", "interface", host.port, "error") == "[]"


def status(switch, port, key):
    return switch.vsctl("--if-exists", "get", "interface", port, f"status:{key}").strip('"')


def error(switch, port):
    return switch.vsctl("get", "interface", port, "error")


def statistics(switch, port):
    text = switch.vsctl("get", "interface", port, "statistics").strip("{}")
    return {name: int(value) for name, value in (pair.split("=") for pair in text.split(", ") if pair)}


def has_program(namespace, port):
    """Whether the kernel says that an XDP program is on a device."""
    link = json.loads(namespace.run("ip", "-j", "link", "show", "dev", port).out)[0]
    return "xdp" in link


def cores(namespace, port):
    """Gives a veth two queues each way."""
    namespace.run("ethtool", "-L", port, "rx", "2", "tx", "2")


class Pings:
    """A host that pings another all the while."""

    def __init__(self, host, address):
        self.host, self.address = host, address

    def __enter__(self):
        self.process = self.host.start("ping", "-i", "0.01", self.address)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("mode", MODES)
def test_ping_between_all(making, mode):
    switch = making.switch(start="kernel")
    # In generic mode the sender is to cut its frames itself.
    hosts = [making.host(switch, number, offloads=mode == "native") for number in (1, 2, 3)]
    connect(switch, *hosts, xdp_mode=mode)
    assert status(switch, "p1", "xdp-mode") == mode
    assert status(switch, "p1", "xdp-mode-in-use") == mode
    assert status(switch, "p1", "use-need-wakeup") == "true"
    for a in hosts:
        for b in hosts:
            if a is not b:
                a.ping(b.address)
                a.ping(b.address, "-s", "1472", "-M", "do")
                a.ping(b.address, "-s", "8000")
    switch.ofctl("add-flow", "br0", "priority=40000,icmp,in_port=1,actions=drop")
    hosts[0].cannot_ping(hosts[1].address)
    switch.ofctl("del-flows", "br0", "icmp")
    hosts[0].ping(hosts[1].address)


def test_best_mode_that_works(making):
    """A veth has no zero-copy; the row says so, and what was taken instead."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    connect(switch, one, two)
    one.ping(two.address)
    assert status(switch, "p1", "xdp-mode") == "best-effort"
    assert status(switch, "p1", "xdp-mode-in-use") == "native"
    assert "native-with-zerocopy mode: Operation not supported" in status(switch, "p1", "xdp-mode-refused")
    assert status(switch, "p1", "driver_name") == "veth"
    assert "afxdp" in switch.vsctl("get", "open_vswitch", ".", "iface_types")
    until(lambda: statistics(switch, "p1").get("rx_packets", 0) > 0, "counters in the row")
    counters = statistics(switch, "p1")
    assert counters["xsk_queue_0_rx_dropped"] == counters["xsk_queue_0_rx_ring_full"] == 0
    assert counters["rx_dropped"] == counters["rx_errors"] == counters["tx_errors"] == 0


@pytest.mark.parametrize("mtu", [1500, 9000])
@pytest.mark.parametrize("tagged", [False, True], ids=["untagged", "tagged"])
@pytest.mark.parametrize("offloads", [True, False], ids=["offloads", "no-offloads"])
@pytest.mark.parametrize("wakeup", ["true", "false"], ids=["wakeup", "no-wakeup"])
def test_transfers(making, mtu, tagged, offloads, wakeup):
    """Every byte arrives, in frames of one piece and of several; also of senders that leave checksums undone."""
    switch = making.switch(start="kernel")
    kind = TaggingHost if tagged else Host
    one, two = (making.host(switch, number, kind, mtu=mtu, offloads=offloads) for number in (1, 2))
    connect(switch, one, two, use_need_wakeup=wakeup)
    address = [host.add_vlan(5) for host in (one, two)][1] if tagged else two.address
    one.ping(address)
    one.ping(address, "-s", str(mtu - 28), "-M", "do")
    if tagged:
        assert_tagged(making.namespaces[0], two, address, 5)
    tcp_transfer(one, two, address, 20_000_000)
    udp_transfer(one, two, address, mtu - 100)
    udp_transfer(one, two, address, 2 * mtu)
