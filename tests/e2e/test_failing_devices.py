"""Failures of kernel devices and taps under a switch: they vanish, go down, change, fill up, or cannot be opened.
The interface row and the log report each failure, lost packets are counted, and the port recovers with its
device. (tests/e2e/test_afxdp.py tests the same for ports over AF_XDP.)"""

import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from ends import End, Local, Tap
from hosts import run, start_by
from test_afxdp import error, statistics
from waiting import until


@pytest.fixture(scope="module")
def place(module_making):
    switch = module_making.switch(start="kernel")
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    made = [kind(module_making, switch, number) for number, kind in enumerate((End, End, Local, Tap), 1)]
    for end in made:
        end.settle("e0", 1)
    return switch, made


def drops(switch, port, way, reason):
    """Packets that a port counts as dropped for a reason."""
    text = switch.appctl("dpif/show-drops")
    return sum(map(int, re.findall(rf"port \d+ \({port}\) {way} {reason}: (\d+)", text)))


def flood(sender, receiver, count=3000, length=1000):
    """Sends datagrams to a host whose address is resolved, without flow control."""
    mac = receiver.run("cat", "/sys/class/net/e0/address").out.strip()
    sender.run("ip", "neigh", "replace", receiver.at(1), "lladdr", mac, "dev", "e0", "nud", "permanent")
    sender.python("transfer.py", "udp-flood", receiver.at(1), 5100, count, length)
    sender.run("ip", "neigh", "delete", receiver.at(1), "dev", "e0")


def link(switch, port, *words):
    run(["ip", "-n", switch.namespace, "link", "set", port, *words])


def row(switch, port, column):
    return switch.vsctl("get", "interface", port, column)


@pytest.mark.parametrize("index", [1, 2, 3], ids=["system", "internal", "tap"])
def test_down_and_up(place, index):
    switch, ends = place
    one, end = ends[0], ends[index]
    one.ping(end.at(1))
    link(switch, end.port, "down")
    until(lambda: row(switch, end.port, "admin_state") == "down", "the port seen down")
    assert row(switch, end.port, "link_state") == "down"
    before = drops(switch, end.port, "tx", "port-down")
    flood(one, end, 100)
    until(lambda: drops(switch, end.port, "tx", "port-down") >= before + 100, lambda: switch.appctl("dpif/show-drops"))
    link(switch, end.port, "up")
    until(lambda: row(switch, end.port, "link_state") == "up", "the port seen up")
    assert int(row(switch, end.port, "link_resets")) >= 2
    one.ping(end.at(1))


@pytest.mark.parametrize("index", [1, 2, 3], ids=["system", "internal", "tap"])
def test_mtu(place, index):
    """The MTU changes outside the switch, and by the row."""
    switch, ends = place
    one, end = ends[0], ends[index]
    one.ping(end.at(1), "-s", "4000", "-M", "do")
    if index == 2:
        switch.vsctl("set", "interface", end.port, "mtu_request=1400")
    else:
        link(switch, end.port, "mtu", 1400)
    until(lambda: row(switch, end.port, "mtu") == "1400", "the smaller MTU")
    too_big = lambda: int(re.search(r"  too-big: (\d+)|$", switch.appctl("dpif/show-drops")).group(1) or 0)
    before = too_big()
    one.run("ping", "-c", "3", "-i", "0.1", "-W", "1", "-s", "4000", "-M", "do", end.at(1), check=False)
    # The first packet detects the change; a tap accepts any size.
    until(lambda: too_big() >= before + 2, lambda: switch.appctl("dpif/show-drops"))
    switch.vsctl("set", "interface", end.port, "mtu_request=9000")
    until(lambda: row(switch, end.port, "mtu") == "9000", "the larger MTU")
    # The overlying device has followed.
    until(lambda: end.run("ip", "link", "set", "e0", "mtu", 9000, check=False).code == 0, "the host's MTU")
    one.ping(end.at(1), "-s", "4000", "-M", "do")
    # An unsupported value is refused, and reported once.
    switch.vsctl("set", "interface", end.port, "mtu_request=70000")
    text = f"{end.port}: could not set MTU to 70000 ("
    until(lambda: text in switch.log(), "the refusal")
    assert row(switch, end.port, "mtu") == "9000"
    switch.vsctl("set", "interface", end.port, "mtu_request=9000", "--", "set", "bridge", "br0", "other_config:x=y")
    assert switch.log().count(text) == 1
    one.ping(end.at(1), "-s", "4000", "-M", "do")


