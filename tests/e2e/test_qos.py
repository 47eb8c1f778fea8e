"""Queues, shaping and policing: on kernel devices with the kernel's own counters, on other ports in userspace."""

import json
import re

import pytest

from switch import run
from waiting import until

SENDER = """
import socket, sys
address, port, count, size = sys.argv[1], *map(int, sys.argv[2:])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(count):
    sender.sendto(bytes(size), (address, port))
"""
# Ethernet, IPv4 and UDP.
HEADERS = 14 + 20 + 8


def send(host, address, port, count, size):
    host.run("python3", "-c", SENDER, address, port, count, size)


@pytest.fixture
def pair(making):
    """A switch with two hosts on kernel devices that know each other's address; datagrams are counted by port."""
    switch = making.switch(start="kernel")
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    hosts = [making.host(switch, number) for number in (1, 2)]
    for host in hosts:
        switch.vsctl("add-port", "br0", host.port, "--", "set", "interface", host.port, f"ofport_request={host.number}")
    hosts[0].ping(hosts[1].address)
    for host, other in (hosts, hosts[::-1]):
        host.run("ip", "neigh", "replace", other.address, "lladdr", other.mac, "dev", "e0")
    return switch, *hosts


def configure(switch, port, kind, config=(), queues=()):
    """Gives a port new QoS; `queues` are pairs of a number and settings."""
    words = ["--", "--id=@qos", "create", "QoS", f"type={kind}", *(f"other_config:{pair}" for pair in config)]
    words += [f"queues:{number}=@q{number}" for number, _ in queues]
    for number, settings in queues:
        words += ["--", f"--id=@q{number}", "create", "Queue", *settings]
    switch.vsctl(*words, "--", "set", "Port", port, "qos=@qos")


def inside(switch, *words):
    """The output of a command in the switch's namespace."""
    return run(switch.inside(words)).out


def classes(switch, device):
    """The classes of a device: by handle, their settings and the packets that they have sent."""
    text = inside(switch, "tc", "-s", "class", "show", "dev", device)
    found = re.findall(r"class htb (\S+) (.*)\n Sent \d+ bytes (\d+) pkt", text)
    return {handle: (settings, int(packets)) for handle, settings, packets in found}


def queue_packets(switch, bridge, port):
    text = switch.ofctl("queue-stats", bridge, port)
    return {int(queue): int(packets) for queue, packets in re.findall(r"queue (\d+): bytes=\d+, pkts=(\d+)", text)}


def drops(switch):
    """Packets dropped by reason."""
    (datapath,) = json.loads(switch.ours.appctl("--format", "json", "dpif/show-drops")).values()
    return datapath["total"]


def test_queues_are_classes_of_htb(pair):
    switch, one, two = pair
    queues = [(1, ["other_config:min-rate=2000000"]), (2, ["other_config:max-rate=5000000", "other_config:priority=3"])]
    configure(switch, "p2", "linux-htb", ["max-rate=100000000"], queues)
    switch.ofctl("add-flow", "br0", "priority=9,udp,tp_dst=1001,actions=set_queue:1,2")
    switch.ofctl("add-flow", "br0", "priority=9,udp,tp_dst=1002,actions=enqueue:2:2")
    switch.ofctl("add-flow", "br0", "priority=9,udp,tp_dst=1003,actions=set_queue:77,2")
    until(lambda: len(classes(switch, "p2")) == 4, "all classes")
    found = classes(switch, "p2")
    assert "rate 100Mbit ceil 100Mbit" in found["1:fffe"][0] and found["1:fffe"][0].startswith("root")
    assert found["1:2"][0].startswith("parent 1:fffe") and "rate 2Mbit ceil 100Mbit" in found["1:2"][0]
    assert "prio 3" in found["1:3"][0] and "rate 12Kbit ceil 5Mbit" in found["1:3"][0]
    for port, count in ((1001, 30), (1002, 20), (1003, 10)):
        send(one, two.address, port, count, 100)
    until(lambda: [classes(switch, "p2")[c][1] for c in ("1:2", "1:3")] == [30, 20], "packets of both queues")
    # A queue that is not configured is the default one.
    assert classes(switch, "p2")["1:1"][1] >= 10
    counted = queue_packets(switch, "br0", 2)
    assert (counted[1], counted[2]) == (30, 20) and counted[0] >= 10
    shown = switch.appctl("qos/show", "p2")
    assert "QoS: p2 linux-htb\nmax-rate: 100000000\n" in shown and "Queue 1:" in shown and "tx_packets: 30" in shown


