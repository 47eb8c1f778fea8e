"""The cost of a look-up when the cached flows have many different masks; the microflow cache is off.

Tuple space search tries one mask after another, so its cost grows with their number; a look-up structure over all
flows need not.
"""

import pathlib
import tempfile

from replay import OURS, PEER, in_turns
from report import Report, Table, ratio

COUNTS = (1, 10, 50, 200)


def measure(options):
    figures, rows = {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        for count in COUNTS:
            name = f"masks-{count}"
            found = figures[name] = in_turns(name, pathlib.Path(directory), options, inverse_probability=0)
            peer, ours = found[PEER], found[OURS]
            cycles = peer["cycles_per_packet"], ours["cycles_per_packet"]
            rows.append([name, *cycles, ratio(*cycles), peer["mpps"], ours["mpps"]])
    growth = {
        which: ratio(
            figures[f"masks-{COUNTS[-1]}"][which]["cycles_per_packet"],
            figures[f"masks-{COUNTS[0]}"][which]["cycles_per_packet"],
        )
        for which in (PEER, OURS)
    }
    header = ["workload", "Open vSwitch, cycles", "Flowstone, cycles", "ratio", "Open vSwitch, Mpps", "Flowstone, Mpps"]
    return Report(
        [Table("cycles a packet by number of masks", header, rows)],
        {"workloads": figures, "growth_1_to_200": growth},
        [f"From 1 to {COUNTS[-1]} masks: Open vSwitch {growth[PEER]} times, Flowstone {growth[OURS]} times."],
    )
