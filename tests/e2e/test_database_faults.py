"""Database servers under kill -9, on a full disk, and with misbehaving clients."""

import json
import random
import socket
import subprocess
import threading

import pytest

from databases import DatabaseServer
from switch import TOP, run
from test_bad_input import Connection
from test_crashes import Client
from waiting import until

SCHEMA = TOP / "crates/ovsdb-server/tests/data/all.ovsschema"
ROUNDS = 8
WRITERS = 4


@pytest.fixture
def server(programs, peers, tmp_path_factory):
    made = DatabaseServer(programs, peers, tmp_path_factory.mktemp("db"), [SCHEMA])
    yield made
    made.stop()


class Writer(threading.Thread):
    """Inserts pairs of rows, a parent and its child, until the server is gone."""

    def __init__(self, server, number, first, acknowledged):
        super().__init__()
        self.client = Client(server.directory / "sock")
        self.number = number
        self.next = first
        self.acknowledged = acknowledged
        self.wrong = None

    def run(self):
        while True:
            name = f"{self.number}.{self.next}"
            self.next += 1
            answer = self.client.call(
                "transact",
                "A",
                {"op": "insert", "table": "kid", "row": {"name": name}, "uuid-name": "kid"},
                {"op": "insert", "table": "top", "row": {"name": name, "kids": ["named-uuid", "kid"]}},
            )
            if answer is None:
                return
            if answer["error"] or any("error" in result for result in answer["result"]):
                self.wrong = answer
                return
            self.acknowledged.add(name)


class Watcher(threading.Thread):
    """Monitors the parents until the server is gone."""

    def __init__(self, server):
        super().__init__()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(server.directory / "sock"))
        request = {"method": "monitor", "params": ["A", None, {"top": {"columns": ["name"]}}], "id": 0}
        self.socket.sendall(json.dumps(request).encode())
        self.seen = set()

    def run(self):
        buffer = ""
        while True:
            try:
                data = self.socket.recv(1 << 20)
            except OSError:
                return
            if not data:
                return
            buffer += data.decode()
            while buffer:
                try:
                    message, end = json.JSONDecoder().raw_decode(buffer)
                except json.JSONDecodeError:
                    break
                buffer = buffer[end:]
                updates = message["params"][1] if "method" in message else message["result"]
                self.seen |= {update["new"]["name"] for update in updates.get("top", {}).values()}


def test_kill_under_several_writers(server):
    """Everything reported to a client by a reply or monitor survives, and no transaction is partial."""
    dice = random.Random(9)
    acknowledged = set()
    first = 1
    for _ in range(ROUNDS):
        server.start()
        before = len(acknowledged)
        writers = [Writer(server, number, first, acknowledged) for number in range(WRITERS)]
        watcher = Watcher(server)
        for thread in (*writers, watcher):
            thread.start()
        enough = before + dice.randrange(1, 60)
        until(lambda: len(acknowledged) >= enough or any(w.wrong for w in writers), "acknowledged transactions", interval_s=0.001)
        server.kill()
        for thread in (*writers, watcher):
            thread.join()
        assert not any(writer.wrong for writer in writers), [writer.wrong for writer in writers]
        first = max(writer.next for writer in writers)
        server.start()
        contents = server.contents("A", ("top", "kid"))
        tops = {row["name"]: row["kids"] for row in contents["top"].values()}
        kids = {row["name"]: ["uuid", uuid] for uuid, row in contents["kid"].items()}
        assert tops == kids, "a transaction is there by half"
        told = acknowledged | watcher.seen
        assert told <= tops.keys(), f"lost: {sorted(told - tops.keys())}"
        # All other rows were sent, and each writer had one transaction in flight in each round.
        assert len(tops) == len(contents["top"]) <= len(acknowledged) + ROUNDS * WRITERS
        acknowledged |= tops.keys()
        server.kill()


