"""The cost of an idle switch: memory, also by port, and processor time; and the latency of the first packet after a
pause, with its flow still cached and expired.

Packet threads have the switch's defaults: they are not pinned.

Memory is resident memory, without huge pages. Ports are of the measured kind, each a veth device; beside the growth
of the daemon for each port, the machine's loss (MemAvailable) includes the kernel's memory for sockets.
"""

import contextlib
import pathlib
import re
import time

import common
from between import NO_SUCH_TYPE, Between, NoSuchType, chosen, compiled, run_time_ns
from report import Report, Table, middle

PORTS = 200
SETTLE_S = 3
PAUSE_S = 2
# A flow without packets for this time expires, long before a pause is over.
MAX_IDLE_MS = 500
PACKETS = 5


def measure(options):
    kinds = chosen(options)
    turns = {kind: [] for kind in kinds}
    with compiled("frames") as programs:
        for round_number in range(options.rounds):
            for kind in kinds:
                try:
                    turns[kind].append(one(kind, programs / "frames", options.seconds))
                except NoSuchType:
                    turns[kind] = None
                    common.say(f"{kind.name}: {NO_SUCH_TYPE}")
                    continue
                common.say(f"idle, round {round_number + 1}, {kind.name}: {turns[kind][-1]}")
            kinds = [kind for kind in kinds if turns[kind] is not None]
    return report(turns)


def one(kind, frames, seconds):
    """One turn of one switch: two switches are started, the first with flows that stay cached."""
    with Between(kind, polls=False) as between:
        time.sleep(SETTLE_S)
        found = {"bytes": between.switch.rss_bytes(), "database_bytes": rss_bytes(between.switch.pid("ovsdb-server"))}
        found["percent_of_a_core"] = percent(between, seconds)
        found["cached"] = first_packets(between, frames)
        if kind.type == "system":
            found["bytes_a_port"], found["machine_bytes_a_port"] = bytes_a_port(between)
    with Between(kind, config=[f"max-idle={MAX_IDLE_MS}"], polls=False) as between:
        found["not_cached"] = first_packets(between, frames)
    return found


def rss_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+)", text, re.MULTILINE)[1]) * 1024


def percent(between, seconds):
    """Processor time of an idle switch daemon."""
    start_s, start_ns = time.monotonic(), run_time_ns(between.switch.pid())
    time.sleep(seconds)
    return round((run_time_ns(between.switch.pid()) - start_ns) / (time.monotonic() - start_s) / 1e7, 3)


def first_packets(between, frames):
    """Latencies of single packets with a pause before each, in microseconds; without the first one, which always
    misses."""
    between.frames(frames, "-r", 1000, seconds=0.1)
    time.sleep(PAUSE_S)
    return between.frames(frames, "-r", 1 / PAUSE_S, seconds=PACKETS * PAUSE_S - 0.5)["us"]


def bytes_a_port(between):
    """The growth of the daemon's resident memory with many ports, once each has existed for a while, and the
    machine's loss of memory."""
    pairs = [(f"many{number}", f"far{number}") for number in range(PORTS)]
    with contextlib.ExitStack() as made:
        for near, far in pairs:
            common.run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            made.callback(common.run, "ip", "link", "del", near, check=False)
            for device in (near, far):
                common.run("ip", "link", "set", device, "up")
        time.sleep(SETTLE_S)
        before, had = between.switch.rss_bytes(), available_bytes()
        add = [word for near, _ in pairs for word in ("--", "add-port", "br0", near)]
        between.vsctl(*add[1:])
        time.sleep(SETTLE_S)
        grown, taken = between.switch.rss_bytes() - before, had - available_bytes()
        between.vsctl(*[word for near, _ in pairs for word in ("--", "del-port", "br0", near)][1:])
        return grown // PORTS, taken // PORTS


def available_bytes():
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"^MemAvailable:\s+(\d+)", text, re.MULTILINE)[1]) * 1024


COLUMNS = {
    "resident, KiB": lambda one: one["bytes"] // 1024,
    "database, KiB": lambda one: one["database_bytes"] // 1024,
    "bytes a port": lambda one: one.get("bytes_a_port"),
    "of the machine": lambda one: one.get("machine_bytes_a_port"),
    "% of a core": lambda one: one["percent_of_a_core"],
    "first packet, µs": lambda one: one["cached"] and one["cached"]["p50"],
    "longest": lambda one: one["cached"] and one["cached"]["max"],
    "not cached, µs": lambda one: one["not_cached"] and one["not_cached"]["p50"],
    "not cached, longest": lambda one: one["not_cached"] and one["not_cached"]["max"],
}


def report(turns):
    figures, rows = {}, []
    for kind, found in turns.items():
        if not found:
            figures[kind.name] = NO_SUCH_TYPE
            rows.append([f"{kind.label}: {NO_SUCH_TYPE}", *(None for _ in COLUMNS)])
            continue
        medians = {column: middle(of(one) for one in found) for column, of in COLUMNS.items()}
        figures[kind.name] = {"rounds": found, **medians}
        rows.append([kind.label, *medians.values()])
    notes = [
        f"The first packet after {PAUSE_S} seconds without any, {PACKETS} times; not cached: with max-idle={MAX_IDLE_MS}."
        f" Bytes a port over {PORTS} ports of type system."
    ]
    return Report([Table("a switch that has nothing to do", ["switch", *COLUMNS], rows)], figures, notes)
