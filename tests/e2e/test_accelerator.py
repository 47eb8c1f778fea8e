"""Traffic between two hosts that the kernel forwards (`other_config:hw-offload`): every byte is checked, while
flows, ports and the daemon change."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from hosts import Host, TaggingHost, finish
from switch import run
from test_dummy_control import Monitor
from test_hosts import Churn, connect, tcp_transfer, udp_transfer
from waiting import until


def offload(switch):
    """The accelerator's status."""
    return json.loads(switch.ours.appctl("--format=json", "dpctl/offload-show"))["system@ovs-system"]


def offloaded(switch, *words):
    """The flows that the kernel forwards."""
    return [line for line in switch.ours.appctl("dpctl/dump-flows", "-m", *words, "type=offloaded").splitlines() if "ufid" in line]


def programs(switch):
    """The BPF links of the switch's daemon."""
    open_now = Path(f"/proc/{switch.pid('ovs-vswitchd')}/fd").iterdir()
    return [path for path in open_now if path.is_symlink() and "bpf_link" in str(path.readlink())]


@pytest.fixture
def switch(making):
    switch = making.switch(start="kernel")
    switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    return switch


@pytest.fixture
def pair(making, switch):
    """Two hosts on a bridge that learns addresses."""
    hosts = [making.host(switch, number) for number in (1, 2)]
    connect(switch, *hosts)
    assert [port["error"] for port in offload(switch)["ports"] if port["name"] in ("p1", "p2")] == [None, None]
    return hosts


@pytest.fixture(params=[4, 6])
def network(request):
    """The addresses of hosts, and the fields for them in flows."""
    return Network(request.param)


class Network:
    def __init__(self, version):
        self.version = version
        self.udp = {4: "udp", 6: "udp6"}[version]

    def address(self, host):
        if self.version == 4:
            return host.address
        address = f"fd00::{host.number}"
        if address not in host.run("ip", "-6", "addr", "show", "dev", "e0").out:
            host.run("ip", "addr", "add", f"{address}/64", "dev", "e0", "nodad")
        return address

    def received(self, host):
        """UDP datagrams received, whether a process reads them or not."""
        lines = [line.split() for line in host.run("cat", "/proc/net/snmp").out.splitlines()]
        counts = {}
        for names, values in zip(lines[::2], lines[1::2]):
            counts |= {names[0] + name: int(value) for name, value in zip(names[1:], values[1:])}
        if self.version == 4:
            return counts["Ip:InReceives"] - counts["Tcp:InSegs"] - counts["Icmp:InMsgs"]
        six = dict(line.split() for line in host.run("cat", "/proc/net/snmp6").out.splitlines())
        return int(six["Ip6InDelivers"]) - counts["Tcp:InSegs"] - int(six["Icmp6InMsgs"])


def straight(switch, *between):
    """Forwards between two ports; `between` precedes `output`."""
    before = "".join(f"{action}," for action in between)
    flows = [f"priority=1,in_port={a},actions={before}output:{b}" for a, b in ((1, 2), (2, 1))]
    switch.ofctl("del-flows", "br0")
    for flow in flows:
        switch.ofctl("add-flow", "br0", flow)


def test_transfers_are_whole_and_the_kernel_forwards_them(switch, pair, network):
    one, two = pair
    address = network.address(two)
    network.address(one)
    one.ping(address)
    tcp_transfer(one, two, address)
    udp_transfer(one, two, address, 1200)
    until(lambda: offload(switch)["packets"] > 100, "packets that the kernel forwarded")
    found = offloaded(switch)
    assert found and all("offloaded:yes, dp:tc" in line for line in found)
    assert all("offloaded" not in line for line in switch.ours.appctl("dpctl/dump-flows", "-m", "type=ovs").splitlines())
    # Userspace forwards echo requests and ARP.
    one.ping(address)


def test_one_flow_covers_both_networks(switch, pair):
    one, two = pair
    straight(switch)
    for network in (Network(4), Network(6)):
        address = network.address(two)
        network.address(one)
        before = offload(switch)["packets"]
        tcp_transfer(one, two, address, 5_000_000)
        udp_transfer(one, two, address, 1200)
        assert offload(switch)["packets"] > before + 100
    switch.ofctl("add-flow", "br0", "priority=9,ipv6,actions=drop")
    one.cannot_ping(Network(6).address(two))
    tcp_transfer(one, two, two.address, 5_000_000)