def test_changed_queues_keep_their_counters_and_end_with_the_row(pair):
    switch, one, two = pair
    configure(switch, "p2", "linux-htb", ["max-rate=100000000"], [(1, ["other_config:max-rate=3000000"]), (4, ["dscp=7"])])
    switch.ofctl("add-flow", "br0", "priority=9,udp,tp_dst=1001,actions=set_queue:1,2")
    send(one, two.address, 1001, 5, 100)
    until(lambda: classes(switch, "p2").get("1:2", ("", 0))[1] == 5, "five packets")
    row = switch.vsctl("--bare", "--columns=_uuid", "find", "Queue", "other_config:max-rate=3000000")
    switch.vsctl("set", "Queue", row, "other_config:max-rate=4000000")
    until(lambda: "ceil 4Mbit" in classes(switch, "p2")["1:2"][0], "another rate")
    assert classes(switch, "p2")["1:2"][1] == 5
    switch.vsctl("remove", "QoS", switch.vsctl("get", "Port", "p2", "qos"), "queues", "4")
    until(lambda: "1:5" not in classes(switch, "p2"), "one queue less")
    switch.vsctl("clear", "Port", "p2", "qos")
    until(lambda: "htb" not in inside(switch, "tc", "qdisc", "show", "dev", "p2"), "the end of the discipline")
    assert switch.appctl("qos/show", "p2") == "QoS not configured on p2"
    one.ping(two.address)


def test_a_discipline_that_the_kernel_lacks_is_named(pair):
    switch, one, two = pair
    for kind in ("hfsc", "sfq", "codel", "fq_codel", "netem"):
        configure(switch, "p2", f"linux-{kind}")
        installed = f"qdisc {kind} 1: root"
        lacking = f"p2: Failed to install new qdisc: the kernel does not have the discipline {kind} (No such file or directory)"

        def is_done():
            log = (switch.directory / "ovs-vswitchd.log").read_text()
            return installed in inside(switch, "tc", "qdisc", "show", "dev", "p2") or lacking in log

        until(is_done, f"{kind}, or a reason why not")
        one.ping(two.address)


def test_other_disciplines_stay_as_they_are(pair):
    switch, one, two = pair
    inside(switch, "tc", "qdisc", "add", "dev", "p2", "root", "handle", "7:", "tbf", "rate", "100mbit", "burst", "10k", "latency", "9ms")
    configure(switch, "p2", "linux-noop")
    switch.vsctl("clear", "Port", "p2", "qos")
    one.ping(two.address)
    assert "qdisc tbf 7: root" in inside(switch, "tc", "qdisc", "show", "dev", "p2")


def test_ingress_policing_admits_its_burst(pair):
    switch, one, two = pair
    switch.ofctl("add-flow", "br0", "priority=9,udp,tp_dst=1001,actions=2")
    # Nothing comes back within a test: 1,000 bits a second.
    switch.vsctl("set", "Interface", "p1", "ingress_policing_rate=1", "ingress_policing_burst=400")
    send(one, two.address, 1001, 200, 1000 - HEADERS)
    # 50,000 bytes; a few frames of other protocols may take some of them, and time may add some.
    until(lambda: switch.ours.n_packets("br0", "udp,tp_dst=1001") >= 40, "the burst")
    until(lambda: drops(switch).get("ingress-policing", 0) >= 130, "drops by policing")
    assert 40 <= switch.ours.n_packets("br0", "udp,tp_dst=1001") <= 60
    # Packets by number.
    switch.vsctl("set", "Interface", "p1", "ingress_policing_rate=0")
    switch.vsctl("set", "Interface", "p2", "ingress_policing_kpkts_rate=1", "ingress_policing_kpkts_burst=1")
    one.ping(two.address)
    switch.vsctl("set", "Interface", "p2", "ingress_policing_kpkts_rate=0")
    send(one, two.address, 1001, 100, 1000 - HEADERS)
    until(lambda: switch.ours.n_packets("br0", "udp,tp_dst=1001") >= 140, "all packets without policing")


