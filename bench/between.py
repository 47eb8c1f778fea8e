"""Two hosts with a switch between them, over the available port types, and the switch's use of the processors.

Ports that sleep until packets arrive (`system`) have their whole daemon on one core, which also does the kernel's
part of receiving (receive packet steering). A packet thread polls AF_XDP ports (`afxdp`) on that core; the rest of
the daemon runs on the other core, beside the senders, and the kernel receives on the sender's core, as veth devices
with XDP do.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
import time

import common
from replay import CONTROL_CORE, PACKET_CORE, remove_devices


@dataclasses.dataclass(frozen=True)
class Kind:
    """A switch by its name in tables: `which` of `common.Switch` (None: a cable), and the type of its ports."""

    name: str
    which: str
    type: str = "system"
    label: str = ""


WIRE, PEER_SYSTEM, PEER_AFXDP, OUR_SYSTEM, OUR_AFXDP = ALL = (
    Kind("wire", None, label="no switch: one veth pair"),
    Kind("ovs-system", "peer", label="Open vSwitch, system"),
    Kind("ovs-afxdp", "peer", "afxdp", label="Open vSwitch, afxdp"),
    Kind("flowstone-system", "ours", label="Flowstone, system"),
    Kind("flowstone-afxdp", "ours", "afxdp", label="Flowstone, afxdp"),
)
BY_NAME = {kind.name: kind for kind in ALL}

NO_SUCH_TYPE = "no such port type"
STRAIGHT = ("in_port=1,actions=output:2", "in_port=2,actions=output:1")


class NoSuchType(Exception):
    """The switch has no ports of this type."""


def chosen(options):
    """The switches named by `--switches`, in its order."""
    return [BY_NAME[name] for name in options.switches if BY_NAME[name].which]


class Between:
    """A switch of a kind with ports 1 and 2 to two hosts, for a `with` block. Without `pinned` only packet threads
    are pinned to a core; without `polls` the switch keeps its default. `NoSuchType` if the switch does not know
    the port type."""

    def __init__(self, kind, flows=STRAIGHT, pinned=True, config=(), polls=True):
        self.kind = kind
        with contextlib.ExitStack() as made:
            if kind.which is None:
                self.hosts, self.switch = made.enter_context(cable(steer=True)), None
            else:
                self.hosts, self.devices = made.enter_context(common.hosts(2))
                self._start(made, pinned, config, polls)
                self._add_bridge(flows)
            self.made = made.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.made.close()

    def _start(self, made, pinned, config, polls):
        common.receive_on(PACKET_CORE, self.devices)
        if self.kind.which == "peer":
            common.need_peer()
        self.switch = common.Switch(self.kind.which)
        made.callback(self.switch.stop)
        config = [f"other_config:{words}" for words in config]
        if polls:
            config.append(f"other_config:pmd-cpu-mask={1 << PACKET_CORE:#x}")
        if config:
            self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *config)
        remove_devices()
        system = self.kind.type == "system"
        self.switch.start(core=(PACKET_CORE if system else CONTROL_CORE) if pinned else None)
        # Both list the types that they create by themselves; `system` needs none.
        if not system and self.kind.type not in self._types():
            raise NoSuchType(self.kind.name)
        if not system:
            # A frame of a local socket has a partial checksum, and AF_XDP has no flag for that.
            common.need_programs("ethtool")
            for host in self.hosts:
                common.run("ip", "netns", "exec", host, "ethtool", "-K", "e0", "tx", "off")

    def _types(self):
        """The port types that the switch reports, once it has done so."""
        asked = lambda: self.vsctl("get", "Open_vSwitch", ".", "iface_types").strip().strip("[]").replace('"', "")
        common.wait_for(asked, f"{self.kind.name} to say which types of port it has")
        return asked().split(", ")

    def _add_bridge(self, flows):
        words = ["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev", "fail-mode=secure"]
        for number, device in enumerate(self.devices, 1):
            words += ["--", "add-port", "br0", device, "--", "set", "Interface", device]
            words += [f"type={self.kind.type}", f"ofport_request={number}"]
        self.vsctl(*words)
        for device in self.devices:
            ofport, error = self.vsctl("get", "Interface", device, "ofport", "error").splitlines()
            if not ofport.isdigit():
                raise SystemExit(f"{self.kind.name}: {device} is no port: {error}\n{self.switch.log_tail()}")
        for flow in flows:
            self.switch("ovs-ofctl", "add-flow", "br0", flow)

    def vsctl(self, *words):
        return self.switch("ovs-vsctl", "--timeout=60", *words)

    def frames(self, program, *options, seconds):
        """Runs `frames` from the first host to the second on the senders' core; returns its output."""
        words = self._frames(program, options, seconds)
        return json.loads(common.run(*words, timeout=seconds + 30))

    def frames_beside(self, program, *options, seconds):
        """The same as a running process."""
        return subprocess.Popen(self._frames(program, options, seconds), stdout=subprocess.PIPE, text=True)

    def _frames(self, program, options, seconds):
        a, b = self.hosts
        return [*map(str, ("taskset", "-c", CONTROL_CORE, program, *options, "-t", seconds, a, "e0", b, "e0"))]

    def used(self):
        """Totals so far: the difference of two `Use` values is the use between them."""
        packets = json.loads(common.run("ip", "-n", self.hosts[1], "-j", "-s", "link", "show", "e0"))
        switch_ns = run_time_ns(self.switch.pid()) if self.switch else 0
        return Use(time.monotonic(), packets[0]["stats64"]["rx"]["packets"], switch_ns, softirq_ns())