def test_rules_that_match_many_ipv6_fields(switch, pair):
    """Addresses, traffic class, hop limit and flow label: the kernel matches exactly the fields of the rules."""
    one, two = pair
    network = Network(6)
    addresses = [network.address(host) for host in pair]
    straight(switch)
    switch.ofctl("add-flow", "br0", f"priority=8,udp6,in_port=1,ipv6_dst={addresses[1]},nw_ttl=64,nw_tos=32,actions=output:2")
    switch.ofctl("add-flow", "br0", f"priority=7,udp6,in_port=1,ipv6_src={addresses[0]},tp_dst=5100,ipv6_label=0x12345,actions=output:2")
    switch.ofctl("add-flow", "br0", "priority=6,udp6,in_port=1,ipv6_dst=fd00::/120,actions=output:2")
    udp_transfer(one, two, addresses[1], 900)
    assert offload(switch)["packets"] > 1000
    counts = [switch.ours.n_packets("br0", f"udp6,in_port=1,{word}") for word in ("nw_ttl=64", "tp_dst=5100", "ipv6_dst=fd00::/120")]
    until(lambda: switch.ours.n_packets("br0", "udp6,in_port=1,ipv6_dst=fd00::/120") >= 2000, "the last rule to count all")
    assert counts[:2] == [0, 0]
    before = network.received(two)
    for tos in (0, 0x20):
        one.run("python3", "-c", MARKED, addresses[1], tos)
    until(lambda: switch.ours.n_packets("br0", "udp6,in_port=1,nw_ttl=64") == 200, "the marked ones to be counted")
    until(lambda: network.received(two) - before == 400, "all of them to come")


# Datagrams with a traffic class, a few at a time.
MARKED = """
import socket, sys, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, int(sys.argv[2]))
for n in range(200):
    try:
        s.sendto(b"x", (sys.argv[1], 5200))
    except ConnectionRefusedError:
        pass
    time.sleep(0.002)
"""


def test_access_ports_of_a_vlan(switch, pair):
    one, two = pair
    switch.vsctl("set", "port", "p1", "tag=10", "--", "set", "port", "p2", "tag=10")
    tcp_transfer(one, two, two.address)
    assert offload(switch)["packets"] > 100
    switch.vsctl("set", "port", "p2", "tag=11")
    one.cannot_ping(two.address)


@pytest.fixture
def trunks(making, switch):
    """Two hosts that send frames with the tag 7 (and their addresses there), on a bridge with trunks."""
    hosts = [TaggingHost(switch, number) for number in (1, 2)]
    making.namespaces += hosts
    connect(switch, *hosts)
    addresses = [host.add_vlan(7) for host in hosts]
    return *hosts, addresses[1]


def test_tagged_frames_from_trunk_to_trunk(switch, trunks):
    one, two, address = trunks
    straight(switch)
    one.ping(address)
    tcp_transfer(one, two, address)
    assert [line for line in offloaded(switch, "--names") if "in_port(t1)" in line]
    # The kernel only forwards flows that do not change the tag, so these use the trunk.
    switch.ofctl("add-flow", "br0", "priority=7,udp,in_port=1,dl_vlan=7,actions=output:2")
    sink = two.start_python("transfer.py", "udp-sink", address, 5100)
    before, count = offload(switch)["packets"], 3000
    one.python("transfer.py", "udp-source", address, 5100, count, 700)
    finish(sink)
    assert offload(switch)["packets"] > before + count / 2
    tagged = lambda: counted(switch, "udp,in_port=1,dl_vlan=7")
    until(lambda: tagged()[0] > count, "the rule to count them")
    # The count includes some end marks of four bytes; all frames are tagged.
    packets, size = tagged()
    headers = 14 + 4 + 20 + 8
    assert size == count * (headers + 700) + (packets - count) * (headers + 4)
    # Another VLAN is another flow.
    switch.ofctl("add-flow", "br0", "priority=9,in_port=1,dl_vlan=7,actions=drop")
    switch.ofctl("add-flow", "br0", "priority=9,in_port=1,dl_vlan=8,actions=output:2")
    one.cannot_ping(address)
    other = [host.add_vlan(8) for host in (one, two)][1]
    tcp_transfer(one, two, other, 5_000_000)


def test_flows_distinguish_tags(switch, trunks):
    """Alternates flows of untagged and of tagged frames, and the learning bridge."""
    one, two, address = trunks
    switch.ofctl("del-flows", "br0")
    switch.ofctl("add-flow", "br0", "actions=normal")
    for _ in range(3):
        tcp_transfer(one, two, address, 5_000_000)
        tcp_transfer(one, two, two.address, 5_000_000)
    assert offload(switch)["packets"] > 100
    switch.vsctl("set", "port", "t2", "trunks=8")
    one.cannot_ping(address)


