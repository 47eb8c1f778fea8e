"""One flow-mod while 100,000 megaflows are cached: the time until stale ones are gone, and the number translated
again beside the number that could have changed.

The example `flow_mod` of the crate ofproto measures; every object that it prints becomes a row.
"""

import examples
from report import Report


def measure(_options):
    found = examples.run("ofproto", "flow_mod")
    return Report(examples.tables("one flow-mod under cached megaflows", found), {"rows": found})