def test_an_internal_port_is_shaped_in_userspace(pair):
    switch, one, _ = pair
    inside(switch, "ip", "addr", "add", "10.1.0.100/24", "dev", "br0")
    inside(switch, "ip", "link", "set", "br0", "up")
    one.ping("10.1.0.100")
    mac = switch.vsctl("get", "Interface", "br0", "mac_in_use").strip('"')
    one.run("ip", "neigh", "replace", "10.1.0.100", "lladdr", mac, "dev", "e0")
    configure(switch, "br0", "linux-htb", ["max-rate=2000000"], [(3, ["other_config:min-rate=1000000"])])
    until(lambda: "linux-htb" in switch.appctl("qos/show", "br0"), "the shaper")
    switch.ofctl("add-flow", "br0", "priority=9,udp,tp_dst=1001,actions=set_queue:3,local")
    send(one, "10.1.0.100", 1001, 50, 100)
    until(lambda: queue_packets(switch, "br0", "LOCAL").get(3) == 50, "packets of the queue")
    one.ping("10.1.0.100")
    # More than the queue holds, at far more than the rate.
    send(one, "10.1.0.100", 1001, 3000, 1400)
    until(lambda: drops(switch).get("shaper-queue-full", 0) > 0, "drops by the shaper")
    switch.vsctl("clear", "Port", "br0", "qos")
    until(lambda: "not configured" in switch.appctl("qos/show", "br0"), "the end of the shaper")
    one.ping("10.1.0.100")


def test_dummy_ports_are_policed(making):
    switch = making.switch()
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail_mode=secure")
    for number in (1, 2):
        switch.vsctl("add-port", "br0", f"p{number}", "--", "set", "interface", f"p{number}", "type=dummy", f"ofport_request={number}")
    switch.ofctl("add-flow", "br0", "in_port=1,actions=2")
    # 20 packets of 1,000 bytes behind the Ethernet header, and hardly more for hours.
    configure(switch, "p2", "egress-policer", ["cir=1", "cbs=20000"])
    until(lambda: "egress-policer" in switch.appctl("qos/show", "p2"), "the policer")
    frame = "ff" * 6 + "020000000001" + "0800" + "00" * 1000
    switch.appctl("netdev-dummy/receive", "p1", *[frame] * 50)
    until(lambda: drops(switch).get("egress-policing") == 30, "drops by the policer")
    assert switch.vsctl("get", "interface", "p2", "error") == "[]"
    configure(switch, "p2", "linux-htb", ["max-rate=10000000000"])
    until(lambda: "linux-htb" in switch.appctl("qos/show", "p2"), "the shaper")
    switch.appctl("netdev-dummy/receive", "p1", *[frame] * 50)
    until(lambda: queue_packets(switch, "br0", 2) == {0: 50}, "packets of the shaper")


def test_a_type_that_a_port_does_not_have_is_named(pair):
    switch, one, two = pair
    configure(switch, "p2", "egress-policer", ["cir=1", "cbs=1"])
    text = "p2: QoS type egress-policer is not supported by ports of type system"
    until(lambda: text in (switch.directory / "ovs-vswitchd.log").read_text(), "a warning")
    assert switch.appctl("qos/show", "p2") == "QoS not configured on p2"
    one.ping(two.address)