def counted(switch, match):
    """Packets and bytes of the single flow with this match."""
    line = [line for line in switch.ofctl("dump-flows", "br0", match).splitlines() if "n_packets" in line][0]
    return tuple(int(re.search(rf"{name}=(\d+)", line).group(1)) for name in ("n_packets", "n_bytes"))


def test_large_mtu(making, switch):
    hosts = [making.host(switch, number, mtu=9000) for number in (1, 2)]
    connect(switch, *hosts)
    tcp_transfer(hosts[0], hosts[1], hosts[1].address)
    udp_transfer(hosts[0], hosts[1], hosts[1].address, 8900)
    assert offload(switch)["packets"] > 100


def test_the_switch_counts_frames_over_the_mtu(making, switch):
    one, two = making.host(switch, 1, mtu=3000), making.host(switch, 2)
    connect(switch, one, two)
    straight(switch)
    tcp_transfer(one, two, two.address, 2_000_000)
    before = switch.ours.appctl("dpif/show-drops")
    source = one.python("transfer.py", "udp-source", two.address, 5100, 50, 2500, check=False)
    assert source.code == 0, str(source)
    assert switch.ours.appctl("dpif/show-drops") != before


def test_a_flow_that_drops_takes_effect_at_once(switch, pair, network):
    """After the barrier no packet passes, although the kernel forwarded packets just before."""
    one, two = pair
    address = network.address(two)
    network.address(one)
    straight(switch)
    sink = two.start("iperf3", "--server", "--one-off", "--bind", address)
    until(lambda: two.run("ss", "-ltn").out.count(":5201") > 0, "the server")
    source = one.start("iperf3", "--client", address, "--time", "60", "--udp", "--bitrate", "20M", "--length", "1000")
    try:
        until(lambda: offload(switch)["packets"] > 200, "packets that the kernel forwarded")
        switch.ofctl("add-flow", "br0", f"priority=9,{network.udp},actions=drop")
        # ovs-ofctl waits for the barrier.
        before = network.received(two)
        until(lambda: switch.ours.n_packets("br0", network.udp) > 300, "packets that are dropped")
        assert network.received(two) == before
        assert not [line for line in offloaded(switch) if "proto=17" in line]
    finally:
        for process in (source, sink):
            process.kill()
            process.communicate()


def test_rules_count_what_the_kernel_forwarded(switch, pair, network):
    one, two = pair
    address, udp = network.address(two), network.udp
    network.address(one)
    straight(switch)
    switch.ofctl("add-flow", "br0", f"priority=7,{udp},in_port=1,actions=output:2")
    count = 3000
    sink = two.start_python("transfer.py", "udp-sink", address, 5100)
    before = int(one.run("cat", "/sys/class/net/e0/statistics/tx_packets").out)
    one.python("transfer.py", "udp-source", address, 5100, count, 700)
    finish(sink)
    until(lambda: switch.ours.n_packets("br0", f"{udp},in_port=1") >= count, "the rule to count them")
    sent = int(one.run("cat", "/sys/class/net/e0/statistics/tx_packets").out) - before
    assert count <= switch.ours.n_packets("br0", f"{udp},in_port=1") <= sent
    assert offload(switch)["packets"] > count / 2
    # Deleted flows report their counts.
    switch.ours.appctl("revalidator/purge")
    assert offload(switch)["flows"] == 0
    until(lambda: count <= switch.ours.n_packets("br0", f"{udp},in_port=1") <= sent, "the rule to count them still")


def test_counts_are_exact_while_flows_change(switch, pair, network):
    """The rule that passed a datagram has counted it, whichever side forwarded it."""
    one, two = pair
    address, udp = network.address(two), network.udp
    network.address(one)
    straight(switch)
    switch.ofctl("add-flow", "br0", f"send_flow_rem,priority=7,{udp},in_port=1,tp_dst=5100,actions=output:2")
    removed = Monitor(switch.ours, "br0", "65534")
    sink = two.start_python("transfer.py", "udp-sink", address, 5100)
    before = network.received(two)
    source = one.start("python3", "-c", SLOWLY, address)
    for _ in range(40):
        switch.ours.appctl("revalidator/purge")
        switch.ofctl("add-flow", "br0", f"priority=9,{udp},in_port=1,tp_dst=9,actions=drop")
        switch.ofctl("--strict", "del-flows", "br0", f"priority=9,{udp},in_port=1,tp_dst=9")
    out, err = source.communicate(timeout=120)
    assert source.returncode == 0, err
    finish(sink)
    sent = int(out)
    assert offload(switch)["packets"] > 100
    until(lambda: switch.ours.n_packets("br0", f"{udp},in_port=1") == sent, "the rule to have counted each")
    assert network.received(two) - before == sent
    # The report of the rule's removal includes all of them.
    switch.ofctl("del-flows", "br0", f"{udp},in_port=1,tp_dst=5100")
    removed.wait(rf"FLOW_REMOVED.*{udp},.*reason=delete .*pkts{sent} ")
    removed.end()


