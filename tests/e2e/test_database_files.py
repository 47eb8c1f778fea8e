"""Files and programs of both makers: the servers and tools of each read the files of the other, and the server of
each gives the same replies to the programs of both.
"""

import json
import re
from pathlib import Path

import pytest

from databases import DatabaseServer
from switch import SCHEMA, run

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def of(kind, least=0, most="unlimited", value=None):
    return {"type": {"key": kind, "min": least, "max": most, **({"value": value} if value else {})}}


ANIMALS = {
    "name": "Zoo",
    "version": "1.0.0",
    "tables": {
        "Cage": {
            "isRoot": True,
            "columns": {
                "name": {"type": "string"},
                "animals": of({"type": "uuid", "refTable": "Animal"}),
                "favourite": of({"type": "uuid", "refTable": "Animal", "refType": "weak"}, most=1),
                "numbers": of("integer"),
                "notes": of("string", value="string"),
                "open": of("boolean", most=1),
            },
            "indexes": [["name"]],
        },
        "Animal": {
            "columns": {
                "name": {"type": "string"},
                "weight": {"type": "real"},
                "meals": of("string", value="real"),
                "stranger": of("uuid", most=1),
                "kind": of({"type": "string", "enum": ["set", ["cat", "dog"]]}, most=1),
            }
        },
    },
}
TABLES = list(ANIMALS["tables"])
# Values that exercise the encoding of strings.
NAMES = ["plain", 'quoted "\\" \n\t', "naïve ☃ 𝄞", "", "x" * 5000]


def fill(server, turn):
    """Transactions with all kinds of change."""
    name = f"cage {turn}"
    animals = [
        {
            "op": "insert",
            "table": "Animal",
            "uuid-name": f"a{i}",
            "row": {
                "name": text,
                "weight": [0, -1.5, 1e300, 1e-7, 123456789.125][i],
                "meals": ["map", [[text, i / 8], ["never", 0]]],
                "stranger": ["set", [["uuid", f"00000000-0000-4000-8000-00000000000{i}"]]],
                "kind": ["set", ["cat"] if i % 2 else []],
            },
        }
        for i, text in enumerate(NAMES)
    ]
    row = {
        "name": name,
        "animals": ["set", [["named-uuid", f"a{i}"] for i in range(len(NAMES))]],
        "favourite": ["named-uuid", "a0"],
        "numbers": ["set", [turn, -(2**63), 2**63 - 1]],
        "notes": ["map", [["turn", str(turn)]]],
        "open": ["set", [turn % 2 == 0]],
    }
    comment = {"op": "comment", "comment": f"turn {turn}"}
    server.transact("Zoo", *animals, {"op": "insert", "table": "Cage", "row": row}, comment)
    this = [["name", "==", name]]
    server.transact(
        "Zoo",
        {"op": "mutate", "table": "Cage", "where": this, "mutations": [["numbers", "delete", turn], ["notes", "insert", ["map", [["more", "é"]]]]]},
        {"op": "update", "table": "Animal", "where": [["name", "==", "plain"]], "row": {"weight": turn + 0.25}},
    )
    # Rows in no cage are collected, and weak references to them removed.
    server.transact("Zoo", {"op": "mutate", "table": "Cage", "where": this, "mutations": [["animals", "delete", ["set", [favourite(server, name)]]]]})
    if turn:
        server.transact("Zoo", {"op": "delete", "table": "Cage", "where": [["name", "==", f"cage {turn - 1}"]]}, {"op": "commit", "durable": True})


def favourite(server, name):
    [result] = server.transact("Zoo", {"op": "select", "table": "Cage", "where": [["name", "==", name]], "columns": ["favourite"]})
    return result["rows"][0]["favourite"]


