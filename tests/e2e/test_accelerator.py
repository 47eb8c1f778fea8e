"""Traffic between two hosts that the kernel forwards (`other_config:hw-offload`): every byte of it, and what changes of flows,
ports and the daemon do to it."""

import json
import subprocess
from pathlib import Path

import pytest

from hosts import Host, TaggingHost, finish
from switch import run
from test_hosts import Churn, connect, tcp_transfer, udp_transfer
from waiting import until


def offload(switch):
    """What the accelerator says of itself."""
    return json.loads(switch.ours.appctl("--format=json", "dpctl/offload-show"))["system@ovs-system"]


def offloaded(switch, *words):
    """The flows that the kernel forwards."""
    return [line for line in switch.ours.appctl("dpctl/dump-flows", "-m", "type=offloaded", *words).splitlines() if "ufid" in line]


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


def straight(switch, *between):
    """What comes in by one of two ports leaves by the other; `between` stands before `output`."""
    before = "".join(f"{action}," for action in between)
    flows = [f"priority=1,in_port={a},actions={before}output:{b}" for a, b in ((1, 2), (2, 1))]
    switch.ofctl("del-flows", "br0")
    for flow in flows:
        switch.ofctl("add-flow", "br0", flow)


def test_transfers_are_whole_and_the_kernel_forwards_them(switch, pair):
    one, two = pair
    one.ping(two.address)
    tcp_transfer(one, two, two.address)
    udp_transfer(one, two, two.address, 1200)
    until(lambda: offload(switch)["packets"] > 100, "packets that the kernel forwarded")
    found = offloaded(switch)
    assert found and all("offloaded:yes, dp:tc" in line for line in found)
    assert all("offloaded" not in line for line in switch.ours.appctl("dpctl/dump-flows", "-m", "type=ovs").splitlines())
    # Echo requests and ARP are left to userspace, beside.
    one.ping(two.address)


def test_large_mtu(making, switch):
    hosts = [making.host(switch, number, mtu=9000) for number in (1, 2)]
    connect(switch, *hosts)
    tcp_transfer(hosts[0], hosts[1], hosts[1].address)
    udp_transfer(hosts[0], hosts[1], hosts[1].address, 8900)
    assert offload(switch)["packets"] > 100


def test_frames_too_long_for_the_target_are_counted_by_the_switch(making, switch):
    one, two = making.host(switch, 1, mtu=3000), making.host(switch, 2)
    connect(switch, one, two)
    straight(switch)
    tcp_transfer(one, two, two.address, 2_000_000)
    before = switch.ours.appctl("dpif/show-drops")
    source = one.python("transfer.py", "udp-source", two.address, 5100, 50, 2500, check=False)
    assert source.code == 0, str(source)
    assert switch.ours.appctl("dpif/show-drops") != before


def test_a_flow_that_drops_takes_effect_at_once(switch, pair):
    """After the barrier nothing passes, though the kernel forwarded it the moment before."""
    one, two = pair
    straight(switch)
    sink = two.start("iperf3", "--server", "--one-off", "--bind", two.address)
    until(lambda: two.run("ss", "-ltn").out.count(":5201") > 0, "the server")
    source = one.start("iperf3", "--client", two.address, "--time", "60", "--udp", "--bitrate", "20M", "--length", "1000")
    try:
        until(lambda: offload(switch)["packets"] > 200, "packets that the kernel forwarded")
        switch.ofctl("add-flow", "br0", "priority=9,udp,actions=drop")
        # ovs-ofctl waits for the barrier.
        before = received(two)
        until(lambda: switch.ours.n_packets("br0", "udp") > 300, "packets that are dropped")
        assert received(two) == before
        assert not [line for line in offloaded(switch) if "proto=17" in line]
    finally:
        for process in (source, sink):
            process.kill()
            process.communicate()


def received(host):
    """UDP datagrams over IPv4 that came in, whether anybody reads them or not."""
    lines = [line.split() for line in host.run("cat", "/proc/net/snmp").out.splitlines()]
    counts = {}
    for names, values in zip(lines[::2], lines[1::2]):
        counts |= {names[0] + name: int(value) for name, value in zip(names[1:], values[1:])}
    return counts["Ip:InReceives"] - counts["Tcp:InSegs"] - counts["Icmp:InMsgs"]


def test_rules_count_what_the_kernel_forwarded(switch, pair):
    one, two = pair
    straight(switch)
    switch.ofctl("add-flow", "br0", "priority=7,udp,in_port=1,actions=output:2")
    count = 3000
    sink = two.start_python("transfer.py", "udp-sink", two.address, 5100)
    before = int(one.run("cat", "/sys/class/net/e0/statistics/tx_packets").out)
    one.python("transfer.py", "udp-source", two.address, 5100, count, 700)
    finish(sink)
    until(lambda: switch.ours.n_packets("br0", "udp,in_port=1") >= count, "the rule to count them")
    sent = int(one.run("cat", "/sys/class/net/e0/statistics/tx_packets").out) - before
    assert count <= switch.ours.n_packets("br0", "udp,in_port=1") <= sent
    assert offload(switch)["packets"] > count / 2
    # Flows that are taken away leave what they counted.
    switch.ours.appctl("revalidator/purge")
    assert offload(switch)["flows"] == 0
    until(lambda: count <= switch.ours.n_packets("br0", "udp,in_port=1") <= sent, "the rule to count them still")


