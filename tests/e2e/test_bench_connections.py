"""The foundations of the benchmark of connection tracking: workloads have the same bytes everywhere and right checksums,
and outputs of switches and tables of documents are parsed."""

import hashlib
import struct
import subprocess
import sys

import pytest
from switch import TOP

sys.path.insert(0, str(TOP / "bench"))

import connections  # noqa: E402
import conversations  # noqa: E402
import document  # noqa: E402
import report  # noqa: E402
import workload  # noqa: E402

# SHA-256 of the handshakes, of the packets of established connections, and of the flows.
PINNED = {
    "ct-1000-plain": (
        "b06406a5f1302ad61ec125ada8de1d1d80b946042bd854a9ca120d09e5beb3df",
        "815dce7d048f9a91f0741dde4fdbd15fcba865a524b2ded875166ab566821173",
        "676502580816274867c6d8152dcebec25940af79b872e1bf930641c99a9e1b4d",
    ),
    "ct-1000": (
        "b06406a5f1302ad61ec125ada8de1d1d80b946042bd854a9ca120d09e5beb3df",
        "815dce7d048f9a91f0741dde4fdbd15fcba865a524b2ded875166ab566821173",
        "a219aa6ea2380ed60f748dda3c5f92ec283b7f754adcf67cd3b6283c9162e145",
    ),
    "ct-nat-1000": (
        "47cbd95cc7ce9c31642424824953f2c229e65f8ea3ab841dd166f4cbd8986298",
        "d9b1bcef8a68a24f6b0683656c1ed865dc7aa9fc21cb8d3c4f3320b0d27d5e07",
        "12d0d59dc907b30ab5d264104688eb2dacc3461e98cbda0142548ec6cbf6ab2a",
    ),
    "ct-ovn": (
        "47cbd95cc7ce9c31642424824953f2c229e65f8ea3ab841dd166f4cbd8986298",
        "d9b1bcef8a68a24f6b0683656c1ed865dc7aa9fc21cb8d3c4f3320b0d27d5e07",
        "77f211ec4a6e61d18de2bce4a7dc99d8cb7fd1ae44edd192d27471e1f3ed7cae",
    ),
}

PERF = """
Time: 03:53:40.657
Measurement duration: 2.267 s

pmd thread numa_id 0 core_id 1:

  Iterations:                18140  (122.71 us/it)
Histograms
   cycles/it              packets/it             cycles/pkt
   499       0            0         0            100       0
   716       7            1         0            1096      4091
   1025      1            2         0            2093      10712
   1469      0            3         0            3090      2307
   >         0            4         0            4086      305
-----------------------------------------------------------------
   cycles/it              packets/it             cycles/pkt
   319038                 32.00000               9969
"""


def frames_of(capture):
    return [capture[at + 16 : at + 76] for at in range(24, len(capture), 76)]


@pytest.mark.parametrize("name", PINNED)
def test_bytes(name):
    assert tuple(hashlib.sha256(content).hexdigest() for content in conversations.contents(name)) == PINNED[name]


def test_checksums():
    steps = conversations.WHOLE + conversations.DATA
    made = conversations.connections(300, conversations.TRANSLATED) + conversations.renumbered(300)
    for frame in conversations.in_order(steps, made):
        assert len(frame) == workload.FRAME_LEN
        (total_len,) = struct.unpack_from("!H", frame, 16)
        assert workload.internet_checksum(frame[14:34]) == 0
        segment = frame[34 : 14 + total_len]
        pseudo_header = frame[26:34] + struct.pack("!HH", 6, len(segment))
        assert workload.internet_checksum(pseudo_header + segment) == 0


def test_packets_of_a_connection_keep_their_distance_and_order():
    made = conversations.connections(1000)
    frames = list(conversations.in_order(conversations.HANDSHAKE, made))
    assert len(frames) == 3000
    at = {frame: i for i, frame in enumerate(frames)}
    for connection in made[:512]:
        first, second, third = (at[step.frame(connection)] for step in conversations.HANDSHAKE)
        assert second - first == third - second == conversations.CHUNK


def test_halves_and_files(tmp_path):
    made, halves = conversations.halves(1000, tmp_path)
    parts = [set(frames_of(path.read_bytes())) for path in halves]
    assert [len(part) for part in parts] == [1000, 1000] and not parts[0] & parts[1]
    assert len(frames_of(made.played.read_bytes())) == made.frames
    whole = conversations.short(512, tmp_path)
    assert (whole.frames, whole.handshakes) == (512 * 7, None)
    assert "output:5" in conversations.flood(512, tmp_path).flows.read_text()


def test_longest_round():
    assert connections.longest_cycles(PERF, "it") == 1025
    assert connections.longest_cycles(PERF.replace("cycles/it  ", "cycles/busy it"), "it") == 1025
    assert connections.longest_cycles(PERF.replace(">         0", ">         3"), "it") == 2938
    with pytest.raises(SystemExit):
        connections.longest_cycles("", "it")


def test_the_library_for_the_peer_builds(tmp_path):
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = ["cc", "-O2", *warnings, "-shared", "-fPIC", "-o", tmp_path / "play.so", TOP / "bench/play.c"]
    subprocess.run(command, check=True)


def test_tables_in_a_document(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- table: a -->\n\nbetween\n\n<!-- table: b -->\n\nafter\n")
    tables = [report.Table("a", ["x", "y"], [["1", None], ["2", 1234.5]]), report.Table("c", ["x"], [[1]])]
    found = report.Report(tables, {})
    for words in ("(first)", "(second)"):
        assert document.fill(page, found, words) == ["a"]
        expected = f"before\n\n<!-- table: a -->\n\n| x | y |\n|---|---|\n| 1 |  |\n| 2 | 1,234 |\n\n{words}\n\nbetween\n"
        assert page.read_text() == f"{expected}\n<!-- table: b -->\n\nafter\n"