@pytest.mark.parametrize("first", ["ours", "peers"])
def test_a_file_goes_back_and_forth(programs, peers, tmp_path, first):
    makers = {"ours": programs, "peers": peers}
    second = "peers" if first == "ours" else "ours"
    schema = tmp_path / "zoo.ovsschema"
    schema.write_text(json.dumps(ANIMALS))
    file, expected = None, {table: {} for table in TABLES}
    for turn, maker in enumerate([first, second] * 3):
        directory = tmp_path / str(turn)
        directory.mkdir()
        server = DatabaseServer(makers[maker], peers, directory, [schema] if file is None else [])
        file = file or server.files[0]
        server.files = [file]
        server.start()
        try:
            assert server.contents("Zoo", TABLES) == expected, f"{maker} in turn {turn}"
            fill(server, turn)
            if turn in (2, 3):
                server.appctl("ovsdb-server/compact")
                fill(server, turn + 10)
            expected = server.contents("Zoo", TABLES)
        finally:
            server.stop()
        tell = [
            [run([makers[who] / "ovsdb-tool", *words, file, *more], env=server.environment).out for who in makers]
            for words, more in [
                (["show-log"], []),
                (["-mm", "show-log"], []),
                (["db-name"], []),
                (["db-version"], []),
                (["db-cksum"], []),
                (["query"], [json.dumps(["Zoo", {"op": "select", "table": "Cage", "where": [["name", "==", f"cage {turn}"]], "columns": ["name", "numbers", "notes", "open"]}])]),
            ]
        ]
        for ours, theirs in tell:
            # (The programs order columns and rows differently.)
            assert sorted(ours.splitlines()) == sorted(theirs.splitlines()), f"{maker} in turn {turn}"
        if turn == 3:
            # As after a power loss in the middle of a record.
            with open(file, "ab") as log:
                log.write(b"OVSDB JSON 57 0123456789abcdef0123456789abcdef01234567\n{")


def answers(tools, server, vsctl):
    """The output of the programs about a database, without legitimate differences."""
    remote, folder = server.remote, server.directory
    client = lambda *words, **options: run([tools / "ovsdb-client", "--timeout=30", *words], env=server.environment, **options)
    dump = lambda *words: client("-f", "csv", "dump", remote, *words)
    said = [vsctl(*words) for words in [
        ["init"],
        ["--", "add-br", "br0", "--", "add-port", "br0", "p1", "tag=5", "--", "set", "interface", "p1", "type=internal"],
        ["--may-exist", "add-br", "br0"],
        ["add-br", "br0"],
        ["show"],
        ["list-ports", "br0"],
        ["--columns=name,tag", "list", "port", "p1"],
        ["-f", "json", "--columns=name,fail_mode", "find", "bridge", "name=br0"],
        ["set", "bridge", "br0", "fail_mode=nonsense"],
        ["get", "port", "p1", "tag"],
    ]]
    said += [client(*words, check=False) for words in [
        ["list-dbs", remote],
        ["get-schema", remote, "Open_vSwitch"],
        ["get-schema-version", remote, "Open_vSwitch"],
        ["get-schema-cksum", remote, "Open_vSwitch"],
        ["list-tables", remote, "Open_vSwitch"],
        ["list-columns", remote, "Open_vSwitch", "Bridge"],
        ["needs-conversion", remote, SCHEMA],
        ["transact", remote, '["Open_vSwitch",{"op":"select","table":"Port","where":[["name","==","p1"]],"columns":["tag","trunks"]}]'],
        ["transact", remote, '["Open_vSwitch",{"op":"select","table":"Nosuch","where":[]}]'],
        ["-vreconnect:off", "wait", remote, "Open_vSwitch", "connected"],
        ["get-schema", remote, "nosuch"],
    ]]
    said += [dump("Open_vSwitch", "Port", "name", "tag"), dump("Open_vSwitch", "Interface", "name", "type")]
    backup = client("backup", remote, "Open_vSwitch").out
    (folder / "backup").write_text(backup)
    said.append(vsctl("del-br", "br0"))
    said.append(vsctl("list-br"))
    said.append(client("restore", remote, "Open_vSwitch", stdin=open(folder / "backup")))
    said += [vsctl("list-br"), vsctl("list-ports", "br0"), dump("Open_vSwitch", "Interface", "name", "type")]
    # Rows are ordered by their UUIDs, which are random.
    lines = lambda text: sorted(UUID.sub("UUID", text).splitlines())
    return [(lines(output.out), lines(output.err), output.code) for output in said]


def test_programs_of_both_ask_servers_of_both(programs, peers, tmp_path):
    makers = {"ours": Path(programs), "peers": Path(peers)}
    heard = {}
    for asked, serving in makers.items():
        for asking, tools in makers.items():
            directory = tmp_path / f"{asked}-{asking}"
            directory.mkdir()
            server = DatabaseServer(serving, peers, directory, [SCHEMA])
            server.start()
            try:
                vsctl = lambda *words: run(
                    [tools / "ovs-vsctl", "--timeout=30", "--no-wait", f"--db={server.remote}", *words], env=server.environment, check=False
                )
                heard[asked, asking] = answers(tools, server, vsctl)
            finally:
                server.stop()
    expected = heard["peers", "peers"]
    for who, got in heard.items():
        for at, (one, other) in enumerate(zip(got, expected)):
            assert one == other, f"{who}, answer {at}"
        assert len(got) == len(expected)
