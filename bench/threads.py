"""What packet threads cost each other, in the datapath alone, with packets from memory: 64 threads on the machine's
processors beside as many threads as processors, and two threads on two cores beside one, and beside two processes that
share nothing and run at the same time.

The examples `many_threads` and `scale` of the crate datapath measure. The first one counts packets a second, so that it
is valid only on a quiet machine. The second one counts processor time a packet.
"""

import examples
from report import Report, Table, middle, ratio

THREADS = 64
MANY_TARGET, APART_TARGET = 0.9, 0.97
ONE, TWO = "one thread", "two threads, a port in and out each"
APART = "two processes, a port in and out each"


def measure(options):
    many = examples.run("datapath", "many_threads", options.seconds, THREADS, options.rounds)
    scale = [examples.run("datapath", "scale", options.seconds) for _ in range(options.rounds)]
    return report(many, scale)


def report(many, scale):
    """The report of the lines of `many_threads`, and of each run of `scale`."""
    few, some = (middle(turn[key] for turn in many) for key in ("few_mpps", "many_mpps"))
    times = middle(turn["ratio"] for turn in many)
    header = [f"Mpps of {many[0]['few_threads']} threads", f"of {many[0]['many_threads']}", "ratio", "target"]
    tables = [Table("more packet threads than processors", header, [[few, some, times, MANY_TARGET]])]

    ways = [line["way"] for line in scale[0]]
    of_way = lambda way, key: [line[key] for run in scale for line in run if line["way"] == way]
    median = {way: middle(of_way(way, "median_ns")) for way in ways}
    cheapest = {way: middle(of_way(way, "cheapest_ns")) for way in ways}
    # A packet of one thread takes as long as two packets of two threads.
    rows = [[way, cheapest[way], median[way], ratio(median[ONE] * (1 if way == ONE else 2), median[way])] for way in ways]
    header = ["threads", "cheapest slice, ns a packet", "median slice, ns a packet", "times the rate of one thread"]
    tables.append(Table("processor time of a packet", header, rows))
    # Of one run each, as the load of the machine differs from run to run.
    pairs = zip(of_way(APART, "median_ns"), of_way(TWO, "median_ns"))
    beside = middle(ratio(apart, two) for apart, two in pairs)
    notes = [f"Two threads have {beside} of the rate of two processes (target: {APART_TARGET})."]
    figures = {
        "many_threads": {"rounds": many, "ratio": times, "target": MANY_TARGET},
        "scale": {"rounds": scale, "median_ns": median, "cheapest_ns": cheapest},
        "two_threads_beside_processes": {"ratio": beside, "target": APART_TARGET},
    }
    return Report(tables, figures, notes)
