"""The foundations of the benchmarks on real ports."""

import json
import random
import subprocess
import sys

import pytest
from switch import TOP

HERE = TOP / "bench"
sys.path.insert(0, str(HERE))

import rates  # noqa: E402
import record  # noqa: E402
import report  # noqa: E402
import svg  # noqa: E402


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    program = tmp_path_factory.mktemp("frames") / "frames"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, HERE / "frames.c"], check=True)
    return program


def histogram(frames, times_ns):
    text = "".join(f"{ns}\n" for ns in times_ns)
    done = subprocess.run([frames, "histogram"], input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", range(20))
def test_histogram_beside_sorting(frames, seed):
    rng = random.Random(seed)
    times_ns = [rng.getrandbits(rng.randrange(1, 36)) for _ in range(rng.randrange(1, 3000))]
    found = histogram(frames, times_ns)
    ordered = sorted(times_ns)
    for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)):
        # The smallest value that at least this share of all does not exceed; the bucket's end exceeds it by at most a
        # 64th.
        exact = next(ns for i, ns in enumerate(ordered, 1) if i >= part * len(ordered))
        assert exact / 1e3 - 0.006 <= found[name] <= exact * (1 + 1 / 64) / 1e3 + 0.006
    assert found["max"] == pytest.approx(ordered[-1] / 1e3, abs=0.006)
    assert found["mean"] == pytest.approx(sum(ordered) / len(ordered) / 1e3, abs=0.006)


def test_histogram_ends(frames):
    assert histogram(frames, []) is None
    assert histogram(frames, [0])["p50"] == 0
    assert histogram(frames, [2**63])["max"] == pytest.approx(2**63 / 1e3)


@pytest.mark.parametrize("words", (["-s", "63"], ["-s", "1519"], ["-n", "0"], ["-t", "x"], ["-b", "other"], [], ["-z"]))
def test_frames_refuses(frames, words):
    devices = ["a", "b", "c", "d"] if words else ["a"]
    done = subprocess.run([frames, *words, *devices], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr


@pytest.mark.parametrize("limit", (300, 12_345, 50_000, 900_000))
@pytest.mark.parametrize("first", (1_000, rates.RATE_FIRST, 5_000_000))
def test_rate_without_loss(limit, first):
    found = rates.loss_free_pps(lambda rate: (rate, max(0.0, 1 - limit / rate)), first)
    assert limit * (1 - 2 * rates.PRECISION) <= found <= limit / (1 - rates.LOSS_MAX)


def test_rate_above_that_of_the_sender():
    assert rates.loss_free_pps(lambda rate: (min(rate, 70_000), 0.0)) == pytest.approx(70_000)
    assert rates.loss_free_pps(lambda rate: (rate, 0.5)) == 0


def test_pictures(tmp_path):
    header = ["workload", "Open vSwitch, Mpps", "Flowstone, Mpps", "times", "met"]
    table = report.Table("a < b", header, [["x", 1, 2.5, 2.5, "yes"], ["y", 0.01, None, None, "no"]])
    assert svg.panels_of(table) == [
        ("Mpps", [("x: Open vSwitch", 1), ("x: Flowstone", 2.5), ("y: Open vSwitch", 0.01), ("y: Flowstone", None)]),
        ("times", [("x", 2.5), ("y", None)]),
    ]
    assert svg.scale([1, 2, None, 0]) == ([0.5, 1, 0, 0], False)
    lengths, logarithmic = svg.scale([1, 1000, None, 0])
    assert logarithmic and lengths == pytest.approx([svg.LOG_FLOOR, 1, 0, 0])
    words = report.Table("words", ["a"], [["b"]])
    (path,) = svg.write(report.Report([table, words, report.Table("nothing", ["a"], [])], {}), "it", tmp_path)
    assert path.name == "it-1.svg" and "a &lt; b" in path.read_text()


def test_history(tmp_path):
    path = tmp_path / "history"
    for value in (2, 3):
        record.append(path, "it", report.Report([], {"a": {"ratio": value, "met": True, "rounds": [1, 2]}, "b": "none"}))
    history = record.lines(path)
    assert record.names(history) == ["it/a/ratio"]
    assert [row[-1] for row in record.trend(history, "it/a/ratio")] == [2, 3]
    assert [row[-1] for row in record.trend(history, "it/a/rounds/1")] == [2, 2]
    path.write_text("[]\n")
    with pytest.raises(SystemExit, match="line 1"):
        record.lines(path)


def test_pictures_agree_with_their_tables(tmp_path):
    pictures = [sys.executable, TOP / "bench/pictures"]
    subprocess.run([*pictures, "--check"], check=True)
    document = tmp_path / "page.md"
    document.write_text("| who | a | b |\n|---|---|---|\n| x | 1,000 | none |\n| y | **2.5** | |\n\n![It](pictures/it.svg)\n")
    check = [*pictures, "--check", document]
    assert subprocess.run(check, check=False).returncode == 1
    subprocess.run([*pictures, document], check=True)
    subprocess.run(check, check=True)
    assert ">1,000</text>" in (tmp_path / "pictures/it.svg").read_text()
    document.write_text(document.read_text().replace("1,000", "999"))
    assert subprocess.run(check, check=False).returncode == 1