# Like transfer.py, but slow enough that no queue overflows.
SLOWLY = """
import socket, struct, sys, time
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 5100))
n = 0

def send(data):
    global n
    try:
        s.send(data)
        n += 1
    except ConnectionRefusedError:  # of one before, which nobody waited for any more; this one is not sent
        pass

end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(5):
        send(struct.pack("!I", n) + b"x")
    time.sleep(0.001)
for _ in range(50):
    send(struct.pack("!I", 0xffffffff))
print(n)
"""


def test_transfers_survive_changes_of_flows(switch, pair):
    one, two = pair
    with Churn(switch):
        tcp_transfer(one, two, two.address)
    assert offload(switch)["packets"] > 0


def test_idle_timeout(switch, pair, network):
    """A rule whose packets the kernel forwards does not expire, and expires when they stop."""
    one, two = pair
    address, udp = network.address(two), network.udp
    network.address(one)
    straight(switch)
    switch.ofctl("add-flow", "br0", f"priority=7,idle_timeout=3,{udp},in_port=1,actions=output:2")
    sink = two.start_python("transfer.py", "udp-sink", address, 5100)
    source = one.start("python3", "-c", SLOWLY.replace("+ 4", "+ 8"), address)
    _, err = source.communicate(timeout=60)
    assert source.returncode == 0, err
    finish(sink)
    assert "idle_timeout=3" in switch.ofctl("dump-flows", "br0", f"{udp},in_port=1")
    until(lambda: "idle_timeout=3" not in switch.ofctl("dump-flows", "br0"), "the rule to time out", deadline_s=20)
    until(lambda: not offloaded(switch), "idle flows to be taken back", deadline_s=30)


def test_tags_are_added_and_removed_on_the_way(making, switch):
    """Between an access port and a trunk."""
    one, two = hosts = [making.host(switch, 1), TaggingHost(switch, 2)]
    making.namespaces.append(two)
    connect(switch, *hosts)
    address = two.add_vlan(7)
    switch.vsctl("set", "port", "p1", "tag=7")
    one.run("ip", "addr", "add", address.rsplit(".", 1)[0] + ".1/24", "dev", "e0")
    tcp_transfer(one, two, address)
    for port, action in (("p1", "push_vlan(vid=7"), ("t2", "pop_vlan")):
        assert [line for line in offloaded(switch, "--names") if f"in_port({port})" in line and action in line]
    # The flow counts received bytes, and the port counts sent bytes.
    until(lambda: offload(switch)["packets"] > 100, "packets that the kernel forwarded")
    flow = "priority=7,udp,in_port=1,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:2"
    switch.ofctl("-OOpenFlow13", "add-flow", "br0", flow)
    sink = two.start_python("transfer.py", "udp-sink", address, 5100)
    before, count = offload(switch)["packets"], 3000
    one.python("transfer.py", "udp-source", address, 5100, count, 700)
    finish(sink)
    assert offload(switch)["packets"] > before + count / 2
    until(lambda: counted(switch, "udp,in_port=1")[0] > count, "the rule to count them")
    packets, size = counted(switch, "udp,in_port=1")
    headers = 14 + 20 + 8
    assert size == count * (headers + 700) + (packets - count) * (headers + 4)
    # Another tag than the host's.
    switch.ofctl("-OOpenFlow13", "add-flow", "br0", flow.replace("4103", "4104"))
    arrived = Network(4).received(two)
    one.start("python3", "-c", SLOWLY.replace("+ 4", "+ 1"), address).communicate(timeout=30)
    assert Network(4).received(two) == arrived


def test_userspace_forwards_unsupported_packets(switch, pair):
    one, two = pair
    straight(switch, "mod_nw_tos:32")
    tcp_transfer(one, two, two.address, 5_000_000)
    assert offload(switch)["refused"]["actions other than one output"] > 0
    assert not [line for line in offloaded(switch) if "proto=6" in line]


