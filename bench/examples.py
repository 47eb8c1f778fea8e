"""Measurements that are Rust programs: examples of a crate, which print one JSON object a line."""

import json
import os
import subprocess

import common
from report import Table


def run(package, example, *words):
    """Builds and runs an example and gives the objects that it printed."""
    manifest = common.ROOT / "Cargo.toml"
    command = ["cargo", "run", "--release", "-q", "-p", package, "--example", example, "--manifest-path", manifest]
    if words:
        command += ["--", *words]
    common.say(f"running the example {example} of {package}")
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, env=os.environ, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the example {example} of {package} ended with status {done.returncode}")
    return objects(done.stdout, f"the example {example} of {package}")


def objects(text, source):
    """The objects in lines of JSON; SystemExit names a line that is none."""
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
    """Tables of objects, one for each set of keys, in the order in which they came."""
    kinds = {}
    for one in found:
        kinds.setdefault(tuple(one), []).append(list(one.values()))
    return [
        Table(title if i == 0 else f"{title}, {i + 1}", [key.replace("_", " ") for key in keys], rows)
        for i, (keys, rows) in enumerate(kinds.items())
    ]
