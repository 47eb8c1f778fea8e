"""How long packets wait in the datapath while another thread installs a million megaflows and removes them: the gaps
of a forwarding thread as a histogram, beside those without changes.

The example `stalls` of the crate datapath measures; `stall` does so for the whole switch and its control plane.
"""

import examples
from report import Report


def measure(_options):
    found = examples.run("datapath", "stalls")
    return Report(examples.tables("a forwarding thread while flows change", found), {"rows": found})
