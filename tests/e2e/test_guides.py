"""The guides under docs/guides: their commands run as a reader would paste them, and print what the guides show."""

import os

import pytest

import guides
from switch import TOP

GUIDES = sorted((TOP / "docs/guides").glob("*.md"))


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_guide(making, tmp_path, path):
    switch = making.switch(start="kernel")
    environment = dict(switch.environment, PATH=f"{switch.programs}:{os.environ['PATH']}")
    problems = guides.run(path.read_text(), tmp_path, switch.namespace, environment)
    assert not problems, "\n".join(problems)


def test_guides_are_there():
    assert {path.stem for path in GUIDES} >= {"nat-gateway", "overlay", "stateful-firewall"}


def test_steps_have_commands_and_outputs():
    text = "# A\n\n```sh\necho 1\necho 2\n```\n\nprints\n\n```text\n1\n2\n```\n\n```sh\ntrue\n```\n```console\n$ x\n```\n"
    assert guides.steps(text) == [guides.Step(3, "echo 1\necho 2", "1\n2"), guides.Step(15, "true")]
    for wrong in ("```text\n1\n```\n", "```sh\ntrue\n"):
        with pytest.raises(AssertionError):
            guides.steps(wrong)


@pytest.mark.parametrize(
    "expected, printed, is_same",
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc\n", False),
        ("a", "a\nb\n", False),
        ("...\nb", "a\na\nb\n", True),
        ("a\n...\nb\n...", "a\nb\nc\n", True),
        ("a\n...\nb", "a\nc\n", False),
        ("a...c", "abc\n", True),
        ("a...c", "a\nc\n", False),
        ("n_packets=3, tp_dst=80", "n_packets=4, tp_dst=80\n", True),
        ("n_packets=3, tp_dst=80", "n_packets=3, tp_dst=81\n", False),
        ("sport=40000,dport=80", "sport=32768,dport=80\n", True),
        ("sport=4000,dport=80", "sport=32768,dport=80\n", False),
        ("recirc(0x1)", "recirc(0x2a)\n", True),
        ("recirc_id=0x1,zone=1", "recirc_id=0x2,zone=2\n", False),
        ("timeout=4", "timeout=30\n", True),
        ("zone=7,id=5", "zone=7,id=77\n", True),
    ],
)
def test_outputs_agree(expected, printed, is_same):
    assert guides.agrees(expected, printed) == is_same


def test_a_failed_command_and_another_output_are_reported(making, tmp_path):
    switch = making.switch(start=False)
    text = "```sh\necho 1\n```\n```text\n2\n```\n```sh\nfalse\n```\n```sh\necho never\n```\n"
    problems = guides.run(text, tmp_path, switch.namespace, switch.environment)
    assert [problem.split(":")[0] for problem in problems] == ["line 1", "line 7"]
