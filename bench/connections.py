"""Connection tracking beside Open vSwitch with DPDK, in turns, on one core, packets of 64 bytes from memory
(`conversations.py` describes them; `play.c` plays them for the peer):

 - established connections, whose handshakes both switches have seen, with data in both directions: 1,000, 100,000 and
   1,000,000 in one zone; 1,000 whose clients are translated; 1,000 that pass three zones, one of which translates, as in
   OVN's pipelines; and the packets of 1,000 under the same tables without tracking;
 - new connections a second, from SYN to the last acknowledgement, with addresses that are ever new;
 - bytes a connection, the time to forget a million, and the longest round of the packet thread meanwhile;
 - two packet threads beside one, and beside two processes;
 - 1,000 established connections beside a flood of SYNs from as many addresses, with a full table.
"""

import contextlib
import pathlib
import re
import subprocess
import tempfile
import threading
import time

import common
import conversations
import replay
from replay import OURS, PACKET_CORE, PEER, Replay
from report import Report, Table, middle, ratio

PARTS = ("established", "new", "memory", "threads", "flood")
PLAIN = "ct-1000-plain"

# Connections of `ct-new` before addresses become others, and the seconds after which an idle connection is forgotten,
# which bound the table.
SHORT = 16_384
TIMEOUT_S = 2
STATES = ("syn_sent", "syn_recv", "established", "fin_wait", "time_wait", "close_wait", "last_ack", "close")
NEW_MAX = 10_000_000

MANY, PLAYED = 1_000_000, 1_000

FLOOD_PPS, FLOOD_MAX = 500_000, 100_000

# A smaller share of forwarded packets is remarked.
FORWARDED_MIN = 0.999
ONE, TWO, APART = "one thread", "two threads, a queue each", "two processes, one thread each"


def add_arguments(arguments):
    names = list(conversations.ESTABLISHED)
    some = lambda of: {"nargs": "+", "choices": of, "default": of, "help": f"some of {' '.join(of)}"}
    arguments.add_argument("--tracking", metavar="PART", **some(PARTS))
    arguments.add_argument("--established", metavar="NAME", **some(names))
    arguments.add_argument("--many", type=int, default=MANY, metavar="N", help=f"connections of the part memory ({MANY})")


