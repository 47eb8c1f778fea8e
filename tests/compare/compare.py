#!/usr/bin/env python3
"""Runs the same command lines with the programs of Open vSwitch and of Flowstone, and compares what they print.

usage: compare.py PEERS OURS [--seconds S] [--section TEXT] [--name TEXT] [--file NAME] [--jobs N] [--verbose] [--list]

PEERS is a folder with bin/ as tests/peers/unpack.sh makes it, OURS the binary `flowstone`. A scenario is a list of command
lines in plain shell (scenarios.py reads and generates them). Each maker runs it in a fresh directory with daemons of its
own; then exit statuses, standard output and standard error are normalised (UUIDs, times, process ids, paths) and compared
line by line. Of bad input (bad_input.py), only exit statuses and first lines of messages count, and what its last command
lines show of the state. A difference that explained.txt names with its reason is counted as explained.
Cached flows of ours may match less of a packet's tunnel than the peer's (megaflows.py); these lines are counted. With --seconds, a
sample: every section has its turn, in the same order each time. Programs of another version than 4.0 are not compared.

The table lists the sections of the manual pages with their scenarios. The exit status is 0 if there is no unexplained
difference and no section without a scenario.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import bad_input
import megaflows
import scenarios

HERE = pathlib.Path(__file__).resolve().parent
LINE_SECONDS = 20
PROGRAMS = (
    "ovs-vswitchd ovsdb-server ovsdb-client ovsdb-tool ovs-vsctl ovs-ofctl ovs-appctl ovs-dpctl ovs-testcontroller vtep-ctl"
).split()


# Command lines that print records in the order of a hash table, which differs from run to run.
UNORDERED = re.compile(r"(ovs-vsctl|vtep-ctl)\b[^|;]* (show\b|find\b|list [A-Za-z_]+$)|ovsdb-client list-(tables|columns)\b")
# The part of a reply that describes a port, which comes in such an order as well.
PORT = re.compile(r"(?m)^  port +\w+: rx .*\n(?: {5,}.*\n)*|^  port \w+ queue .*\n")

# A line of a scenario that defines a function.
FUNCTION = re.compile(r"\w+\(\) \{.*\}$")


def in_order(line, text):
    """Puts what a command line printed in the order of a hash table into alphabetical order."""
    if UNORDERED.search(line):
        return "\n".join(sorted(text.split("\n")))
    ports = iter(sorted(PORT.findall(text)))
    return PORT.sub(lambda _: next(ports), text)


class Maker:
    """The programs of one maker: a folder for PATH, and the schemas."""

    def __init__(self, path, schemas):
        self.path, self.schemas = path, schemas

    def run(self, scenario):
        """Runs a scenario. Returns a list of (line, exit status, output, errors), normalised."""
        base = pathlib.Path(tempfile.mkdtemp(prefix="compare-"))
        home = base / "d"
        home.mkdir()
        env = {
            "PATH": f"{self.path}:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "SCHEMAS": str(self.schemas),
            "OVS_PKGDATADIR": str(self.schemas),
            "OVS_SYSLOG_METHOD": "null",
            **bad_input.LONG_WORDS,
            **{f"OVS_{kind}DIR": str(home) for kind in ("RUN", "LOG", "DB")},
        }
        normal = Normal(home, self.schemas)
        # Each line runs in a shell of its own, which knows the functions of all lines.
        functions = [line for line in scenario.lines if FUNCTION.match(line)]
        env["FUNCTIONS"] = "\n".join(functions)
        try:
            return [(line, *self.line(line, home, env, normal)) for line in scenario.lines]
        finally:
            end_daemons(home)
            shutil.rmtree(base, ignore_errors=True)

    @staticmethod
    def line(line, home, env, normal):
        # Outputs go to files: a daemon that a line starts may keep them open.
        with open(home.parent / "out", "w+b") as out, open(home.parent / "err", "w+b") as err:
            command = ["bash", "-c", f". {HERE}/lib.sh; eval \"$FUNCTIONS\"; {line}"]
            process = subprocess.Popen(command, cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
            try:
                status = process.wait(LINE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = "too long"
            texts = []
            for file in (out, err):
                file.seek(0)
                text = normal.text(file.read().decode(errors="backslashreplace"))
                texts.append(in_order(line, text))
        return status, *texts


def end_daemons(home):
    """Ends the daemons whose pid files are in `home`."""
    for file in home.glob("*.pid"):
        try:
            pid = int(file.read_text())
            if str(home) in pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace"):
                os.kill(pid, signal.SIGKILL)
        except (ValueError, OSError):
            pass


class Normal:
    """Replaces what differs from run to run: UUIDs by their numbers in order of appearance, times, pids, paths."""

    RULES = [
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?\|\d+\|", "TIME|N|"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
        (r"\b(duration|used|idle_age|hard_age|age|cpu|msec|system uptime)([=:] ?)-?\d+(\.\d+)?s?", r"\1\2?"),
        (r"\b(pid|process) \d+", r"\1 PID"),
        (r"\b(\S+?)\.\d+\.ctl\b", r"\1.PID.ctl"),
        (r"\bxid=0x[0-9a-f]+", "xid=?"),
        # Dummy devices take addresses in the order of their creation.
        (r"\baddr:aa:55:aa:55:00:(?!00)[0-9a-f]{2}", "addr:?"),
        # The ages of learned addresses.
        (r"(?m)^( +\S+ +\d+  [0-9a-f:]{17} +)\d+$", r"\1?"),
        (r'("age": )\d+', r"\1?"),
        (r"\btime=\d+\.\d ms", "time=? ms"),
        # Which of them a client meets when versions do not agree depends on who is faster.
        (r"failed to connect to socket \(Broken pipe\)", "failed to connect to socket (Protocol error)"),
        # The number of a thread.
        (r"(?m)^(  )\d+(: \(keys \d+\))", r"\1?\2"),
        (r"dump duration : \d+ms", "dump duration : ?ms"),
        # What a server uses, which it logs after its first ten seconds.
        (r"(?m)^TIME\|N\|memory\|INFO\|.*\n", ""),
    ]

    def __init__(self, home, schemas):
        self.paths = [(str(schemas), "SCHEMAS"), (str(home), "HOME")]
        self.uuids = {}

    def text(self, text):
        for path, name in self.paths:
            text = text.replace(path, name)
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", self.uuid, text)
        for pattern, replacement in self.RULES:
            text = re.sub(pattern, replacement, text)
        return text

    def uuid(self, found):
        return f"<{self.uuids.setdefault(found[0], len(self.uuids))}>"


class Explained:
    """Differences that stay: a block of explained.txt each, `# reason`, then a pattern of the peer's text, then one of ours
    (regular expressions, on one line each). A line `$ pattern` after the reason limits the block to command lines that the
    pattern matches; more blocks of patterns may follow a reason."""

    def __init__(self, file):
        self.rules, reason, command = [], None, ""
        lines = iter(file.read_text().splitlines() if file.exists() else [])
        for line in lines:
            if line.startswith("# "):
                reason, command = line[2:], ""
            elif line.startswith("$ "):
                command = line[2:]
            elif line:
                self.rules.append((reason, *map(re.compile, (command, line, next(lines)))))

    def reason(self, *difference):
        """The reason for a difference: a command line, the peer's text, ours."""
        for reason, *patterns in self.rules:
            if all(pattern.search(text) for pattern, text in zip(patterns, difference)):
                return reason
        return None


