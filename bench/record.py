"""Figures of runs: a file of JSON lines, each of one benchmark with date, commit and processor.

The name of a figure consists of the benchmark and its keys in the JSON of `bench/run --json`, joined by slashes
(`datapath/ip-1k/ratio`). `rounds`, the single figures behind a median, have numbers as keys.
"""

import datetime
import json
import pathlib

import common


def append(path, benchmark, report):
    """Appends one line to a history, which is created if it is missing."""
    line = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": cpu_model(),
        "benchmark": benchmark,
        "figures": report.figures,
    }
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def commit():
    """The checked out commit, and whether the tree differs from it."""
    top = ["git", "-C", common.ROOT]
    number = common.run(*top, "rev-parse", "--short=12", "HEAD", check=False).strip()
    if not number:
        return "unknown"
    return number + "+changes" * bool(common.run(*top, "status", "--porcelain", "--untracked-files=no", check=False).strip())


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "unknown"


def lines(path):
    """The lines of a history; SystemExit names an invalid one."""
    found = []
    for number, text in enumerate(pathlib.Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            found.append({key: line[key] for key in ("date", "commit", "cpu", "benchmark", "figures")})
        except (ValueError, KeyError, TypeError):
            raise SystemExit(f"{path}, line {number}: no line of a history") from None
    return found


def flat(figures, name):
    """Every number in nested figures, by its name."""
    if isinstance(figures, bool) or figures is None or isinstance(figures, str):
        return {}
    if isinstance(figures, (int, float)):
        return {name: figures}
    items = figures.items() if isinstance(figures, dict) else enumerate(figures)
    found = {}
    for key, value in items:
        found |= flat(value, f"{name}/{key}")
    return found


def names(history):
    """The names of all figures of a history, without single rounds."""
    found = {}
    for line in history:
        found |= flat(line["figures"], line["benchmark"])
    return [name for name in found if "/rounds/" not in name]


def trend(history, name):
    """The history of a figure: lists of date, commit, processor and value."""
    rows = []
    for line in history:
        value = flat(line["figures"], line["benchmark"]).get(name)
        if value is not None:
            rows.append([line["date"], line["commit"], line["cpu"], value])
    return rows
