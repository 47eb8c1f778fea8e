#!/usr/bin/env python3
"""Sends the same random packets through the connection tracking of Open vSwitch and of Flowstone, and compares what comes out.

usage: sequences.py PEERS BINARY [--cases N] [--seed N] [--case N] [--jobs N] [--verbose]

PEERS is a folder with bin/ as tests/peers/unpack.sh makes it, BINARY the program `flowstone`; with `peer` in its place, the
peer is compared with itself. Each case draws a flow table (pipelines.py), limits and settings, and some conversations
(conversations.py), and then does some dozens of steps with both makers' switches at once: packets of either end, proper ones
and others, fragments, errors, time that passes, flushes. After each step the frames that left by each port must be equal,
every few steps what the commands show of connections, limits and fragments.

A seed and the number of a case fix all of it; --case runs one case, and --verbose lists its steps. A case in which the
peer dies counts by itself. Programs of another version than 4.0 are not compared. The exit status is 0 if nothing differed.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import conversations
import frames
import pipelines
import tracked
from compare import linked, other_version


class Difference(Exception):
    pass


class Case:
    """One case with its switches, the peer's first."""

    programs, switch = tracked.Programs, tracked.Switch

    def __init__(self, seed, number, makers):
        self.number, self.makers = number, makers
        self.rng = random.Random(f"{seed}-{number}")
        self.listing = []
        self.verbose, self.received = False, 0
        self.pipeline = pipelines.Pipeline(self.rng)
        self.kind = self.pipeline.kind
        self.limited = self.pipeline.limited
        # Whether both have counted the connections that are over, and their threads sweep at once when time passes.
        self.swept, self.interval = False, "1" if self.limited else self.rng.choice(["1", "1000", "20000"])
        self.talks = conversations.conversations(self.rng, self.pipeline)

    def note(self, text):
        self.listing.append(text)
        if self.verbose:
            print(text, flush=True)

    def run(self):
        with self.switch(self.makers[0]) as theirs:
            try:
                with self.switch(self.makers[1]) as ours:
                    self.switches = (theirs, ours)
                    self.steps()
            except OursDied as died:
                if self.makers[1].path == self.makers[0].path:
                    raise tracked.Died(str(died)) from died
                raise Difference(f"ours died: {died}") from died

    # Both switches.

    def each(self, action):
        """What an action gives with each switch."""
        try:
            theirs = action(self.switches[0])
        except tracked.Died as died:
            raise tracked.Died(f"{died} {grave(self.switches[0])}") from died
        try:
            return theirs, action(self.switches[1])
        except tracked.Died as died:
            raise OursDied(f"{died}\n{grave(self.switches[1])}") from died
        except tracked.Refused as refused:
            raise Difference(f"ours refuses: {refused}") from refused

    def equal(self, what, show, theirs, ours):
        if theirs != ours:
            raise Difference(f"{what}\n  peer: {show(theirs)}\n  ours: {show(ours)}")

    def command(self, *words):
        """A command whose replies must be equal."""
        self.note(" ".join(words))
        theirs, ours = self.each(lambda switch: switch.command(*words))
        if theirs:
            self.note(f"    {theirs.strip()[:100]}")
        self.equal(" ".join(words), repr, theirs, ours)

    def warp(self, ms):
        self.note(f"{ms} ms later")
        self.each(lambda switch: switch.send(["time/warp", str(ms)]))
        self.each(lambda switch: switch.replies(1))
        self.swept = ms > int(self.interval)
        if ms > 5000:
            self.interrupt()

    def interrupt(self):
        """Connections may have ended."""
        for talk in self.talks:
            talk.interrupt()

    def outputs(self):
        """What each switch sends by each port, the peer's first, each with its errors."""
        (theirs, wrong), (ours, wrong_too) = self.each(lambda switch: switch.outputs())
        # Threads that process packets for which no flow is cached yet may be behind the marker.
        for turn in range(40):
            if all(len(theirs[number]) == len(ours[number]) for number in theirs):
                break
            time.sleep(0.001 * turn)
            for found, switch in zip((theirs, ours), self.switches):
                for number, sent in switch.late().items():
                    found[number] += sent
        return (theirs, wrong), (ours, wrong_too)

    def packets(self, port, made):
        for frame in made:
            self.note(f"p{port} receives {frames.describe(frame)}")
            self.received += 1
        if self.limited:
            # The peer counts connections that are over, or have made room for others, until it sweeps.
            self.warp(2)
            self.state()
        self.swept = False
        self.each(lambda switch: switch.begin(port, made))
        (theirs, wrong), (ours, wrong_too) = self.outputs()
        for number, sent in theirs.items():
            for frame in sent:
                self.note(f"    p{number} sends {frames.describe(frame)}")
        self.equal("errors", repr, wrong, wrong_too)
        for number in theirs:
            # The last fragment of a datagram releases them all.
            released = any(" fragment " in frames.describe(frame) for frame in theirs[number])
            if len(made) > 1 or released or number in (3, 4) or self.pipeline.parts_fragments:
                # In which order packets of a batch pass the tables is each program's own (the first fragment of a datagram and later
                # ones have different cached flows), and so is that of the copies before and behind a recirculation.
                theirs[number].sort()
                ours[number].sort()
            if theirs[number] != ours[number]:
                self.equal(f"frames out of p{number}", listed, theirs[number], ours[number])
        return theirs

    def state(self):
        """Compares what the commands show."""
        commands = [["dpctl/dump-conntrack", "-m", "-s"], ["dpctl/dump-conntrack-exp"]]
        commands += [["dpctl/ct-stats-show", "-m"], ["dpctl/ipf-get-status"]]
        if self.swept:
            commands += [["dpctl/ct-get-nconns"], ["dpctl/ct-get-limits"]]
            commands += [["dpctl/ct-get-limits", f"zone={','.join(map(str, self.pipeline.zones))}"]]
        # Another thread removes connections that are over, and stops counting them: it may be late.
        for turn in range(60):
            theirs, ours = self.each(lambda switch: switch.commands(*commands))
            shown = [[sorted(text.splitlines()) for text in pair] for pair in zip(theirs, ours)]
            if all(a == b for a, b in shown):
                return
            time.sleep(0.001 * turn)
        for words, (a, b) in zip(commands, shown):
            if a != b:
                text = lambda lines: "".join(f"\n      {line}" for line in lines)
                only = [line for line in a if line not in b], [line for line in b if line not in a]
                self.equal(" ".join(words) + " (lines of one only)", text, *only)

    # The steps of a case.

    def steps(self):
        self.note(f"case {self.number}: {self.pipeline.kind}")
        for flow in self.pipeline.flows:
            self.note(f"  {flow}")
        self.each(lambda switch: switch.flows(self.pipeline.flows))
        self.settings()
        n = self.rng.randint(30, 80)
        next_state = 0
        for step in range(n):
            self.note(f"-- step {step}")
            try:
                self.step()
            except Enough:
                return
            if step == next_state:
                self.state()
                next_state += self.rng.randint(2, 6)
        self.warp(self.rng.choice([22_000, 40_000, 4_000_000]))
        self.state()

    def settings(self):
        rng = self.rng
        self.command("dpctl/ct-set-sweep-interval", self.interval)
        # By then the thread that sweeps has woken up, and knows the interval.
        self.warp(21_000)
        if rng.random() < 0.3:
            self.command("dpctl/ct-disable-tcp-seq-chk")
        if rng.random() < 0.2:
            # A full table is not compared: Flowstone then removes a connection that is not established, the peer none.
            self.command("dpctl/ct-set-maxconns", str(rng.randint(1000, 6000)))
        if self.limited:
            self.limits()
        if rng.random() < 0.15:
            self.command("dpctl/ipf-set-disabled", rng.choice(["v4", "v6"]))
        if rng.random() < 0.4:
            self.command("dpctl/ipf-set-min-frag", rng.choice(["v4", "v6"]), rng.choice(["400", "500", "1400"]))
        if rng.random() < 0.1:
            # Fragments that are tracked again may meet those behind them, which both count.
            least = 1 if self.pipeline.kind in ("of_commit_at_once", "of_source_nat") else 25
            self.command("dpctl/ipf-set-max-nfrags", str(rng.randint(least, least + 19)))

    def limits(self):
        zone, rng = self.rng.choice(self.pipeline.zones), self.rng
        # A limit of 0 is none, as the manual says; the peer then refuses all connections.
        words = [f"zone={zone},limit={rng.randint(1, 5)}"]
        if rng.random() < 0.4:
            words = [f"default={rng.randint(1, 5)}", *words]
        self.command("dpctl/ct-set-limits", *words)

    def step(self):
        chance = self.rng.random()
        if chance < 0.85:
            self.talk()
        elif chance < 0.94:
            self.warp(self.rng.choice([30, 700, 2500, 9000, 16_000, 31_000, 61_000, 130_000, 600_000, 90_000_000]))
        elif chance < 0.97:
            self.flush()
        else:
            self.adjust()

    def talk(self):
        talk = self.rng.choice(self.talks)
        chance = self.rng.random()
        error = talk.error() if chance < 0.07 else None
        if error:
            direction, made = error
        elif chance < 0.14:
            direction, made = talk.in_fragments()
            if talk.is_odd and self.pipeline.parts_fragments:
                # A second action would collect some of them twice, in an order of each program's own.
                return
        else:
            direction, made = talk.next()
        # Fragments of a burst may overtake one another on their way to the tracker, which matters if some are there twice.
        one_by_one = (talk.is_odd or self.pipeline.parts_fragments) and len(made) > 1
        bursts = [[frame] for frame in made] if one_by_one else [made]
        theirs = {number: [] for number in tracked.PORTS}
        for burst in bursts:
            for number, sent in self.packets(talk.side(direction), burst).items():
                theirs[number] += sent
        if not error:
            talk.learn(direction, theirs)
        if isinstance(talk, conversations.Ftp) and talk.data and not theirs[3 - talk.side(direction)]:
            # The peer expects connections that an invalid segment announces.
            raise Enough
        if getattr(talk, "data", None) and self.rng.random() < 0.7:
            self.talks.append(talk.announced(len(self.talks), self.pipeline))
            if self.rng.random() < 0.7:
                self.talks.append(self.talks[-1])

    def flush(self):
        rng = self.rng
        words = []
        if rng.random() < 0.6:
            words.append(f"zone={rng.choice(self.pipeline.zones)}")
        if rng.random() < 0.3:
            words.append(rng.choice(["mark=0x5/0xf", "mark=5", "labels=0x77/0xff", "labels=0"]))
        if rng.random() < 0.5:
            talk = rng.choice(self.talks)
            src, sport, dst, dport = talk.views[talk.begins]
            name = "ct_ipv6" if talk.family == 6 else "ct_nw"
            fields = [f"{name}_src={src}", f"{name}_dst={dst}"]
            if talk.proto in frames.WITH_PORTS:
                fields += [f"ct_nw_proto={talk.proto}", f"ct_tp_src={sport}", f"ct_tp_dst={dport}"]
            elif talk.proto == frames.ICMP6:
                # Without the other fields, the peer aborts.
                fields += [f"ct_nw_proto=58,icmp_type=128,icmp_code=0,icmp_id={20000 + talk.number}"]
            else:
                fields += [f"ct_nw_proto={talk.proto}"]
            kept = [field for field in fields if rng.random() < 0.7]
            words += [",".join(kept)] if kept else []
        self.command("dpctl/flush-conntrack", *words)
        self.interrupt()

    def adjust(self):
        rng = self.rng
        choice = rng.randint(0, 4)
        if choice == 0:
            if self.limited:
                self.limits()
        elif choice == 1:
            self.command("dpctl/ct-del-limits", f"zone={rng.choice(self.pipeline.zones)}")
        elif choice == 2:
            self.command("dpctl/ct-set-maxconns", rng.choice(["2000", "3000000"]))
        elif choice == 3:
            self.command(rng.choice(["dpctl/ct-disable-tcp-seq-chk", "dpctl/ct-enable-tcp-seq-chk"]))
        else:
            self.command(rng.choice(["dpctl/ipf-set-enabled", "dpctl/ipf-set-disabled"]), rng.choice(["v4", "v6"]))


