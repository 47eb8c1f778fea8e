"""The cost of recirculation: a pipeline of three passes (the first pops an MPLS label, in the second a group hashes
the packet, and its bucket resubmits) beside the peer's, and in the datapath alone beside one pass that does the
same work (the example `passes` of the crate datapath).
"""

import pathlib
import tempfile

import examples
from replay import INVERSE_PROBABILITY, OURS, PEER, in_turns
from report import Report, Table, ratio

WORKLOAD = "mpls-1000"


def measure(options):
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        found = in_turns(WORKLOAD, pathlib.Path(directory), options, INVERSE_PROBABILITY)
    peer, ours = found[PEER], found[OURS]
    times = ratio(ours["mpps"], peer["mpps"])
    alone = examples.run("datapath", "passes", core="1")
    header = ["workload", "Open vSwitch, Mpps", "Flowstone, Mpps", "times", "Open vSwitch, cycles", "Flowstone, cycles"]
    row = [WORKLOAD, peer["mpps"], ours["mpps"], times, peer["cycles_per_packet"], ours["cycles_per_packet"]]
    tables = [Table("packets of three passes on one core, from memory", header, [row])]
    tables += examples.tables("the datapath alone, three passes beside one that does the same", alone)
    return Report(tables, {"passes": {**found, "ratio": times}, "alone": alone})
