"""Flow set-ups a second with two receive queues on two cores, beside one queue on one core (`setups` has the workload).

With one queue the whole daemon stays on one core. With two, the input port has two receive queues, each of which plays
its half of the packets, so that each packet is set up once; two packet threads are pinned to a core each, and all
other threads of the daemon run on both. As a yardstick, two switches with one queue each run at the same time, each
on a core of its own: they share nothing, so they show how much two cores of this machine can do.

Rates are per second of wall-clock time. The processor time that the daemon had in this second stands beside them: less
than the number of cores means that other programs, or the host of a virtual machine, took the rest.
"""

import concurrent.futures
import tempfile

import common
import setups
import workload
from replay import OURS
from report import Report, Table, middle, ratio

ONE, TWO, APART = "one queue, one core", "two queues, two cores", "two switches, a core each"
CORES = (0, 1)
TARGET = 1.7


def measure(options):
    figures, rows = {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        for rules in options.rules:
            name = f"setups-{rules}"
            paths = workload.write(name, directory)
            turns = {ONE: [], TWO: [], APART: []}
            for round_number in range(options.rounds):
                for way, found in turns.items():
                    found.append(turn(way, paths))
                    common.say(f"{name}, round {round_number + 1}, {way}: {found[-1]}")
            one, two, apart = (middle(each["setups_per_s"] for each in found) for found in turns.values())
            figures[name] = {"rounds": turns, "setups_per_s": {ONE: one, TWO: two, APART: apart}}
            figures[name] |= {"ratio": ratio(two, one), "target": TARGET, "apart_ratio": ratio(apart, one)}
            for way, found in turns.items():
                rate, cpu_s = (middle(each[key] for each in found) for key in ("setups_per_s", "cpu_s_per_s"))
                of_cpu = middle(each["setups_per_cpu_s"] for each in found)
                rows.append([rules, way, rate, cpu_s, of_cpu, ratio(rate, one)])
    header = ["rules in 10 tables", "switch", "set-ups/s", "processors used", "set-ups/s of processor", "times one queue"]
    notes = [f"Target: two queues have {TARGET} times the rate of one."]
    return Report([Table("flow set-ups a second", header, rows)], figures, notes)


def turn(way, paths):
    """One measurement."""
    if way == ONE:
        return rates([setups.setups(OURS, *paths, confined=True)])
    if way == TWO:
        return rates([setups.setups(OURS, *paths, confined=True, cores=CORES)])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        one = lambda core: setups.setups(OURS, *paths, confined=True, cores=(core,), bridge=f"br{core}")
        return rates(list(pool.map(one, CORES)))


def rates(found):
    """The rates of switches together."""
    total = lambda key: sum(each[key] for each in found)
    per_s = lambda key: sum(each[key] / each["seconds"] for each in found)
    return {
        "setups_per_s": round(per_s("setups")),
        "cpu_s_per_s": round(per_s("cpu_seconds"), 2),
        "setups_per_cpu_s": round(total("setups") / total("cpu_seconds")),
        "seconds": max(each["seconds"] for each in found),
        "hits": total("hits"),
        "cached_flows": total("cached_flows"),
    }