class Comparison:
    """What differs between the results of a scenario: a list of (command line, the peer's text, ours), and in how many lines of
    outputs ours differ only in the masks of tunnels in cached flows, which counts as equal (megaflows.py)."""

    def __init__(self, scenario, theirs, ours):
        self.differences, self.masks = [], 0
        for number, ((line, *of_peer), (_, *of_ours)) in enumerate(zip(theirs, ours)):
            if number < scenario.brief:
                of_peer, of_ours = map(brief, (of_peer, of_ours))
            for what, a, b in zip(("exit", "out", "err"), of_peer, of_ours):
                if what == "out":
                    a, b, count = megaflows.aligned(a, b)
                    self.masks += count
                if a != b:
                    self.differences.append((line, f"{what}: {a}", f"{what}: {b}"))

    def unexplained(self, explained):
        return [difference for difference in self.differences if not explained.reason(*difference)]


LOGGED = re.compile(r"TIME\|N\|[^|]*\|(\w+)\|")


def brief(result):
    """What counts of bad input: the exit status, and the first line of the message. Lines of the log are one only if nothing
    else is, and they say that something is wrong."""
    status, _, errors = result
    lines = errors.split("\n")
    messages = [line for line in lines if line and not LOGGED.match(line)]
    grave = ("WARN", "ERR", "EMER") if status else ("ERR", "EMER")
    logged = [line for line in lines if (found := LOGGED.match(line)) and found[1] in grave and "|fatal_signal|" not in line]
    return status, "", (messages + logged + [""])[0]


