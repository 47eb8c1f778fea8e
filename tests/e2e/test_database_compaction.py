"""Compaction of a database in service: clients get replies while the new file is written, and no data is lost."""

import json
import os
import random
import shutil
import signal
import subprocess
import threading

import pytest

from databases import DatabaseServer
from switch import TOP
from test_crashes import Client
from test_database_faults import Watcher, Writer
from waiting import until

SCHEMA = TOP / "crates/ovsdb-server/tests/data/all.ovsschema"
KILLS = 6
TRIES = 30
WRITERS = 3


@pytest.fixture
def server(programs, peers, tmp_path_factory):
    made = DatabaseServer(programs, peers, tmp_path_factory.mktemp("db"), [SCHEMA])
    made.file = made.files[0]
    made.temporary = made.file.with_name(made.file.name + ".tmp")
    yield made
    made.stop()


def fill(client, rows, batch=1000):
    """Inserts rows of some hundred bytes each."""
    for start in range(0, rows, batch):
        inserts = [
            {"op": "insert", "table": "root", "row": {"s": f"{i} {'x' * 200}", "si": ["set", list(range(i % 20))]}}
            for i in range(start, start + batch)
        ]
        answer = client.call("transact", "A", *inserts)
        assert not any("error" in result for result in answer["result"]), answer


