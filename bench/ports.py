"""Packets between two real ports (veth devices to hosts): rate, cost, and latency.

For each switch and size of frame: the received rate while a sender sends as fast as it can (a flood), the highest
rate without loss, the highest received rate in any trial, and the latency of a thousand packets a second, between
which the switch sleeps if it can (idle), and of 80 % of the rate without loss (load). The processor time a packet is
the lesser of flood and load: a flooded switch also works on packets that it drops then, and a polling one uses its
whole core under any load.
"""

import json
import time

import common
import rates
from between import ALL, BY_NAME, NO_SUCH_TYPE, Between, NoSuchType, compiled
from report import Report, Table, middle, ratio

SIZES = (64, 1500)
IDLE_PPS = 1000
LOAD = 0.8
FLOWS = 100
# The sender has begun by then.
BEGUN_S = 0.3


def add_arguments(arguments):
    names = [kind.name for kind in ALL]
    of = f"for stall and idle too ({' '.join(names)})"
    arguments.add_argument("--switches", nargs="+", choices=names, default=names, metavar="SWITCH", help=of)
    arguments.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES", help="of frames, 64 to 1518 (64 1500)")
    arguments.add_argument("--no-loss-free", action="store_true", help="leave out the rate without loss, and the load")


def measure(options):
    kinds = [BY_NAME[name] for name in options.switches]
    turns = {kind: {size: [] for size in options.sizes} for kind in kinds}
    with compiled("frames") as programs:
        for round_number in range(options.rounds):
            for kind in kinds:
                try:
                    with Between(kind) as between:
                        for size, found in turns[kind].items():
                            found.append(one(between, programs / "frames", size, options))
                            common.say(f"ports, round {round_number + 1}, {kind.name}, {size} bytes: {found[-1]}")
                except NoSuchType:
                    turns[kind] = None
                    common.say(f"{kind.name}: {NO_SUCH_TYPE}")
            kinds = [kind for kind in kinds if turns[kind] is not None]
    return report(turns, options)


def one(between, frames, size, options):
    """Runs one turn; returns all figures of one switch and size."""
    run = lambda *words, seconds=options.seconds: between.frames(frames, "-s", size, "-n", FLOWS, *words, seconds=seconds)
    run("-r", IDLE_PPS, seconds=0.5)  # flows are cached from here on
    costs = lambda *words: watched(between, options.seconds, frames, "-s", size, "-n", FLOWS, *words)
    found = {"flood": costs("-c")}
    found["most_pps"] = found["flood"]["pps"]
    if not options.no_loss_free:

        def trial(rate):
            seen = run("-c", "-r", round(rate), seconds=options.trial_seconds)
            found["most_pps"] = max(found["most_pps"], seen["received_pps"])
            return seen["sent_pps"], seen["lost"] / seen["sent"] if seen["sent"] else 1.0

        found["loss_free_pps"] = rates.loss_free_pps(trial, found["flood"]["pps"])
        found["load"] = costs("-r", round(LOAD * found["loss_free_pps"]))
    found["idle"] = run("-r", IDLE_PPS)
    for what in ("switch_ns_per_packet", "softirq_ns_per_packet"):
        costs_ = [found[case][what] for case in ("flood", "load") if case in found]
        found[what] = min((cost for cost in costs_ if cost is not None), default=None)
    return found


def watched(between, seconds, *words):
    """The results of `frames`, with the rate in the middle of its run, and the cost of each packet then."""
    process = between.frames_beside(*words, seconds=seconds + 2 * BEGUN_S)
    try:
        time.sleep(BEGUN_S)
        before = between.used()
        time.sleep(seconds)
        use = between.used() - before
        out, _ = process.communicate(timeout=30)
        if process.returncode:
            raise SystemExit(f"frames ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait()
    switch_ns, softirq_ns = use.per_packet()
    costs = {"pps": round(use.packets / use.s), "switch_ns_per_packet": switch_ns, "softirq_ns_per_packet": softirq_ns}
    return json.loads(out) | costs


def latency(case, part):
    """Reads a latency out of a turn; None if it was not measured."""
    return lambda one: one[case]["us"][part] if case in one and one[case]["us"] else None


def lost_percent(frames):
    return 100 * frames["lost"] / frames["sent"] if frames and frames["sent"] else None


COLUMNS = {
    "most": lambda one: one["most_pps"],
    "flooded": lambda one: one["flood"]["pps"],
    "without loss": lambda one: one.get("loss_free_pps"),
    "ns of the switch": lambda one: one["switch_ns_per_packet"],
    "ns of softirqs": lambda one: one["softirq_ns_per_packet"],
    "idle, µs 50 %": latency("idle", "p50"),
    "idle, 90 %": latency("idle", "p90"),
    "idle, 99 %": latency("idle", "p99"),
    "load, µs 50 %": latency("load", "p50"),
    "load, 90 %": latency("load", "p90"),
    "load, 99 %": latency("load", "p99"),
    "load, % lost": lambda one: lost_percent(one.get("load")),
}


def report(turns, options):
    figures, tables = {}, []
    for size in options.sizes:
        rows = []
        for kind, by_size in turns.items():
            if by_size is None:
                figures[f"{kind.name}, {size} bytes"] = NO_SUCH_TYPE
                rows.append([f"{kind.label}: {NO_SUCH_TYPE}", *(None for _ in COLUMNS)])
                continue
            found = by_size[size]
            medians = {name: middle(of(one) for one in found) for name, of in COLUMNS.items()}
            figures[f"{kind.name}, {size} bytes"] = {"rounds": found, **medians}
            rows.append([kind.label, *medians.values()])
        tables.append(Table(f"frames of {size} bytes between two ports, packets a second", ["switch", *COLUMNS], rows))
    named = {name: figures.get(f"{name}, {options.sizes[0]} bytes") for name in BY_NAME}
    for type_ in ("system", "afxdp"):
        peer, ours = named[f"ovs-{type_}"], named[f"flowstone-{type_}"]
        if isinstance(peer, dict) and isinstance(ours, dict):
            for what in ("most", "without loss"):
                figures[f"{type_}, {what}, ratio"] = ratio(ours[what], peer[what])
    notes = [
        f"{FLOWS} flows; loss below {rates.LOSS_MAX:.1%}, rates to {rates.PRECISION:.0%}; load is {LOAD:.0%} of the rate without"
        f" loss, idle {IDLE_PPS:,} packets a second. A core for the switch, the other one for sender and receiver; a switch that"
        " polls takes all of its core at any rate. With AF_XDP the kernel receives on the senders' core."
    ]
    return Report(tables, figures, notes)