class SmallDiskServer(DatabaseServer):
    """A server whose files are on a small file system in a mount namespace of its own."""

    SIZE = "1m"

    def __init__(self, programs, peers, directory):
        super().__init__(programs, peers, directory, [])
        self.disk = self.directory / "disk"
        self.disk.mkdir()

    def start(self, *words):
        # The shell holds the namespace, so that the file system outlives a server in it.
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o size={self.SIZE} tmpfs '{self.disk}' && echo ready && exec sleep infinity"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.holder.stdout.readline() == "ready\n"
        self.inside(self.programs / "ovsdb-tool", "create", self.disk / "a.db", SCHEMA)
        self.again()

    def again(self):
        words = [self.programs / "ovsdb-server", self.disk / "a.db", f"--remote=p{self.remote}", "--unixctl", self.directory / "ctl", f"--log-file={self.log}", "-vconsole:off"]
        self.process = subprocess.Popen(
            ["nsenter", "--mount", "--target", str(self.holder.pid), *map(str, words)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
        )
        until(self._answers, lambda: f"a server that answers: {self.log.read_text(errors='replace')}")

    def inside(self, *words):
        return run(["nsenter", "--mount", "--target", self.holder.pid, *words], env=self.environment)

    def stop(self):
        super().stop()
        self.holder.kill()
        self.holder.wait()


def test_full_disk(programs, peers, tmp_path_factory):
    server = SmallDiskServer(programs, peers, tmp_path_factory.mktemp("db"))
    try:
        server.start()
        insert = {"op": "insert", "table": "root", "row": {"s": "x" * 20_000}}
        written = 0
        while "error" not in (results := server.transact("A", insert))[-1]:
            written += 1
        assert 10 < written < 60
        assert results[-1]["error"] == "I/O error" and "No space left" in results[-1]["io-error"], results[-1]
        # Reading continues, the transaction has no effect, and small ones may still fit.
        assert len(server.contents("A", ["root"])["root"]) == written
        assert server.transact("A", {"op": "insert", "table": "root", "row": {"s": "y" * 60_000}})[-1]["error"] == "I/O error"
        assert len(server.contents("A", ["root"])["root"]) == written
        # A compaction finds no space either and leaves the file as it was.
        compacted = server.run("ovs-appctl", "-t", server.directory / "ctl", "ovsdb-server/compact", check=False)
        assert compacted.code != 0 and "No space left" in compacted.err, compacted
        assert len(server.contents("A", ["root"])["root"]) == written
        # With space again, the server continues.
        server.inside("mount", "-o", "remount,size=4m", server.disk)
        assert "error" not in server.transact("A", insert)[-1]
        assert server.appctl("ovsdb-server/compact") == ""
        before = server.contents("A", ["root"])
        assert len(before["root"]) == written + 1
        server.kill()
        server.again()
        assert server.contents("A", ["root"]) == before
        assert "recovered" not in server.log.read_text()
    finally:
        server.stop()


def count(server, name):
    """An event counter; 0 if it does not exist yet."""
    done = server.run("ovs-appctl", "-t", server.directory / "ctl", "coverage/read-counter", name, check=False)
    return int(done.out) if done.code == 0 else 0


def test_a_client_that_does_not_read_is_disconnected_and_counted(server):
    server.start()
    lazy = Connection(server.directory / "sock")
    lazy.send(json.dumps({"method": "monitor", "params": ["A", None, {"root": {"columns": ["s"]}}], "id": 0}).encode())
    assert lazy.exactly(1) == b"{"
    writer = Client(server.directory / "sock")
    assert count(server, "ovsdb_backlog_disconnect") == 0
    # The limit is 64 MiB.
    row = {"op": "insert", "table": "root", "row": {"s": "x" * (1 << 22)}, "uuid-name": "row"}
    delete = {"op": "delete", "table": "root", "where": [["_uuid", "==", ["named-uuid", "row"]]]}
    for _ in range(40):
        answer = writer.call("transact", "A", row)
        assert not any("error" in result for result in answer["result"]), answer
        delete["where"][0][2] = answer["result"][0]["uuid"]
        writer.call("transact", "A", delete)
        if count(server, "ovsdb_backlog_disconnect") == 1:
            break
    assert count(server, "ovsdb_backlog_disconnect") == 1
    assert "sending backlog exceeded maximum size" in server.log.read_text()
    assert lazy.is_ended()
    assert writer.call("echo", 1)["result"] == [1]


@pytest.mark.parametrize(
    "garbage",
    [
        b'{"method": "transact", "params": ["A", ' + b"[" * 1000 + b"]" * 1000 + b'], "id": 1}',
        b"[" * (1 << 20),
        b'{"a":' * (1 << 18),
        b'{"method": "echo", "params": ["\\ud800"], "id": 1}',
        b'{"method": "echo", "params": ["\xff"], "id": 1}',
        b'{"method": "echo", "params": [01], "id": 1}',
        b'{"method": "echo", "params": [1,], "id": 1}',
        b'{"method": "echo", "params": "x", "id": 1}',
        b'{"method": "echo", "params": [], "id": 1, "more": 1}',
        b'{"method": "echo", "params": [], "id": 1}}',
        b"\0" * 4096,
        random.Random(7).randbytes(1 << 16),
    ],
    ids=["deep", "brackets", "braces", "surrogate", "not UTF-8", "number", "comma", "params", "member", "brace", "zeros", "random"],
)
def test_bad_messages_end_their_connection_only(server, garbage):
    server.start()
    other = Client(server.directory / "sock")
    before = count(server, "ovsdb_bad_message")
    bad = Connection(server.directory / "sock")
    bad.send(garbage)
    assert bad.is_ended(), "the server closes it"
    assert count(server, "ovsdb_bad_message") == before + 1
    assert other.call("echo", "there")["result"] == ["there"]


def test_a_large_valid_message_is_accepted(server):
    """A large valid message is executed, or refused with an error, and its connection stays open."""
    server.start()
    client = Client(server.directory / "sock")
    numbers = ["set", list(range(300_000))]
    answer = client.call("transact", "A", {"op": "insert", "table": "root", "row": {"si": numbers, "s": "x" * (8 << 20)}})
    assert "uuid" in answer["result"][0]
    answer = client.call("transact", "A", *[{"op": "comment", "comment": ""}] * 100_000)
    assert answer["result"] == [{}] * 100_000
    answer = client.call("transact", "A", {"op": "none " * (1 << 20)})
    assert answer["result"][0]["error"] == "syntax error"
    assert client.call("echo", 1)["result"] == [1]