def test_device_is_deleted_and_recreated(place):
    switch, ends = place
    one, end = ends[:2]
    end.delete_device()
    until(lambda: error(switch, end.port) == f'"could not open network device {end.port} (No such device)"', "the loss")
    assert row(switch, end.port, "ofport") == "-1" and "No such device" in switch.log()
    end.revive()
    end.settle("e0", 1)
    assert int(row(switch, end.port, "ofport")) > 0
    one.ping(end.at(1))
    # The same under another name, and back.
    link(switch, end.port, "down")
    link(switch, end.port, "name", "other")
    until(lambda: "No such device" in error(switch, end.port), "the loss")
    link(switch, "other", "name", end.port)
    link(switch, end.port, "up")
    until(lambda: error(switch, end.port) == "[]", "the port opened again")
    one.ping(end.at(1))


def test_a_tap_whose_reader_stops(place):
    """A tap without a reader fills up: overflowing packets are counted, and other ports are not delayed."""
    switch, ends = place
    one, two, _, tap = ends
    one.ping(tap.at(1))
    os.kill(tap.relay.pid, signal.SIGSTOP)
    try:
        flood(one, tap)
        one.ping(two.at(1))
        # The kernel accepts frames for the device, and drops them behind it.
        until(lambda: statistics(switch, tap.port).get("tx_dropped", 0) > 0, lambda: row(switch, tap.port, "statistics"))
        assert drops(switch, tap.port, "tx", "device") > 0
    finally:
        os.kill(tap.relay.pid, signal.SIGCONT)
    one.ping(tap.at(1))


def test_a_full_device_queue(place):
    """Frames wait for a rate-limited device, and overflowing packets are counted; other ports are not delayed."""
    switch, ends = place
    one, two, three, _ = ends
    one.ping(two.at(1))
    tc = ["ip", "netns", "exec", switch.namespace, "tc", "qdisc"]
    full = lambda: drops(switch, two.port, "tx", "output-queue-full")
    before = full()
    run([*tc, "replace", "dev", two.port, "root", *"tbf rate 8kbit burst 16k limit 20000".split()])
    try:
        flood(one, two)
        one.ping(three.at(1))
        # Most of them: some wait, and the first ones may have overflowed the slow path.
        until(lambda: full() - before > 1000, lambda: switch.appctl("dpif/show-drops"))
    finally:
        run([*tc, "delete", "dev", two.port, "root"])
    one.ping(two.at(1))
    assert full() - before <= 3000


@pytest.mark.parametrize("index", [0, 2], ids=["system", "internal"])
def test_a_switch_that_does_not_read(place, index):
    """Frames that overflow while the switch does not poll are counted once."""
    switch, ends = place
    end, two = ends[index], ends[1]
    end.ping(two.at(1))
    before = statistics(switch, end.port)["rx_dropped"]
    pid = switch.pid("ovs-vswitchd")
    os.kill(pid, signal.SIGSTOP)
    try:
        flood(end, two, 6000, 8000)
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: statistics(switch, end.port)["rx_dropped"] > before, lambda: row(switch, end.port, "statistics"))
    end.ping(two.at(1))
    counted = statistics(switch, end.port)["rx_dropped"]
    assert counted - before <= 6000


def test_queues_of_the_device_change(place):
    """The queues of a packet socket do not depend on them."""
    switch, ends = place
    one, two = ends[:2]
    for n in (2, 1):
        run(["ip", "netns", "exec", switch.namespace, "ethtool", "-L", two.port, "rx", n, "tx", n])
        one.ping(two.at(1))
        assert error(switch, two.port) == "[]"