@dataclasses.dataclass(frozen=True)
class Use:
    """Seconds, packets at the receiver, run time of the switch daemon's threads, and time of all processors in soft
    interrupts. The kernel has no clock for interrupts here and counts them by its ticks; interrupts while a
    thread runs are in the thread's run time as well."""

    s: float
    packets: int
    switch_ns: int
    softirq_ns: int

    def __sub__(self, other):
        return Use(*(a - b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    def per_packet(self):
        """Nanoseconds of the daemon and of soft interrupts for each packet; None without packets."""
        if self.packets <= 0:
            return None, None
        return round(self.switch_ns / self.packets), round(self.softirq_ns / self.packets)


def run_time_ns(pid):
    """Processor time of all threads of a process so far, by the scheduler's clock."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            total += int((task / "schedstat").read_text().split()[0])
    return total


def softirq_ns():
    ticks = int(pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[7])
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def cable(steer=False):
    """Two namespaces with the ends e0 of one veth pair (10.98.0.1 and .2); with `steer` the kernel receives on the
    core that a switch would have."""
    names = [f"fb{os.getpid() % 100000}h{i}" for i in range(2)]
    try:
        for name in names:
            common.run("ip", "netns", "add", name)
        common.run("ip", "link", "add", "e0", "netns", names[0], "type", "veth", "peer", "name", "e0", "netns", names[1])
        for number, name in enumerate(names, 1):
            common.run("ip", "-n", name, "addr", "add", f"10.98.0.{number}/24", "dev", "e0")
            for device in ("lo", "e0"):
                common.run("ip", "-n", name, "link", "set", device, "up")
            if steer:
                command = f"echo {1 << PACKET_CORE:x} > /sys/class/net/e0/queues/rx-0/rps_cpus"
                common.run("ip", "netns", "exec", name, "sh", "-c", command)
        yield names
    finally:
        for name in names:
            common.run("ip", "netns", "del", name, check=False)


@contextlib.contextmanager
def compiled(*names):
    """A folder with these programs of bench/, compiled."""
    common.need_programs("cc", "ip", "taskset")
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        directory = pathlib.Path(directory)
        for name in names:
            common.run("cc", "-O2", "-pthread", "-o", directory / name, common.ROOT / f"bench/{name}.c")
        yield directory
