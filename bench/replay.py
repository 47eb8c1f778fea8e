"""A switch whose packets come from memory: port 1 replays a capture file endlessly, port 2 discards all packets, and
one pinned thread forwards from one to the other. This measures the datapath, without any device.

The same code sets up and reads out our switch and Open vSwitch with DPDK; only the ports differ.
"""

import contextlib
import pathlib
import re
import time

import common
import workload
from report import middle

PEER, OURS = "ovs-dpdk", "flowstone"

# The thread that moves packets; everything else of the switch is kept off its core unless a benchmark decides
# otherwise.
PACKET_CORE = 1
CONTROL_CORE = 0
# Open vSwitch's default: one packet in 100 inserts its flow into the microflow cache.
INVERSE_PROBABILITY = 100

SETTLE_S_MIN, SETTLE_S_MAX = 2, 30

HUGE_PAGES = pathlib.Path("/proc/sys/vm/nr_hugepages")
HUGE_PAGE_MIB = 2
HUGE_PAGES_TRIES = 10
COMPACT_MEMORY = pathlib.Path("/proc/sys/vm/compact_memory")


class Replay:
    """One bridge between a replaying port and a discarding one; `which` is `OURS` or `PEER`."""

    def __init__(
        self,
        which,
        inverse_probability=INVERSE_PROBABILITY,
        confined=False,
        memory_mib=512,
        cores=(PACKET_CORE,),
        bridge="br0",
        preload=None,
    ):
        """Each of `cores` has a packet thread; in our switch, port 1 has a receive queue for each. With `confined` the whole
        daemon stays on these cores, which shows their total capacity. `memory_mib` is DPDK's, and has to hold the
        packets. Switches that run at the same time need different names of `bridge`. `preload` is a library that is
        preloaded into the peer's daemon (`play.c`, for `play`)."""
        self.which, self.cores, self.bridge = which, cores, bridge
        # The number of DPDK devices that were made by `play`.
        self.devices = 0
        self.made = contextlib.ExitStack()
        with contextlib.ExitStack() as made:
            daemon = "ovs-vswitchd"
            if which == PEER:
                daemon = "ovs-vswitchd-dpdk"
                common.need_peer_with_dpdk()
                made.enter_context(huge_pages(memory_mib + 128))
            self.switch = common.Switch("peer" if which == PEER else "ours", daemon)
            made.callback(self.switch.stop)
            config = {
                "emc-insert-inv-prob": inverse_probability,
                "pmd-cpu-mask": hex(sum(1 << core for core in cores)),
            }
            rest = ",".join(map(str, cores)) if confined else CONTROL_CORE
            if which == PEER:
                config |= self._dpdk(made, memory_mib, rest)
                if preload is not None:
                    self.switch.env["LD_PRELOAD"] = str(preload)
            self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *(f"other_config:{k}={v}" for k, v in config.items()))
            remove_devices(bridge)
            self.switch.start(core=rest)
            self.vsctl("add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev", "fail-mode=secure")
            self.made = made.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.made.close()

    def _dpdk(self, made, memory_mib, control_cores):
        """DPDK's options. Its files go into the switch's own directory, so that runs do not conflict and no file
        remains."""
        pages = self.switch.dir / "pages"
        pages.mkdir()
        common.run("mount", "-t", "hugetlbfs", "none", pages)
        made.callback(self._unmount, pages)
        self.switch.env["RUNTIME_DIRECTORY"] = str(self.switch.dir)
        return {
            "dpdk-init": "true",
            "dpdk-socket-mem": memory_mib,
            "dpdk-lcore-mask": hex(1 << int(str(control_cores).split(",")[0])),
            "dpdk-extra": f"--no-pci --huge-dir={pages} --file-prefix={self.switch.dir.name}{drivers_of(common.PEERS)}",
        }

    def _unmount(self, pages):
        # The daemon has to release the pages before they can be unmounted.
        self.switch.end(self.switch.daemon)
        common.run("umount", pages, check=False)

    def vsctl(self, *words):
        return self.switch("ovs-vsctl", "--timeout=120", *words)

    def appctl(self, *words):
        return self.switch("ovs-appctl", "--timeout=120", "-t", self.switch.daemon, *words)

    def add_flows(self, path, bridge=None):
        self.switch("ovs-ofctl", "-O", "OpenFlow13", "add-flows", bridge or self.bridge, path)

    def add_groups(self, groups):
        for group in groups:
            self.switch("ovs-ofctl", "-O", "OpenFlow13", "add-group", self.bridge, group)

    def add_output(self, bridge=None):
        """Port 2, which discards packets. This and all other ports may be of another bridge."""
        self._add_port("out0", 2, self.discarding(0), bridge=bridge)

    def add_input(self, pcap, wait=True, bridge=None):
        """Port 1, which replays; packets arrive from this moment on. Without `wait`, returns
        before the switch has added the port: the switch replies late if the first packets keep it busy."""
        pcap = pathlib.Path(pcap).resolve()
        options = ["type=replay", f"options:pcap={pcap}"]
        if len(self.cores) > 1:
            options += [f"options:n_rxq={len(self.cores)}", "options:rxq-share=divided"]
        if self.which == PEER:
            options = ["type=dpdk", f"options:dpdk-devargs=net_pcap0,rx_pcap={pcap},infinite_rx=1"]
        self._add_port("in0", 1, options, wait, bridge)

    def add_null(self, name, number, bridge=None):
        """Another port that discards packets."""
        self._add_port(name, number, self.discarding(number), bridge=bridge)

    def play(self, name, number, pcaps, **how):
        """Adds a port of `playing`."""
        self._add_port(name, number, self.playing(pcaps, **how))

    def playing(self, pcaps, times=0, rate=0, new_addresses=False):
        """The settings of an interface that plays a capture file so many `times` (0: for ever), at most `rate` frames a
        second (0: as many as the switch takes), with other addresses each time if `new_addresses`. Of several files each
        has a receive queue of its own. Works for the peer with `play.c` alone."""
        pcaps = [pathlib.Path(pcap).resolve() for pcap in pcaps]
        if self.which == PEER:
            for pcap in pcaps:
                pathlib.Path(f"{pcap}.play").write_text(f"{times} {rate} {int(new_addresses)}\n")
            self.devices += 1
            device = ",".join([f"net_pcap{self.devices}", *(f"rx_pcap={pcap}" for pcap in pcaps)])
            return ["type=dpdk", f'options:dpdk-devargs="{device}"', f"options:n_rxq={len(pcaps)}"]
        if len(pcaps) > 1:
            joined = pcaps[0].with_suffix(".joined")
            joined.write_bytes(pcaps[0].read_bytes() + b"".join(pcap.read_bytes()[24:] for pcap in pcaps[1:]))
            pcaps = [joined, *pcaps[1:]]
        options = ["type=replay", f"options:pcap={pcaps[0]}", f"options:n_rxq={len(pcaps)}"]
        options += ["options:rxq-share=divided"] * (len(pcaps) > 1)
        options += [f"options:times={times}"] * (times > 0) + [f"options:rate={rate}"] * (rate > 0)
        return options + ["options:new-addresses=true"] * new_addresses

    def discarding(self, number):
        """The settings of an interface that discards packets; each has a number of its own."""
        if self.which == PEER:
            return ["type=dpdk", f"options:dpdk-devargs=net_null{number},no-rx=1", "options:n_rxq=1"]
        return ["type=null"]

    def port_counts(self, bridge=None):
        """For each port by number the packets that it has received and sent, in one answer, and the time in seconds."""
        text = self.switch("ovs-ofctl", "dump-ports", bridge or self.bridge)
        at_s = time.monotonic()
        found = re.findall(r"port +(\d+): rx pkts=(\d+).*\n +tx pkts=(\d+)", text)
        return {int(port): (int(received), int(sent)) for port, received, sent in found}, at_s

    def establish(self, handshakes, count, new_addresses=False, patience_s=300):
        """Plays handshakes until the switch tracks `count` connections. The first ones may arrive before the switch knows
        the port, so they are repeated."""
        self.play("setup0", 4, [handshakes], new_addresses=new_addresses)
        give_up_s = time.monotonic() + patience_s
        while (found := self.connections()) < count:
            if time.monotonic() > give_up_s:
                raise SystemExit(f"{self.which}: {found} of {count} connections in {patience_s} s\n{self.switch.log_tail()}")
            time.sleep(0.2)
        self.vsctl("del-port", self.bridge, "setup0")

    def connections(self):
        """The number of tracked connections."""
        return int(re.search(r"\d+", self.appctl("dpctl/ct-get-nconns"))[0])

    def _add_port(self, name, number, options, wait=True, bridge=None):
        words = ["add-port", bridge or self.bridge, name, "--", "set", "Interface", name, f"ofport_request={number}", *options]
        if not wait:
            self.vsctl("--no-wait", *words)
            return
        self.vsctl(*words)
        ofport, error = self.vsctl("get", "Interface", name, "ofport", "error").splitlines()
        if ofport != str(number):
            raise SystemExit(f"{self.which}: port {name} is not there: {error}\n{self.switch.log_tail()}")

    def clear_stats(self):
        self.appctl("dpif-netdev/pmd-stats-clear")

    def stats(self):
        """Counters of the packet thread since `clear_stats`."""
        return parse_stats(self.switch.ask("dpif-netdev/pmd-stats-show"))

    def thread_stats(self):
        """The counters of each packet thread."""
        threads = threads_of(self.switch.ask("dpif-netdev/pmd-stats-show"))
        threads.sort(key=lambda thread: thread.get("packets received", 0), reverse=True)
        return threads[: len(self.cores)]


