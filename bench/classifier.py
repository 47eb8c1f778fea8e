"""The classifier of a flow table alone, on one core: half a million random rules in ten tuples, and the cost of
adding and removing a rule as the table grows.

The example `rules` of the crate classifier measures; every object that it prints becomes a row.
"""

import examples
from replay import PACKET_CORE
from report import Report

# NSDI'15, section 7.2: half a million flows in 10 tuples, classifications a second on one core.
PAPER_CLASSIFICATIONS_PER_S = 680_000


def measure(_options):
    found = examples.run("classifier", "rules", core=PACKET_CORE)
    return Report(
        examples.tables("the classifier on one core", found),
        {"rows": found, "paper": {"classifications_per_s": PAPER_CLASSIFICATIONS_PER_S}},
        [f"The paper, with half a million flows in 10 tuples: {PAPER_CLASSIFICATIONS_PER_S:,} classifications a second."],
    )
