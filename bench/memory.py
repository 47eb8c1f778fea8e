"""Bytes a rule and a megaflow: the growth of the switch daemon's resident memory, ours beside the peer's.

Rules are 5-tuple flows; megaflows are those of the workload setups-N, one for each packet. The size of a microflow
entry is fixed by its type: the example `memory` of the crate datapath prints it, with other figures.
"""

import pathlib
import random
import tempfile

import common
import examples
import setups
import workload
from replay import OURS, PEER, Replay
from report import Report, Table, middle, ratio

RULES = 100_000
PIPELINE_RULES = 1_000


def measure(options):
    figures, rows = {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        rules = pathlib.Path(directory) / "rules.flows"
        rules.write_text(five_tuples(RULES))
        packets, pipeline = workload.write(f"setups-{PIPELINE_RULES}", directory)
        measures = {
            "bytes_per_rule": lambda which: bytes_per_rule(which, rules),
            "bytes_per_megaflow": lambda which: bytes_per_megaflow(which, packets, pipeline),
        }
        for what, of in measures.items():
            turns = {PEER: [], OURS: []}
            for _ in range(options.rounds):
                for which, found in turns.items():
                    found.append(of(which))
                    common.say(f"{what}, {which}: {found[-1]:,}")
            peer, ours = (middle(found) for found in turns.values())
            figures[what] = {"rounds": turns, "median": {PEER: peer, OURS: ours}, "ratio": ratio(ours, peer)}
            rows.append([what.replace("_", " "), peer, ours, ratio(ours, peer)])
    tables = [Table("resident memory of the switch daemon", ["what", "Open vSwitch", "Flowstone", "ratio"], rows)]
    notes = []
    try:
        figures["types"] = examples.run("datapath", "memory")
        tables += examples.tables("by type", figures["types"])
    except SystemExit as end:
        if isinstance(end.code, int):  # told to end, by a signal
            raise
        notes.append(f"By type: nothing, {end.code}.")
    return Report(tables, figures, notes)


def five_tuples(count):
    """Flows that differ in the values of all five fields and share a mask, as in an access list."""
    rng = random.Random(1)
    lines = (
        f"priority={100 + i % 50},tcp,nw_src={workload.dotted(workload.SOURCES + i)},"
        f"nw_dst={workload.dotted(rng.getrandbits(32))},tp_src={rng.randrange(*workload.PORTS)},"
        f"tp_dst={rng.randrange(1, 1024)},actions=output:2\n"
        for i in range(count)
    )
    return "".join(lines)


def bytes_per_rule(which, flows):
    with Replay(which) as replay:
        replay.add_output()
        before = replay.switch.rss_bytes()
        replay.add_flows(flows)
        return (replay.switch.rss_bytes() - before) // RULES


def bytes_per_megaflow(which, packets, pipeline):
    """Packets and rules are in memory before the count begins: one more rule drops everything until it is removed."""
    with Replay(which, memory_mib=setups.MEMORY_MIB) as replay:
        setups.raise_limits(replay)
        replay.add_output()
        replay.add_flows(pipeline)
        replay.switch("ovs-ofctl", "add-flow", "br0", "priority=65535,actions=drop")
        replay.add_input(packets)
        before, known = replay.switch.rss_bytes(), setups.cached_flows(replay)
        replay.switch("ovs-ofctl", "--strict", "del-flows", "br0", "priority=65535")
        setups.watch(replay)
        return (replay.switch.rss_bytes() - before) // (setups.cached_flows(replay) - known)
