"""Measurements that are Rust programs: examples of a crate, which print one JSON object a line."""

import json
import os
import subprocess

import common
from report import Table

# Settings that the daemons choose for themselves at start: memory in huge pages, where the kernel has them.
AS_DAEMONS = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def run(package, example, *words, core=None):
    """Builds an example, runs it (with `core`, on that core), and returns the objects that it printed."""
    which = ["--release", "-q", "-p", package, "--example", example, "--manifest-path", common.ROOT / "Cargo.toml"]
    source = f"the example {example} of {package}"
    common.say(f"building and running {source}")
    finish(["cargo", "build", *which], source)
    pinned = [] if core is None else ["taskset", "-c", core]
    return objects(finish([*pinned, "cargo", "run", *which, "--", *words], source, AS_DAEMONS), source)


def finish(command, source, settings=None):
    """Runs a command to its end and returns its output; its standard error passes through."""
    env = {**os.environ, **(settings or {})}
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False, env=env)
    if done.returncode != 0:
        raise SystemExit(f"{source} ended with status {done.returncode}")
    return done.stdout


def objects(text, source):
    """The objects in lines of JSON; SystemExit names an invalid line."""
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            raise SystemExit(f"{source} printed a line that is not JSON: {line}") from None
        if not isinstance(found[-1], dict):
            raise SystemExit(f"{source} printed a line that is no JSON object: {line}")
    if not found:
        raise SystemExit(f"{source} printed nothing")
    return found


def tables(title, found):
    """Tables of objects in their order, one for each set of keys (and each `measure`, if present)."""
    kinds = {}
    for one in found:
        measure = one.get("measure")
        row = {key: value for key, value in one.items() if key != "measure"}
        kinds.setdefault((measure, *row), []).append(list(row.values()))
    return [
        Table(f"{title}: {measure}" if measure else title, [key.replace("_", " ") for key in keys], rows)
        for (measure, *keys), rows in kinds.items()
    ]