def test_too_many_open_files(place):
    """No event reports free descriptors, so the switch retries from time to time."""
    switch, ends = place
    one, two = ends[:2]
    pid = switch.pid("ovs-vswitchd")
    two.delete_port()
    taken = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    n = next(n for n in range(len(taken) + 1) if n not in taken)
    limits = run(["prlimit", "--noheadings", "--raw", "--output=SOFT,HARD", "--nofile", f"--pid={pid}"]).out.split()
    run(["prlimit", f"--pid={pid}", f"--nofile={n}:{limits[1]}"])
    try:
        switch.vsctl("add-port", "br0", two.port, check=False)
        assert error(switch, two.port) == f'"could not open network device {two.port} (Too many open files)"'
        assert f"could not open network device {two.port} (Too many open files)" in switch.log()
    finally:
        run(["prlimit", f"--pid={pid}", f"--nofile={limits[0]}:{limits[1]}"])
    until(lambda: error(switch, two.port) == "[]", "the port opened")
    one.ping(two.at(1))


def test_no_memory_for_a_port(place):
    """Neither for sockets of type afxdp, which need memory, nor for a ring, without which a busy port continues."""
    switch, ends = place
    one, two = ends[:2]
    pid = switch.pid("ovs-vswitchd")
    run(["ip", "-n", switch.namespace, "link", "add", "spare", "type", "veth", "peer", "name", "other"])
    size_kib = int(re.search(r"VmSize:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1))
    run(["prlimit", f"--pid={pid}", f"--as={(size_kib + 3000) * 1024}:unlimited"])
    try:
        switch.vsctl("add-port", "br0", "spare", "--", "set", "interface", "spare", "type=afxdp", check=False)
        text = "could not open network device spare (AF_XDP memory of 8192 KiB: Cannot allocate memory)"
        assert error(switch, "spare") == f'"{text}"' and text in switch.log()
        one.ping(two.at(1))
    finally:
        run(["prlimit", f"--pid={pid}", "--as=unlimited:unlimited"])
    until(lambda: error(switch, "spare") == "[]", "the port opened")
    switch.vsctl("del-port", "br0", "spare")
    run(["ip", "-n", switch.namespace, "link", "delete", "spare"])


RAW, ADMIN = (f"Operation not permitted: the process lacks CAP_NET_{word}" for word in ("RAW", "ADMIN"))


@pytest.mark.parametrize(
    ("lacking", "errors"),
    [("net_raw", {"p1": RAW}), ("net_admin", {"br0": ADMIN}), ("net_raw,-net_admin", {"p1": RAW, "br0": ADMIN})],
    ids=["net_raw", "net_admin", "both"],
)
def test_missing_capabilities(making, lacking, errors):
    """The row and the log name the missing capability; ports that do not need it work."""
    switch = making.switch(start=False)
    making.host(switch, 1)
    start_by(switch, "setpriv", f"--bounding-set=-{lacking}")
    switch.vsctl("add-br", "br0", "--", "add-port", "br0", "p1", check=False)
    for port in ("p1", "br0"):
        text = f"could not open network device {port} ({errors.get(port)})"
        assert error(switch, port) == (f'"{text}"' if port in errors else "[]")
        assert (text in switch.log()) == (port in errors)


NOBODY = 65534


@pytest.fixture
def open_directory():
    """A directory that other users may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="flowstone-") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


def test_another_user(open_directory, making):
    """Without permission to write, the switch reports that and ends; with it, the switch runs, and each device
    reports the missing capability."""
    run_directory, binary = open_directory / "run", open_directory / "ovs-vswitchd"
    run_directory.mkdir()
    run_directory.chmod(0o755)
    switch = making.switch(start=False, directory=run_directory)
    making.host(switch, 1)
    shutil.copy(switch.programs / "ovs-vswitchd", binary)
    switch.create_database()
    switch.start_database()
    switch.ours.vsctl("--no-wait", "init")
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", binary, f"unix:{switch.socket}"]
    with pytest.raises(AssertionError, match=r"failed to open \S+/ovs-vswitchd.log for logging: Permission denied"):
        switch.start_switch("--enable-dummy", command=as_nobody)
    for path in (run_directory, *run_directory.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    switch.start_switch("--enable-dummy", command=as_nobody)
    switch.vsctl("add-br", "br0", "--", "add-port", "br0", "p1", check=False)
    assert error(switch, "p1") == f'"could not open network device p1 ({RAW})"'
    # Some machines restrict the tap device file.
    output = error(switch, "br0")
    assert "the process lacks CAP_NET_ADMIN" in output and ("Operation not permitted: " in output or "/dev/net/tun: " in output)
    assert "panic" not in switch.log()
    switch.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy")
    assert error(switch, "br1") == "[]"
