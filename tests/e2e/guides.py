"""Guides whose commands a test runs as a reader would paste them.

In a guide, blocks of the language `sh` are commands: all of them run in order, in one shell. A block of the language `text`
right behind one of them is what it prints, where

- a line of three dots stands for any lines, and three dots within a line for any characters;
- values that differ from run to run are any: durations, counters, timeouts, identifiers, ports that a host chooses (32,768 and
  more), and numbers of recirculations.

The shell has the network namespace of a switch, and its own list of named namespaces: guides use plain names, and nothing of
them remains.
"""

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass

SECONDS_MAX = 180

# Values that differ from run to run, with the text in front of them.
VARYING = re.compile(
    r"(\b(?:duration|n_packets|n_bytes|packets|bytes|used|timeout|idle_age|hard_age|id|time|cookie)[=:])[0-9a-fx.]+"
    r"|(\brecirc(?:_id)?[=(])0x[0-9a-f]+|(\bsport=|\bdport=)(?:3276[89]|327[7-9]\d|32[89]\d\d|3[3-9]\d{3}|[4-6]\d{4})\b"
    r"|(\btime )\d+(?=ms)"
)


@dataclass
class Step:
    """Commands, and what they print if the guide shows it."""

    line: int
    commands: str
    output: str | None = None


def steps(text):
    """The steps of a guide."""
    found = []
    language, begin, block = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.startswith("```")
        if fence and language is None:
            language, begin, block = line[3:].strip(), number, []
        elif fence:
            if language == "sh":
                found.append(Step(begin, "\n".join(block)))
            elif language == "text":
                assert found and found[-1].output is None, f"line {begin}: output without commands"
                found[-1].output = "\n".join(block)
            language = None
        elif language is not None:
            block.append(line)
    assert language is None, f"line {begin}: the block does not end"
    return found


def fixed(line):
    """A line of output without the values that differ from run to run."""
    return VARYING.sub(lambda match: f"{next(filter(None, match.groups()))}*", line.strip())


def agrees(expected, printed):
    """Whether an output is the expected one."""
    pattern = []
    for line in expected.rstrip().splitlines():
        if line.strip() == "...":
            pattern.append(r"(?:[^\n]*\n)*?")
        else:
            pattern.append(r"[^\n]*".join(re.escape(part) for part in fixed(line).split("...")) + "\n")
    lines = "".join(fixed(line) + "\n" for line in printed.rstrip().splitlines())
    return re.fullmatch("".join(pattern), lines) is not None


def run(text, directory, namespace, environment):
    """Runs the commands of a guide in a network namespace. Returns a list of problems."""
    todo = steps(text)
    script = ["mount -t tmpfs none /run/netns", "set -eu"]
    for number, step in enumerate(todo):
        # Programs in the background keep writing to the file of their own step.
        (directory / f"step{number}").write_text(step.commands + "\n")
        script += [f"exec >{directory}/out{number} 2>&1", f". {directory}/step{number}", f"touch {directory}/done{number}"]
    words = ["ip", "netns", "exec", namespace, "unshare", "--mount", "--propagation", "private", "bash", "-c", "\n".join(script)]
    process = subprocess.Popen(
        words, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(SECONDS_MAX)
    except subprocess.TimeoutExpired:
        pass
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        # Daemons of a guide that broke off.
        for path in directory.glob("*/*.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)
    problems = []
    for number, step in enumerate(todo):
        path = directory / f"out{number}"
        printed = path.read_text(errors="replace") if path.exists() else ""
        if not (directory / f"done{number}").exists():
            problems.append(f"line {step.line}: failed, or did not end\n{step.commands}\n{printed}")
            break
        if step.output is not None and not agrees(step.output, printed):
            problems.append(f"line {step.line}: expected\n{step.output}\nprinted\n{printed}")
    return problems