class Compaction:
    """A running compaction command."""

    def __init__(self, server):
        words = [server.peers / "ovs-appctl", "-t", server.directory / "ctl", "ovsdb-server/compact", "A"]
        self.process = subprocess.Popen(
            words, env=server.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def is_over(self):
        return self.process.poll() is not None

    def wait(self):
        """Its exit code and output."""
        out, err = self.process.communicate(timeout=90)
        return self.process.returncode, out + err


def begin(server):
    """Starts a compaction and returns while it writes its file."""
    compaction = Compaction(server)
    until(lambda: server.temporary.exists() or compaction.is_over(), "a new file", interval_s=0.001)
    return compaction


def stopped_while_compacting(server):
    """Whether the server is stopped now with an incomplete new file; otherwise it continues."""
    if not server.temporary.exists():
        return False
    server.process.send_signal(signal.SIGSTOP)
    found = os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert found.si_code == os.CLD_STOPPED, "the server ended"
    if server.temporary.exists():
        return True
    server.process.send_signal(signal.SIGCONT)
    return False


def inode(path):
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def test_clients_are_answered_while_the_new_file_is_written(server):
    server.start()
    client = Client(server.directory / "sock")
    fill(client, 8_000)
    # History, which compaction removes.
    client.call("transact", "A", {"op": "update", "table": "root", "where": [], "row": {"i": 7}})
    before = server.file.stat()
    names, during = [], 0
    # On a busy machine, the first compaction may end before a whole transaction.
    for _ in range(TRIES):
        old = inode(server.file)
        compaction = Compaction(server)
        while not compaction.is_over():
            written = inode(server.temporary)
            names.append(f"while compacting {len(names)}")
            insert = {"op": "insert", "table": "kid", "row": {"name": names[-1]}, "uuid-name": "kid"}
            keep = {"op": "insert", "table": "top", "row": {"name": names[-1], "kids": ["named-uuid", "kid"]}}
            operations = [insert, keep, *([{"op": "commit", "durable": True}] if len(names) % 3 == 0 else [])]
            answer = client.call("transact", "A", *operations)
            assert not any("error" in result for result in answer["result"]), answer
            during += written is not None and written == inode(server.temporary)
        assert compaction.wait() == (0, "")
        assert not server.temporary.exists() and inode(server.file) != old
        if during:
            break
    assert during > 0, "no transaction was sent and answered while the file was written"
    after = server.file.stat()
    assert after.st_size < before.st_size
    assert after.st_mode == before.st_mode
    contents = server.contents("A", ("root", "top", "kid"))
    assert sorted(row["name"] for row in contents["top"].values()) == sorted(names)
    # Open vSwitch reads the same contents: the first transaction is the state at the start of the compaction.
    copy = server.directory / "copy.db"
    shutil.copy(server.file, copy)
    select = json.dumps(["A", {"op": "select", "table": "root", "where": []}, {"op": "select", "table": "top", "where": []}])
    answer = json.loads(server.run("ovsdb-tool", "query", copy, select).out)
    assert [len(result["rows"]) for result in answer] == [8_000, len(names)]
    log = server.run("ovsdb-tool", "show-log", copy).out
    assert "compacting database online" in log
    server.kill()
    server.start()
    assert server.contents("A", ("root", "top", "kid")) == contents
    assert "recovered" not in server.log.read_text()


class Compactor(threading.Thread):
    """Compacts again and again until the server is gone."""

    def __init__(self, server):
        super().__init__()
        self.server = server
        self.done = 0
        self.wrong = None

    def run(self):
        while True:
            code, said = Compaction(self.server).wait()
            if code != 0:
                self.wrong = None if self.server.is_killed else said
                return
            self.done += 1


def test_kill_while_compacting_under_several_writers(server):
    """Acknowledged transactions survive a kill at any time, and no transaction is partial."""
    dice = random.Random(10)
    server.start()
    fill(Client(server.directory / "sock"), 4_000)
    acknowledged = set()
    first = 1
    for turn in range(KILLS):
        server.is_killed = False
        before = len(acknowledged)
        writers = [Writer(server, number, first, acknowledged) for number in range(WRITERS)]
        watcher, compactor = Watcher(server), Compactor(server)
        for thread in (*writers, watcher, compactor):
            thread.start()
        enough = before + dice.randrange(20, 300)
        until(lambda: len(acknowledged) >= enough or any(w.wrong for w in writers), "acknowledged transactions", interval_s=0.001)
        # Every other round kills during a compaction, the others at any time after one; that compaction also removed
        # the file that the round before may have left.
        until(lambda: compactor.done or compactor.wrong, "a compaction", interval_s=0.001)
        if turn % 2 == 0:
            until(lambda: compactor.wrong or stopped_while_compacting(server), "a new file", interval_s=0.0005)
        server.is_killed = True
        server.kill()
        for thread in (*writers, watcher, compactor):
            thread.join()
        assert not any(thread.wrong for thread in (*writers, compactor)), [t.wrong for t in (*writers, compactor)]
        assert turn % 2 or server.temporary.exists(), "what a killed process was writing is there"
        first = max(writer.next for writer in writers)
        server.start()
        contents = server.contents("A", ("top", "kid"))
        tops = {row["name"]: row["kids"] for row in contents["top"].values()}
        kids = {row["name"]: ["uuid", uuid] for uuid, row in contents["kid"].items()}
        assert tops == kids, "a transaction is there by half"
        told = acknowledged | watcher.seen
        assert told <= tops.keys(), f"lost: {sorted(told - tops.keys())}"
        acknowledged |= tops.keys()
    # The next compaction replaces a file left by a killed one, and leaves none.
    assert server.appctl("ovsdb-server/compact") == ""
    assert not server.temporary.exists()
    assert len(server.contents("A", ["root"])["root"]) == 4_000


def test_compaction_is_cancelled_or_queued(server):
    """A second compaction waits; a conversion, removing the database or ending the server cancels the running one at
    once."""
    server.start()
    fill(Client(server.directory / "sock"), 8_000)
    compactions = [begin(server), Compaction(server), Compaction(server)]
    assert [compaction.wait() for compaction in compactions] == [(0, "")] * 3
    assert not server.temporary.exists()
    assert server.log.read_text().count("A: compacted ") in (2, 3)

    compaction = begin(server)
    schema = json.loads(SCHEMA.read_text())
    schema["version"] = "99.0.0"
    converted = server.directory / "converted.ovsschema"
    converted.write_text(json.dumps(schema))
    server.run("ovsdb-client", "convert", server.remote, converted)
    assert compaction.wait() == (0, "")
    assert not server.temporary.exists()
    assert server.run("ovsdb-tool", "db-version", server.file).out == "99.0.0\n"
    assert len(server.contents("A", ["root"])["root"]) == 8_000

    compaction = begin(server)
    server.appctl("ovsdb-server/remove-db", "A")
    assert not server.temporary.exists()
    code, said = compaction.wait()
    assert code == 0 or "the database was removed" in said
    # The file is unlocked at once, also for other processes.
    server.run("ovsdb-tool", "compact", server.file)
    server.appctl("ovsdb-server/add-db", server.file)
    assert len(server.contents("A", ["root"])["root"]) == 8_000

    compaction = begin(server)
    process = server.process
    server.kill(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
    compaction.wait()
    assert not server.temporary.exists()
    server.start()
    assert len(server.contents("A", ["root"])["root"]) == 8_000