def drivers_of(peers):
    """DPDK's option that names its drivers, if they are unpacked with the peer: an installed DPDK finds its own."""
    return "".join(f" -d {folder}" for folder in sorted(peers.resolve().glob("usr/lib/*/dpdk/pmds-*")))


def remove_devices(bridge="br0"):
    """Removes devices that an earlier switch has left, in this benchmark's own network: Open vSwitch keeps its taps,
    which stay busy for a moment after it has ended."""

    def gone(name):
        common.run("ip", "link", "del", name, check=False)
        return not common.run("ip", "link", "show", name, check=False)

    for name in (bridge, "ovs-netdev"):
        common.wait_for(lambda: gone(name), f"the device {name} to be gone")


def measure(which, pcap, flows, seconds=5.0, inverse_probability=INVERSE_PROBABILITY, groups=()):
    """Packets a second and their cost, once caches have filled."""
    with Replay(which, inverse_probability) as replay:
        replay.add_output()
        replay.add_groups(groups)
        replay.add_flows(flows)
        replay.add_input(pcap)
        settle(replay, 2 * workload.packets_in(pcap))
        replay.clear_stats()
        start = time.monotonic()
        time.sleep(seconds)
        stats = replay.stats()
        elapsed_s = time.monotonic() - start
        if not stats.get("packets received"):
            raise SystemExit(f"{which}: no packets came in\n{replay.switch.log_tail()}")
        return figures(which, stats, elapsed_s)


