"""Instructions a packet in the datapath alone, and the number of atomic read-modify-writes among them, which other
threads may have to wait for. Counted, not timed: `valgrind --tool=callgrind` over the example `replay` of the
crate datapath, which plays packets from memory, once with a few slices of packets and once with more; the
difference is the steady state.

--baseline compares with another build of the example, --microflow counts with the microflow cache.
"""

import json
import pathlib
import re
import subprocess
import tempfile

import common
import examples
from report import Report, Table, ratio

WORKLOADS = (
    "flows-1", "flows-1000", "flows-100000", "masks-50",
    "tcp-1", "vlan-1", "ipv6-1", "icmp-1", "icmp6-1", "vlan6-1",
    "tcp-1000", "vlan-1000", "ipv6-1000", "icmp-1000",
)  # fmt: skip
# Forms of frames beside TCP over IPv4 without a tag.
FORM = re.compile(r"(?!tcp)(vlan|ipv6|icmp|icmp6|vlan6)-(\d+)")
FEW_SLICES, MANY_SLICES = 10, 40
# An instruction that locks a cache line: with the prefix, or an exchange with memory, where the lock is implicit.
ATOMIC = re.compile(r"^\s*([0-9a-f]+):\s+(?:lock\b|xchg\s+.*\()", re.MULTILINE)


def add_arguments(arguments):
    arguments.add_argument("--baseline", metavar="FILE", help="an older build of the example replay, to be compared with")
    arguments.add_argument("--packets", nargs="+", default=WORKLOADS, metavar="WORKLOAD", help="some of the workloads")
    arguments.add_argument("--microflow", action="store_true", help="with the microflow cache")


def measure(options):
    common.need_package("valgrind", "valgrind")
    common.need_package("objdump", "binutils")
    builds = {"ours": build()}
    if options.baseline:
        builds["baseline"] = pathlib.Path(options.baseline).resolve()
    atomics = {which: atomic_addresses(binary) for which, binary in builds.items()}
    figures, rows = {}, []
    for workload in options.packets:
        found = {which: steady_state(binary, workload, options.microflow, atomics[which]) for which, binary in builds.items()}
        common.say(f"{workload}: {found}")
        ours, baseline = found["ours"], found.get("baseline", {})
        form = FORM.fullmatch(workload)
        tcp = form and figures.get(f"tcp-{form[2]}")
        figures[workload] = {
            **ours,
            "baseline": baseline or None,
            "ratio_to_baseline": ratio(ours["instructions"], baseline.get("instructions")),
            "ratio_to_tcp": ratio(ours["instructions"], tcp["instructions"]) if tcp else None,
        }
        row = figures[workload]
        rows.append([workload, ours["instructions"], baseline.get("instructions"), row["ratio_to_baseline"]])
        rows[-1] += [row["ratio_to_tcp"], ours["atomics"], baseline.get("atomics")]
    header = ["workload", "instructions", "baseline", "ratio", "beside TCP", "atomics", "baseline's atomics"]
    cache = "with" if options.microflow else "without"
    return Report([Table(f"a packet in the datapath alone, {cache} microflow cache", header, rows)], figures)


def build():
    command = ["cargo", "build", "--release", "-q", "-p", "datapath", "--example", "replay", "--message-format=json"]
    found = examples.finish([*command, "--manifest-path", common.ROOT / "Cargo.toml"], "the example replay")
    artifacts = (json.loads(line) for line in found.splitlines())
    paths = [a["executable"] for a in artifacts if a.get("executable") and a["target"]["name"] == "replay"]
    return pathlib.Path(paths[-1])


def atomic_addresses(binary):
    """Addresses of the atomic instructions of a program."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", binary], capture_output=True, text=True, check=True).stdout
    return {int(address, 16) for address in ATOMIC.findall(text)}


def steady_state(binary, workload, microflow, atomics):
    """Instructions and atomic ones a packet."""
    few, many = (count(binary, workload, microflow, slices, atomics) for slices in (FEW_SLICES, MANY_SLICES))
    packets = many[0] - few[0]
    return {
        "instructions": round((many[1] - few[1]) / packets, 1),
        "atomics": round((many[2] - few[2]) / packets, 3),
    }


def count(binary, workload, microflow, slices, atomics):
    """Packets, instructions and atomic instructions of a run."""
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        out = pathlib.Path(directory) / "out"
        command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", f"--callgrind-out-file={out}"]
        env = {"SLICES": str(slices), "WARM": "20000", "PATH": "/usr/bin:/bin"}
        words = [binary, workload, "0", "100" if microflow else "0"]
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, env=env)
        if done.returncode != 0:
            raise SystemExit(f"replay {workload} under valgrind ended with status {done.returncode}:\n{done.stderr}")
        packets = json.loads(done.stdout)["packets"]
        return (packets, *costs(out, binary, atomics))


def costs(path, binary, atomics):
    """Instructions of a run, and those at the given addresses of the program."""
    total, atomic, within, skip = 0, 0, False, False
    names = {}
    with open(path) as lines:
        for line in lines:
            if line.startswith("0x"):
                # The line after a call is the cost of the callee, which is counted there.
                if skip:
                    skip = False
                    continue
                address, _, cost = line.split()
                total += int(cost)
                if within and int(address, 16) in atomics:
                    atomic += int(cost)
            elif line.startswith("calls="):
                skip = True
            elif line.startswith("ob="):
                number, _, name = line[3:].strip().partition(" ")
                names.setdefault(number, name)
                within = names[number] == str(binary)
    return total, atomic