def measure(options):
    common.need_programs("cc", "perf")
    tables, figures, notes = [], {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        bench = Bench(pathlib.Path(directory), options, notes)
        for part in PARTS:
            if part in options.tracking:
                table, figures[part] = getattr(bench, part)()
                tables.append(table)
    return Report(tables, figures, notes)


class Bench:
    """The parts; each returns its table and its figures."""

    def __init__(self, directory, options, notes):
        self.directory, self.options, self.notes = directory, options, notes
        self.library = directory / "play.so"
        common.run("cc", "-O2", "-shared", "-fPIC", "-o", self.library, common.ROOT / "bench/play.c")
        self.counters = Counters()
        if not self.counters.there:
            notes.append("This machine counts no instructions (perf stat); cycles are those of the time stamp counter.")

    @contextlib.contextmanager
    def switch(self, which, flows, **how):
        """A switch with its port out and its flows."""
        with Replay(which, preload=self.library, **how) as one:
            one.add_output()
            if "output:5" in flows.read_text():
                one.add_null("out1", 5)
            one.add_flows(flows)
            yield one

    def in_turns(self, what, turn, switches=(PEER, OURS)):
        """The figures of all rounds, by switch."""
        turns = {which: [] for which in switches}
        for number in range(self.options.rounds):
            for which, found in turns.items():
                found.append(turn(which))
                common.say(f"{what}, round {number + 1}, {which}: {found[-1]}")
        return turns

    def remark(self, what, turns):
        """A note of packets that were not forwarded."""
        for which, found in turns.items():
            share = min(one["forwarded"] for one in found)
            if share < FORWARDED_MIN:
                self.notes.append(f"{what}: {which} forwarded {share:.1%} of the packets.")

    # ---- Established connections.

    def established(self):
        figures, rows = {}, []
        for name in conversations.ESTABLISHED:
            if name not in self.options.established:
                continue
            made = conversations.established(name, self.directory)
            turns = self.in_turns(name, lambda which: self.established_turn(which, made))
            self.remark(name, turns)
            keys = ("mpps", "cycles_per_packet", "instructions_per_packet")
            found = {which: {key: middle(one[key] for one in of) for key in keys} for which, of in turns.items()}
            peer, ours = found[PEER], found[OURS]
            figures[name] = {"rounds": turns, **found, "ratio": ratio(ours["mpps"], peer["mpps"])}
            for which in (PEER, OURS):
                plain = figures.get(PLAIN, {}).get(which, {}).get("cycles_per_packet")
                figures[name][which]["cycles_by_plain"] = ratio(found[which]["cycles_per_packet"], plain)
            row = [name, peer["mpps"], ours["mpps"], figures[name]["ratio"]]
            row += [one[key] for key in ("cycles_per_packet", "cycles_by_plain") for one in (peer, ours)]
            rows.append(row + [peer["instructions_per_packet"], ours["instructions_per_packet"]] * self.counters.there)
            for path in (made.handshakes, made.played):
                path.unlink()
        header = ["workload", "Open vSwitch, Mpps", "Flowstone, Mpps", "times", "Open vSwitch, cycles", "Flowstone, cycles"]
        header += ["Open vSwitch, by untracked", "Flowstone, by untracked"]
        header += ["Open vSwitch, instructions", "Flowstone, instructions"] * self.counters.there
        return Table("packets of established connections", header, rows), figures

    def established_turn(self, which, made):
        with self.switch(which, made.flows) as one:
            if made.connections:
                one.establish(made.handshakes, made.connections)
            one.play("in0", 1, [made.played])
            replay.settle(one, 2 * made.frames)
            return self.rates(one)

    def rates(self, one):
        """Rates of what port 1 receives and port 2 sends, and the cost of a packet."""
        one.clear_stats()
        before, start_s = one.port_counts()
        instructions = self.counters.count(self.options.seconds)
        stats = one.stats()
        after, end_s = one.port_counts()
        received, sent = after[1][0] - before[1][0], after[2][1] - before[2][1]
        if not received:
            raise SystemExit(f"{one.which}: no packets came in\n{one.switch.log_tail()}")
        figures = replay.figures(one.which, stats, 1)
        packets = received / (end_s - start_s) * self.options.seconds
        return {
            "mpps": round(sent / (end_s - start_s) / 1e6, 4),
            "forwarded": round(min(1.0, sent / received), 4),
            "cycles_per_packet": figures["cycles_per_packet"],
            "instructions_per_packet": instructions and round(instructions / packets, 1),
            "emc_hits": figures["emc_hits"],
            "megaflow_hits": figures["megaflow_hits"],
            "flood_pps": round((after[3][0] - before[3][0]) / (end_s - start_s)) if 3 in before and 3 in after else None,
        }

    # ---- New connections.

    def new(self):
        made = conversations.short(SHORT, self.directory)
        turns = self.in_turns("ct-new", lambda which: self.new_turn(which, made))
        self.remark("ct-new", turns)
        peer, ours = (middle(one["connections_per_s"] for one in of) for of in turns.values())
        kept = [middle(one["kept"] for one in of) for of in turns.values()]
        cycles = [middle(one["cycles_per_packet"] for one in of) for of in turns.values()]
        header = ["workload", "Open vSwitch", "Flowstone", "times", "Open vSwitch, in its table", "Flowstone, in its table"]
        header += ["Open vSwitch, cycles a packet", "Flowstone, cycles a packet"]
        row = ["ct-new", peer, ours, ratio(ours, peer), *kept, *cycles]
        found = {"rounds": turns, "connections_per_s": {PEER: peer, OURS: ours}, "ratio": ratio(ours, peer)}
        return Table("new connections a second", header, [row]), found

    def new_turn(self, which, made):
        with self.switch(which, made.flows) as one:
            set_timeouts(one)
            one.appctl("dpctl/ct-set-maxconns", str(NEW_MAX))
            one.play("in0", 1, [made.played], new_addresses=True)
            # The table has its size once the first connections are forgotten.
            time.sleep(2 * TIMEOUT_S + 2)
            found = self.rates(one)
            kept = one.connections()
            if kept >= NEW_MAX:
                self.notes.append(f"ct-new: the table of {which} was full.")
            return found | {"connections_per_s": round(found["mpps"] * 1e6 / len(conversations.WHOLE)), "kept": kept}

    # ---- Memory, and forgetting everything.

    def memory(self):
        made, others = conversations.few(PLAYED, self.directory), conversations.openings(SHORT, self.directory)
        turns = self.in_turns(f"{self.options.many} connections", lambda which: self.memory_turn(which, made, others))
        middles = {which: {key: middle(one[key] for one in of) for key in of[0]} for which, of in turns.items()}
        labels = {
            "bytes_per_connection": "resident bytes a connection",
            "flush_command_s": "the command that forgets them, seconds",
            "flush_s": "until all are gone, seconds",
            "longest_us_alone": "longest round of the packet thread before, us",
            "longest_us_while_flushed": "longest round meanwhile, us",
        }
        pairs = [(label, middles[PEER][key], middles[OURS][key]) for key, label in labels.items()]
        rows = [[label, peer, ours, ratio(ours, peer)] for label, peer, ours in pairs]
        self.notes.append(
            "Longest rounds are upper bounds of buckets of dpif-netdev/pmd-perf-show: each bound is twice the one before in"
            " Flowstone, and 1.4 times in Open vSwitch."
        )
        title = f"{self.options.many:,} connections in memory, and how they are forgotten"
        return Table(title, ["what", "Open vSwitch", "Flowstone", "ratio"], rows), {"rounds": turns, **middles}

    def memory_turn(self, which, made, others):
        """The packet thread forwards for a few of the connections while all are forgotten."""
        with self.switch(which, made.flows) as one:
            # Histograms of rounds.
            one.vsctl("set", "Open_vSwitch", ".", "other_config:pmd-perf-metrics=true")
            one.appctl("dpctl/ct-set-maxconns", str(self.options.many))
            one.establish(made.handshakes, made.connections)
            before, few = one.switch.rss_bytes(), one.connections()
            # From a small file, which leaves no trace in the switch's memory.
            one.establish(others.played, self.options.many, new_addresses=True)
            used, count = one.switch.rss_bytes() - before, one.connections()
            one.play("in0", 1, [made.played])
            replay.settle(one, 2 * made.frames)
            one.clear_stats()
            time.sleep(self.options.seconds)
            alone = longest_round_us(one)
            one.clear_stats()
            start_s = time.monotonic()
            one.appctl("dpctl/flush-conntrack")
            command_s = time.monotonic() - start_s
            # Those that send packets come back.
            common.wait_for(lambda: one.connections() <= 2 * PLAYED, "connections to be forgotten", 120)
            flush_s = time.monotonic() - start_s
            return {
                "bytes_per_connection": used // (count - few),
                "flush_command_s": round(command_s, 3),
                "flush_s": round(flush_s, 3),
                "longest_us_alone": alone,
                "longest_us_while_flushed": longest_round_us(one),
            }

    # ---- Threads.

    def threads(self):
        made, halves = conversations.halves(PLAYED, self.directory)
        ways = {ONE: (PEER, OURS), TWO: (PEER, OURS), APART: (OURS,)}
        figures, rows = {}, []
        for way, switches in ways.items():
            turns = self.in_turns(way, lambda which, way=way: self.threads_turn(which, way, made, halves), switches)
            mpps = {which: middle(one["mpps"] for one in of) for which, of in turns.items()}
            figures[way] = {"rounds": turns, "mpps": mpps}
            times = [ratio(mpps.get(which), figures[ONE]["mpps"][which]) for which in (PEER, OURS)]
            rows.append([way, mpps.get(PEER), mpps[OURS], *times])
        figures["two_threads_by_processes"] = ratio(figures[TWO]["mpps"][OURS], figures[APART]["mpps"][OURS])
        header = ["threads", "Open vSwitch, Mpps", "Flowstone, Mpps", "Open vSwitch, times one", "Flowstone, times one"]
        return Table(f"{PLAYED:,} established connections on two cores", header, rows), figures

    def threads_turn(self, which, way, made, halves):
        cores = (0, 1)
        if way == APART:
            return self.processes_turn(which, made, halves)
        with self.switch(which, made.flows, confined=True, cores=cores if way == TWO else (PACKET_CORE,)) as one:
            one.establish(made.handshakes, made.connections)
            one.play("in0", 1, halves if way == TWO else [made.played])
            replay.settle(one, 2 * made.frames)
            return self.rates(one)

    def processes_turn(self, which, made, halves):
        """Both switches forward at the same time, for one half of the connections each."""
        with contextlib.ExitStack() as made_here:
            both = []
            for core in (0, 1):
                how = {"confined": True, "cores": (core,), "bridge": f"br{core}"}
                both.append(made_here.enter_context(self.switch(which, made.flows, **how)))
            for one, half in zip(both, halves):
                one.establish(made.handshakes, made.connections)
                one.play("in0", 1, [half])
            for one in both:
                replay.settle(one, 2 * made.frames)
            found = [None, None]

            def read(i):
                found[i] = self.rates(both[i])

            readers = [threading.Thread(target=read, args=[i]) for i in (0, 1)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            if None in found:
                raise SystemExit("a switch of two did not answer")
            return {"mpps": round(sum(one["mpps"] for one in found), 4), "each": found}

    # ---- A flood.

    def flood(self):
        made = conversations.few(PLAYED, self.directory)
        attack = conversations.flood(SHORT, self.directory)
        turns = self.in_turns("SYN flood", lambda which: self.flood_turn(which, made, attack))
        rows, figures = [], {"rounds": turns}
        for which, of in turns.items():
            keys = ("mpps_alone", "mpps_flooded", "forwarded_flooded", "flood_pps", "kept")
            alone, flooded, forwarded, pps, kept = (middle(one[key] for one in of) for key in keys)
            figures[which] = {"mpps_alone": alone, "mpps_flooded": flooded, "kept": ratio(flooded, alone)}
            rows.append([which, alone, flooded, ratio(flooded, alone), forwarded, pps, kept])
        header = ["switch", "alone, Mpps", "flooded, Mpps", "kept", "share forwarded", "SYNs/s received", "in the table"]
        return Table(f"{PLAYED:,} established connections beside {FLOOD_PPS:,} SYNs a second", header, rows), figures

    def flood_turn(self, which, made, attack):
        with self.switch(which, attack.flows) as one:
            one.appctl("dpctl/ct-set-maxconns", str(FLOOD_MAX))
            one.establish(made.handshakes, made.connections)
            one.play("in0", 1, [made.played])
            replay.settle(one, 2 * made.frames)
            alone = self.rates(one)
            one.play("flood0", 3, [attack.played], rate=FLOOD_PPS, new_addresses=True)
            time.sleep(replay.SETTLE_S_MIN)
            flooded = self.rates(one)
            return {
                "mpps_alone": alone["mpps"],
                "mpps_flooded": flooded["mpps"],
                "forwarded_alone": alone["forwarded"],
                "forwarded_flooded": flooded["forwarded"],
                "flood_pps": flooded["flood_pps"],
                "kept": one.connections(),
            }


def set_timeouts(one):
    """Short timeouts for all states of TCP in zone 0."""
    words = ["--", "--id=@netdev", "create", "Datapath", "datapath_version=0"]
    one.vsctl(*words, "--", "set", "Open_vSwitch", ".", "datapaths:netdev=@netdev")
    one.vsctl("add-zone-tp", "netdev", "zone=0", *(f"tcp_{state}={TIMEOUT_S}" for state in STATES))


def longest_round_us(one):
    """The upper bound of the highest bucket of cycles a round that is not empty, in microseconds."""
    return round(longest_cycles(one.appctl("dpif-netdev/pmd-perf-show"), one.which) / tsc_mhz(), 1)


def longest_cycles(text, which):
    """The same in cycles, of the packet threads in the output of pmd-perf-show."""
    longest, before, within = 0.0, 0.0, False
    for line in text.splitlines():
        words = line.split()
        if words == ["Histograms"]:
            within, before = True, 0.0
        elif line.lstrip().startswith("---"):
            within = False
        elif within and len(words) >= 2 and (words[0] == ">" or words[0].isdigit()) and words[1].isdigit():
            # The last bucket has no bound; it counts as twice that of the one before.
            bound = 2 * before if words[0] == ">" else float(words[0])
            before = bound
            if int(words[1]):
                longest = max(longest, bound)
    if not longest:
        raise SystemExit(f"{which}: pmd-perf-show has no histogram of rounds:\n{text}")
    return longest


def tsc_mhz():
    """The rate of the time stamp counter, as far as /proc/cpuinfo has it."""
    return float(re.search(r"^cpu MHz\s*: ([\d.]+)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1])


class Counters:
    """Instructions on the packet thread's core, if the machine counts them."""

    def __init__(self):
        self.there = True
        self.there = self.count(0.01) is not None

    def count(self, seconds):
        """Instructions in this time, or `None`."""
        if not self.there:
            time.sleep(seconds)
            return None
        command = ["perf", "stat", "-x,", "-e", "instructions", "-C", PACKET_CORE, "--", "sleep", seconds]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        found = re.search(r"^(\d+),", done.stderr, re.MULTILINE)
        return int(found[1]) if found else None