def settle(replay, packets):
    """Waits two seconds, and longer for many packets: every packet must have passed more than once."""
    start = time.monotonic()
    time.sleep(SETTLE_S_MIN)
    while replay.stats().get("packets received", 0) < packets and time.monotonic() - start < SETTLE_S_MAX:
        time.sleep(0.1)


def in_turns(name, directory, options, inverse_probability):
    """One workload, both switches in turns: for each the medians of cycles a packet and Mpps, and every single figure."""
    pcap, flows = workload.write(name, directory)
    groups = workload.GROUPS.get(name.partition("-")[0], ())
    turns = {PEER: [], OURS: []}
    for round_number in range(options.rounds):
        for which, found in turns.items():
            common.say(f"{name}, inverse probability {inverse_probability}, round {round_number + 1}: {which}")
            found.append(measure(which, pcap, flows, options.seconds, inverse_probability, groups))
    return {
        which: {
            "cycles_per_packet": middle(one["cycles_per_packet"] for one in found),
            "mpps": middle(one["mpps"] for one in found),
            "rounds": found,
        }
        for which, found in turns.items()
    }


def figures(which, stats, elapsed_s):
    """The printed figures; `None` for values that a switch does not count."""
    return {
        "peer": which,
        "mpps": round(stats["packets received"] / elapsed_s / 1e6, 4),
        "cycles_per_packet": stats.get("avg processing cycles per packet", stats.get("avg cycles per packet")),
        "emc_hits": stats.get("emc hits"),
        "smc_hits": stats.get("smc hits"),
        "megaflow_hits": stats.get("megaflow hits"),
        "subtable_lookups_per_hit": stats.get("avg. subtable lookups per megaflow hit"),
        "misses": stats.get("miss with success upcall"),
    }


