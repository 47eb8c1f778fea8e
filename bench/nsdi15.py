"""The experiment of "The Design and Implementation of Open vSwitch" (NSDI'15, section 7.2): four flows, and a million TCP
connections of one request and one response each, under each of the classifier's optimisations.

The example `nsdi15` of the crate ofproto simulates the connections and prints two kinds of objects:

  {"table": 1, "optimizations": NAME, "flows": N, "masks": N, "packets_per_second": X, ..}    NAME as in PAPER_TABLE_1
  {"table": 2, "microflows": "enabled" or "disabled", "optimizations": "enabled" or "disabled", "tuples_per_packet": X, ..}
"""

import examples
from replay import PACKET_CORE
from report import Report, Table

# The paper's Table 1: thousands of transactions a second (on its machine), cached flows, masks.
PAPER_TABLE_1 = {
    "megaflows disabled": (37, 1_051_884, 1),
    "none": (56, 905_758, 3),
    "priority sorting only": (57, 794_124, 4),
    "prefix tracking only": (95, 13, 10),
    "staged lookup only": (115, 14, 13),
    "all": (117, 15, 14),
}
# Its Table 2, by microflow cache and optimisations: thousands of transactions a second, tuples searched a packet.
PAPER_TABLE_2 = {("enabled", "enabled"): (120, 1.68)}


def add_arguments(arguments):
    arguments.add_argument("--connections", type=int, help="how many (what the example takes by itself: a million)")


def measure(options):
    words = [] if options.connections is None else ["--connections", options.connections]
    found = examples.run("ofproto", "nsdi15", *words, core=PACKET_CORE)
    return Report(
        [table_1(found), table_2(found)],
        {"rows": found, "paper": {"table_1": PAPER_TABLE_1, "table_2": list(PAPER_TABLE_2.items())}},
        ["The paper's rates are of other hardware; its numbers of flows and masks are what to compare."],
    )


def table_1(found):
    rows = []
    for one in (one for one in found if one.get("table") == 1):
        name = one.get("optimizations")
        paper_ktps, paper_flows, paper_masks = PAPER_TABLE_1.get(name, (None, None, None))
        rows.append([name, paper_flows, one.get("flows"), paper_masks, one.get("masks"), paper_ktps, one.get("packets_per_second")])
    header = ["optimizations", "paper, flows", "flows", "paper, masks", "masks", "paper, kTPS", "packets/s"]
    return Table("Table 1: classifier optimizations", header, rows)


def table_2(found):
    rows = []
    for one in (one for one in found if one.get("table") == 2):
        key = one.get("microflows"), one.get("optimizations")
        paper_ktps, paper_tuples = PAPER_TABLE_2.get(key, (None, None))
        ours = [one.get(name) for name in ("tuples_per_packet", "nodes_per_packet", "packets_per_second")]
        rows.append([*key, paper_tuples, *ours[:2], paper_ktps, ours[2]])
    header = ["microflows", "optimizations", "paper, tuples/packet", "tuples/packet", "nodes/packet", "paper, kTPS", "packets/s"]
    return Table("Table 2: microflow cache", header, rows)
