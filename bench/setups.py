"""Flow set-ups a second: every packet belongs to a new connection that no cached flow covers, so it is translated
through ten tables, and the result is cached.

The whole daemon is pinned to one core: packet thread, upcalls, maintenance of cached flows (or, with --spread, the
packet thread to a core of its own: a switch that translates on other threads then need not share theirs with the
endless replay). The packets come from memory; the count is of misses that were answered, from the first one until
nine tenths of the packets are known (then the replay begins again, and packets start to hit). The rate is per second
of processor time of the daemon, so that other programs on the core do not count against it.
"""

import pathlib
import re
import tempfile
import time

import common
import workload
from replay import OURS, PEER, Replay
from report import Report, Table, middle, ratio

RULES = (1_000, 10_000, 100_000)
# More than the packets need: neither switch may refuse or evict a flow during the measurement.
FLOW_LIMIT = 1_000_000
# DPDK's memory for this number of packets.
MEMORY_MIB = 1024
PATIENCE_S = 120


def add_arguments(arguments):
    arguments.add_argument("--rules", type=int, nargs="+", default=RULES, metavar="N", help="(1000 10000 100000)")
    arguments.add_argument("--spread", action="store_true", help="all but the packet thread on another core")


def measure(options):
    figures, rows = {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        for rules in options.rules:
            name = f"setups-{rules}"
            paths = workload.write(name, directory)
            turns = figures[name] = {PEER: [], OURS: []}
            for round_number in range(options.rounds):
                for which, found in turns.items():
                    found.append(setups(which, *paths, confined=not options.spread))
                    common.say(f"{name}, round {round_number + 1}, {which}: {found[-1]}")
            for path in paths:
                pathlib.Path(path).unlink()
            peer, ours = (middle(one["setups_per_s"] for one in found) for found in turns.values())
            figures[name] = {"rounds": turns, "setups_per_s": {PEER: peer, OURS: ours}, "ratio": ratio(ours, peer)}
            rows.append([rules, peer, ours, ratio(ours, peer)])
    header = ["rules in 10 tables", "Open vSwitch", "Flowstone", "ratio"]
    where = "the packet thread on a core of its own" if options.spread else "all on one core"
    return Report([Table(f"flow set-ups a second, {where}", header, rows)], figures)


def setups(which, pcap, flows, **how):
    """One turn of one switch; `how` are arguments of `Replay`."""
    with Replay(which, memory_mib=MEMORY_MIB, **how) as replay:
        raise_limits(replay)
        replay.add_output()
        replay.add_flows(flows)
        replay.add_input(pcap, wait=False)
        samples = watch(replay)
        cached = cached_flows(replay)
    (start_s, start_cpu_s, first, hits_before), (end_s, end_cpu_s, last, hits_after) = samples[0], samples[-1]
    if end_cpu_s - start_cpu_s < 0.1:
        raise SystemExit(f"{which}: all flows were set up before they could be counted")
    return {
        "setups_per_s": round((last - first) / (end_cpu_s - start_cpu_s)),
        "setups": last - first,
        "cpu_seconds": round(end_cpu_s - start_cpu_s, 3),
        "seconds": round(end_s - start_s, 3),
        "hits": hits_after - hits_before,
        "cached_flows": cached,
    }


def raise_limits(replay):
    """Raises the flow limits and timeouts."""
    limits = {"flow-limit": FLOW_LIMIT, "max-idle": 1000 * PATIENCE_S}
    replay.vsctl("set", "Open_vSwitch", ".", *(f"other_config:{k}={v}" for k, v in limits.items()))
    # In Open vSwitch the limit in force starts low and grows with time.
    if "upcall/set-flow-limit" in replay.appctl("list-commands"):
        replay.appctl("upcall/set-flow-limit", FLOW_LIMIT)


def cached_flows(replay):
    """The number of megaflows."""
    text = replay.appctl("dpctl/show")
    flows = re.search(r"^\s+flows: (\d+)", text, re.MULTILINE)
    if flows is None:
        raise SystemExit(f"{replay.which}: dpctl/show does not say how many flows there are:\n{text}")
    return int(flows[1])


def watch(replay):
    """Samples (time, processor time, misses answered, hits) from the first miss until nearly all packets are known, or
    nearly all of one receive queue are."""
    samples = []
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s:
        before_s = time.monotonic()
        threads = replay.thread_stats()
        # The switch reads the counters when it replies, somewhere between the two times.
        at_s = (before_s + time.monotonic()) / 2
        misses = [thread.get("miss with success upcall", 0) for thread in threads]
        if max(misses, default=0) > 0.9 * workload.SETUPS_PACKETS / len(replay.cores) and samples:
            return samples
        if any(misses):
            hits = sum(thread.get(f"{cache} hits", 0) for thread in threads for cache in ("emc", "smc", "megaflow"))
            samples.append((at_s, replay.switch.cpu_s(), sum(misses), hits))
        # Frequent requests would load the switch.
        time.sleep(0.02)
    raise SystemExit(f"{replay.which}: only {samples[-1:]} in {PATIENCE_S} seconds\n{replay.switch.log_tail()}")