# The counters of Open vSwitch 4.0 by the names that they had before.
NAMES_OF_4_0 = {
    "Rx packets": "packets received",
    "EMC hits": "emc hits",
    "SMC hits": "smc hits",
    "Megaflow hits": "megaflow hits",
    "Upcalls": "miss with success upcall",
    "Lost upcalls": "miss with failed upcall",
}
# What 4.0 has in parentheses behind a counter.
DETAILS_OF_4_0 = {
    "avg cycles per packet": re.compile(r"(\d+) cycles/pkt"),
    "avg. subtable lookups per megaflow hit": re.compile(r"([\d.]+) subtbl lookups/hit"),
}


def parse_stats(text):
    """The counters in `dpif-netdev/pmd-stats-show`, of the thread that received most; by their names before 4.0."""
    return max(threads_of(text), key=lambda thread: thread.get("packets received", 0), default={})


def threads_of(text):
    """The counters of each thread."""
    threads = []
    for line in text.splitlines():
        if not line.startswith((" ", "\t")):
            threads.append({})
            continue
        name, _, value = line.strip().removeprefix("- ").partition(":")
        number = re.match(r"\s*(\d+(\.\d+)?)", value)
        if not number or not threads:
            continue
        threads[-1][NAMES_OF_4_0.get(name, name)] = float(number[1]) if number[2] else int(number[1])
        for detail, pattern in DETAILS_OF_4_0.items():
            if found := pattern.search(value):
                threads[-1][detail] = float(found[1])
    return threads


@contextlib.contextmanager
def huge_pages(mib):
    """Provides at least this much memory in free huge pages; pages reserved for it are returned."""
    reserved = int(HUGE_PAGES.read_text())
    pages = dict(re.findall(r"HugePages_(\w+):\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()))
    # Pages that were returned while a process had them are about to disappear.
    missing = -(-mib // HUGE_PAGE_MIB) - max(0, int(pages["Free"]) - int(pages["Surp"]))
    if missing <= 0:
        yield
        return
    try:
        for _ in range(HUGE_PAGES_TRIES):
            HUGE_PAGES.write_text(str(reserved + missing))
            if int(HUGE_PAGES.read_text()) >= reserved + missing:
                break
            # Free memory may be fragmented.
            COMPACT_MEMORY.write_text("1")
            time.sleep(1)
        else:
            raise SystemExit(f"the kernel has no {mib} MiB left for huge pages")
        yield
    finally:
        HUGE_PAGES.write_text(str(reserved))
