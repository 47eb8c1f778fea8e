"""The cost of forwarding in the datapath alone, by workload, with its targets: multiples of the rate of Open vSwitch
with DPDK, on one core, packets from memory (`bench/workload.py` describes the workloads).
"""

import pathlib
import tempfile

from replay import INVERSE_PROBABILITY, OURS, PEER, in_turns
from report import Report, Table, ratio

AS_IT_COMES, OFF = "as it comes", "off"
# Workload, microflow cache, and the target as a multiple of the peer's rate.
TARGETS = (
    ("p2p-1", AS_IT_COMES, 2),
    ("p2p-1k", AS_IT_COMES, 2),
    ("ip-1k", AS_IT_COMES, 2),
    ("ip-100k", AS_IT_COMES, 4),
    ("masks-50", AS_IT_COMES, 2),
    ("masks-200", AS_IT_COMES, 2),
    ("normal-1k", AS_IT_COMES, 3),
    ("acl-1000", AS_IT_COMES, 3),
    ("ip-1k", OFF, 2),
    ("masks-10", OFF, 2),
    ("masks-50", OFF, 10),
    ("masks-200", OFF, 20),
    ("tse-4000", AS_IT_COMES, 200),
)


def add_arguments(arguments):
    names = list(dict.fromkeys(name for name, _, _ in TARGETS))
    of = f"some of the workloads ({' '.join(names)})"
    arguments.add_argument("--workloads", nargs="+", choices=names, default=names, metavar="NAME", help=of)


def measure(options):
    figures, rows, missed = {}, [], []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        for name, cache, target in TARGETS:
            if name not in options.workloads:
                continue
            found = in_turns(name, pathlib.Path(directory), options, INVERSE_PROBABILITY if cache == AS_IT_COMES else 0)
            peer, ours = found[PEER], found[OURS]
            times = ratio(ours["mpps"], peer["mpps"])
            met = times is not None and times >= target
            label = name if cache == AS_IT_COMES else f"{name}, cache off"
            figures[label] = {**found, "ratio": times, "target": target, "met": met}
            cycles = peer["cycles_per_packet"], ours["cycles_per_packet"]
            rows.append([label, peer["mpps"], ours["mpps"], times, target, "yes" if met else "no", *cycles])
            if not met:
                missed.append(label)
    header = ["workload", "Open vSwitch, Mpps", "Flowstone, Mpps", "times", "target", "met"]
    header += ["Open vSwitch, cycles", "Flowstone, cycles"]
    notes = [f"Not met: {', '.join(missed)}." if missed else "All targets are met."]
    return Report([Table("forwarding on one core, packets from memory", header, rows)], figures, notes)