def test_ports_are_added_and_removed(switch, pair):
    one, two = pair
    straight(switch)
    tcp_transfer(one, two, two.address, 5_000_000)
    assert offload(switch)["flows"] > 0 and len(programs(switch)) == 2
    switch.vsctl("del-port", "br0", "p2")
    assert len(programs(switch)) == 1 and offload(switch)["flows"] == 0
    one.cannot_ping(two.address)
    switch.vsctl("add-port", "br0", "p2", "--", "set", "interface", "p2", "ofport_request=2")
    tcp_transfer(one, two, two.address, 5_000_000)
    assert offload(switch)["flows"] > 0
    # A device that is deleted and created again.
    run(["ip", "-n", switch.namespace, "link", "del", "p2"])
    until(lambda: offload(switch)["flows"] == 0, "flows to be taken back")
    until(lambda: len(programs(switch)) == 1, "its program to be gone")


def test_a_device_that_is_down_is_not_sent_to(switch, pair):
    one, two = pair
    straight(switch)
    tcp_transfer(one, two, two.address, 5_000_000)
    run(["ip", "-n", switch.namespace, "link", "set", "p2", "down"])
    one.cannot_ping(two.address)
    run(["ip", "-n", switch.namespace, "link", "set", "p2", "up"])
    tcp_transfer(one, two, two.address, 5_000_000)


def test_switched_off_and_on(switch, pair):
    one, two = pair
    assert switch.vsctl("get", "interface", "p1", "status:offload") == "tcx"
    assert switch.vsctl("get", "interface", "p1", "status:io") == '"packet sockets"'
    assert "checksums and segments" in switch.vsctl("get", "interface", "p1", "status:io-reason")
    tcp_transfer(one, two, two.address, 5_000_000)
    switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=false")
    assert programs(switch) == [] and not offload(switch)["enabled"] and not offloaded(switch)
    assert not re.search(r"[{ ]offload=", switch.vsctl("get", "interface", "p1", "status"))
    tcp_transfer(one, two, two.address, 5_000_000)
    switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    tcp_transfer(one, two, two.address, 5_000_000)
    assert len(programs(switch)) == 2 and offload(switch)["packets"] > 0


def test_a_killed_daemon_leaves_no_bpf_program(switch, pair):
    one, two = pair
    straight(switch)
    tcp_transfer(one, two, two.address, 5_000_000)
    assert offload(switch)["packets"] > 0
    switch.kill("ovs-vswitchd")
    # Forwarding stops, and no program takes frames away from other programs on the device.
    one.cannot_ping(two.address)
    out = one.start("python3", "-c", SLOWLY.replace("+ 4", "+ 1"), two.address)
    before = Network(4).received(two)
    out.communicate(timeout=30)
    assert Network(4).received(two) == before
    switch.start_switch("--enable-dummy")
    straight(switch)
    tcp_transfer(one, two, two.address, 5_000_000)
    assert len(programs(switch)) == 2


def test_captures_on_the_devices_see_the_frames(switch, pair):
    one, two = pair
    straight(switch)
    tcp_transfer(one, two, two.address, 5_000_000)
    before = offload(switch)["packets"]
    words = ["timeout", "60", "tcpdump", "--immediate-mode", "-n", "-c", "200", "-i"]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    captures = [subprocess.Popen(switch.inside([*words, port, "tcp"]), **pipes) for port in ("p1", "p2")]
    for capture in captures:
        until(lambda capture=capture: "listening on" in capture.stderr.readline(), "tcpdump to begin")
    tcp_transfer(one, two, two.address, 20_000_000)
    assert offload(switch)["packets"] > before + 200
    assert [finish(capture).code for capture in captures] == [0, 0]


def test_several_receive_queues(making, switch):
    hosts = [making.host(switch, number) for number in (1, 2)]
    switch.vsctl("add-br", "br0")
    for host in hosts:
        switch.vsctl("add-port", "br0", host.port, "--", "set", "interface", host.port, "options:n_rxq=2")
    tcp_transfer(hosts[0], hosts[1], hosts[1].address)
    assert offload(switch)["packets"] > 100


def test_without_the_capability_userspace_forwards_and_says_why(making):
    switch = making.switch(start=False)
    switch.create_database()
    switch.start_database()
    switch.ours.vsctl("--no-wait", "init", "--", "set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    # Root without these two capabilities, as in a container.
    less = ["setpriv", "--bounding-set=-bpf,-sys_admin", switch.programs / "ovs-vswitchd"]
    switch.start_switch(command=less)
    one, two = hosts = [making.host(switch, number) for number in (1, 2)]
    connect(switch, *hosts)
    why = "BPF maps (Operation not permitted)"
    assert switch.vsctl("get", "interface", "p1", "status:offload") == f'"none: {why}"'
    assert offload(switch) == {"enabled": False, "error": why}
    assert f"|WARN|hw-offload is not available, packets are forwarded in userspace: {why}" in switch.log()
    tcp_transfer(one, two, two.address, 5_000_000)