class OursDied(Exception):
    """The second switch has died."""


def grave(switch):
    """The last lines of the log that say what is wrong."""
    return "\n".join(switch.log()[-2:])


class Enough(Exception):
    """What follows differs by intention."""


def listed(sent):
    return "".join(f"\n      {frames.describe(frame)}\n        {frame.hex()}" for frame in sent) or "nothing"


def judged(case):
    """The kind of a case's end, and a report."""
    try:
        case.run()
        return "passed", ""
    except tracked.Died as died:
        return "died", f"{died}; the last steps:\n" + "\n".join(case.listing[-4:])
    except Difference as difference:
        return "failed", "\n".join(case.listing) + f"\n{difference}"


def main(case_type, name, usage):
    """Runs the cases of a type of test that the command line asks for."""
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("peers", type=pathlib.Path)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int)
    parser.add_argument("--jobs", type=int, default=4 * os.cpu_count())
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--reports", type=int, default=3, help="so many differences are listed with all steps")
    options = parser.parse_args()
    if other := other_version(options.peers):
        print(f"{other}\n{name}: 0 passed, 0 failed")
        return 0
    # Running cases end their daemons first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    numbers = range(options.cases) if options.case is None else [options.case]
    counts = {"passed": 0, "failed": 0, "died": 0}
    with tempfile.TemporaryDirectory(prefix=f"{name}-bin-") as made:
        peers, schemas = options.peers.resolve(), options.peers.resolve() / "usr/share/openvswitch"
        path = peers / "bin"
        if str(options.binary) != "peer":
            path = linked(pathlib.Path(made) / "bin", options.binary.resolve())
        makers = [case_type.programs(peers / "bin", schemas), case_type.programs(path, schemas)]
        for maker in makers:
            with case_type.switch(maker):
                pass

        def run(number):
            # What threads of the peer do depends on how busy the machine is: a difference counts if it is there twice.
            for _ in range(2):
                case = case_type(options.seed, number, makers)
                case.verbose = options.verbose
                result, report = judged(case)
                if result != "failed" or options.verbose:
                    break
                once[number] = report
            else:
                once.pop(number, None)
            return number, case, result, report

        once, packets, began = {}, 0, time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for number, case, result, report in pool.map(run, numbers):
                counts[result] += 1
                packets += case.received
                if result == "failed":
                    brief = counts["failed"] > options.reports
                    head = f"DIFFERS case {number} (seed {options.seed}, {case.kind})"
                    shown = report.split("\n")[-30:] if brief else report.split("\n")
                    print("\n".join([head, *[line[:2000] for line in shown]]), flush=True)
                elif result == "died":
                    print(f"peer died in case {number} (seed {options.seed}): {report}", flush=True)
                done = sum(counts.values())
                if done % 20 == 0:
                    print(f"... {done} of {len(numbers)}, {time.monotonic() - began:.0f} s", flush=True)
    if once:
        print(f"cases that differed once, and not again: {sorted(once)}")
        if options.verbose or options.reports > 3:
            for number, report in once.items():
                print("\n".join([f"ONCE case {number}", *[line[:300] for line in report.split("\n")[-25:]]]))
    print(f"{name}: {counts['passed']} passed, {counts['failed']} failed (peer died in {counts['died']}; {packets} packets)")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(Case, "sequences", __doc__))