def test_counts_are_exact_while_flows_change(switch, pair):
    """Each datagram that came to a host was counted by the rule that let it pass, whoever forwarded it."""
    one, two = pair
    straight(switch)
    switch.ofctl("add-flow", "br0", "priority=7,udp,in_port=1,tp_dst=5100,actions=output:2")
    sink = two.start_python("transfer.py", "udp-sink", two.address, 5100)
    before = received(two)
    source = one.start("python3", "-c", SLOWLY, two.address)
    for _ in range(40):
        switch.ours.appctl("revalidator/purge")
        switch.ofctl("add-flow", "br0", "priority=9,udp,in_port=1,tp_dst=9,actions=drop")
        switch.ofctl("--strict", "del-flows", "br0", "priority=9,udp,in_port=1,tp_dst=9")
    out, err = source.communicate(timeout=120)
    assert source.returncode == 0, err
    finish(sink)
    sent = int(out)
    assert offload(switch)["packets"] > 100
    until(lambda: switch.ours.n_packets("br0", "udp,in_port=1") == sent, "the rule to have counted each")
    assert received(two) - before == sent


# As transfer.py does, but slow enough that no queue overflows.
SLOWLY = """
import socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 5100))
n = 0
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(5):
        s.send(struct.pack("!I", n) + b"x")
        n += 1
    time.sleep(0.001)
for _ in range(50):
    s.send(struct.pack("!I", 0xffffffff))
    n += 1
print(n)
"""


def test_transfers_survive_changes_of_flows(switch, pair):
    one, two = pair
    with Churn(switch):
        tcp_transfer(one, two, two.address)
    assert offload(switch)["packets"] > 0


def test_idle_timeout(switch, pair):
    """A rule that the kernel's packets use does not time out, and does when they end."""
    one, two = pair
    straight(switch)
    switch.ofctl("add-flow", "br0", "priority=7,idle_timeout=3,udp,in_port=1,actions=output:2")
    sink = two.start_python("transfer.py", "udp-sink", two.address, 5100)
    source = one.start("python3", "-c", SLOWLY.replace("+ 4", "+ 8"), two.address)
    _, err = source.communicate(timeout=60)
    assert source.returncode == 0, err
    finish(sink)
    assert "idle_timeout=3" in switch.ofctl("dump-flows", "br0", "udp,in_port=1")
    until(lambda: "idle_timeout=3" not in switch.ofctl("dump-flows", "br0"), "the rule to time out", deadline_s=20)
    until(lambda: not offloaded(switch), "idle flows to be taken back", deadline_s=30)


def test_what_the_kernel_cannot_do_is_left_to_userspace(making, switch):
    hosts = [making.host(switch, 1), TaggingHost(switch, 2)]
    making.namespaces.append(hosts[1])
    connect(switch, *hosts)
    address = hosts[1].add_vlan(7)
    switch.vsctl("set", "port", "p1", "tag=7")
    hosts[0].run("ip", "addr", "add", address.rsplit(".", 1)[0] + ".1/24", "dev", "e0")
    tcp_transfer(hosts[0], hosts[1], address, 5_000_000)
    assert offload(switch)["refused"]["actions other than one output"] > 0


def test_ports_come_and_go(switch, pair):
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
    # A device that is taken away, and comes again.
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
    assert "offload" not in switch.vsctl("get", "interface", "p1", "status")
    tcp_transfer(one, two, two.address, 5_000_000)
    switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    tcp_transfer(one, two, two.address, 5_000_000)
    assert len(programs(switch)) == 2 and offload(switch)["packets"] > 0


def test_a_killed_daemon_leaves_no_program(switch, pair):
    one, two = pair
    straight(switch)
    tcp_transfer(one, two, two.address, 5_000_000)
    assert offload(switch)["packets"] > 0
    switch.kill("ovs-vswitchd")
    # Nobody forwards, and nobody takes frames away from other programs on the device.
    one.cannot_ping(two.address)
    out = one.start("python3", "-c", SLOWLY.replace("+ 4", "+ 1"), two.address)
    before = received(two)
    out.communicate(timeout=30)
    assert received(two) == before
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
    # Root without these two, as in a container.
    less = ["setpriv", "--bounding-set=-bpf,-sys_admin", switch.programs / "ovs-vswitchd"]
    switch.start_switch(command=less)
    one, two = hosts = [making.host(switch, number) for number in (1, 2)]
    connect(switch, *hosts)
    why = "BPF maps (Operation not permitted)"
    assert switch.vsctl("get", "interface", "p1", "status:offload") == f'"none: {why}"'
    assert offload(switch) == {"enabled": False, "error": why}
    assert f"|WARN|hw-offload is not available, packets are forwarded in userspace: {why}" in switch.log()
    tcp_transfer(one, two, two.address, 5_000_000)