def linked(directory, binary):
    directory.mkdir()
    for program in PROGRAMS:
        (directory / program).symlink_to(binary)
    return directory


def other_version(peers):
    """Why the programs in a folder are not compared: they are of another version than 4.0. None if they are not."""
    version = subprocess.run([peers / "bin/ovs-vswitchd", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    return None if " 4.0." in version else f"not compared, which needs Open vSwitch 4.0: {version}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("peers", type=pathlib.Path)
    parser.add_argument("ours", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--section", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--file", default="", help="those of scenarios/NAME.txt only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if not options.ours.is_file():
        parser.error(f"{options.ours} is not the program flowstone")
    found = scenarios.all_of_them(HERE, options.peers / "usr/share/openvswitch")
    chosen = [s for s in found if options.section in s.section and options.name in s.name and options.file in ("", s.file)]
    if options.list:
        for scenario in chosen:
            print(f"{scenario.section}: {scenario.name}", *(f"    {line}" for line in scenario.lines), sep="\n")
        return 0
    if other := other_version(options.peers):
        print(f"{other}\ncompare: 0 passed, 0 failed")
        return 0
    # Whoever ends this has the scenarios that run end their daemons first.
    signal.signal(signal.SIGTERM, lambda *_: setattr(options, "seconds", 0))
    explained = Explained(HERE / "explained.txt")
    began, lines, masks = time.monotonic(), 0, 0
    counts = {section: [0, 0, 0] for section in scenarios.sections(HERE)} if not options.section + options.name + options.file else {}
    with tempfile.TemporaryDirectory(prefix="compare-bin-") as made:
        peers, schemas = options.peers.resolve(), options.peers.resolve() / "usr/share/openvswitch"
        makers = Maker(peers / "bin", schemas), Maker(linked(pathlib.Path(made) / "bin", options.ours.resolve()), schemas)

        def both(scenario):
            if time.monotonic() - began > options.seconds:
                return scenario, None
            # Some lines depend on how busy the machine is: a difference counts if it is there twice.
            for _ in range(2):
                comparison = Comparison(scenario, *(maker.run(scenario) for maker in makers))
                if not comparison.unexplained(explained):
                    break
            return scenario, comparison

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for done, (scenario, comparison) in enumerate(pool.map(both, scenarios.in_turns(chosen))):
                if comparison is None:
                    continue
                count = counts.setdefault(scenario.section, [0, 0, 0])
                count[0] += 1
                lines += len(scenario.lines)
                masks += comparison.masks
                unknown = comparison.unexplained(explained)
                if unknown:
                    count[2] += 1
                    print(f"DIFFERS {scenario.section}: {scenario.name}", flush=True)
                    for line, theirs, ours in unknown if options.verbose else unknown[:2]:
                        print(f"  $ {line}\n  peer {theirs.rstrip()}\n  ours {ours.rstrip()}", flush=True)
                elif comparison.differences:
                    count[1] += 1
                if done % 50 == 49:
                    print(f"... {done + 1} of {len(chosen)}", flush=True)
    print(f"{lines} command lines; {masks} lines of their outputs differ in the masks of tunnels only, which counts as equal")
    return table(counts, complete=options.seconds == float("inf"))


def table(counts, complete):
    width = max(map(len, counts), default=0)
    print(f"{'section':{width}}  scenarios  explained  differ")
    for section, (n, known, differ) in sorted(counts.items()):
        print(f"{section:{width}}  {n:9}  {known:9}  {differ:6}")
    n, known, differ = (sum(count[i] for count in counts.values()) for i in range(3))
    uncovered = [section for section, count in counts.items() if count[0] == 0] if complete else []
    print(f"compare: {n - differ} passed, {differ + len(uncovered)} failed ({known} with explained differences; {len(uncovered)} sections without a scenario)")
    return 1 if differ or uncovered else 0


if __name__ == "__main__":
    sys.exit(main())
