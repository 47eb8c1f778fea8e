"""Databases copied from other servers: backups and relays of our and Debian's servers."""

import json
import os
import signal
import subprocess

import pytest

from switch import run
from waiting import until
from wire import Wire

SCHEMA = {
    "name": "T",
    "version": "1.0.0",
    "tables": {
        "a": {
            "isRoot": True,
            "columns": {
                "name": {"type": "string"},
                "n": {"type": "integer"},
                "m": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
                "to": {"type": {"key": {"type": "uuid", "refTable": "b"}, "min": 0, "max": "unlimited"}},
            },
        },
        "b": {"columns": {"name": {"type": "string"}}},
        "c": {"isRoot": True, "columns": {"name": {"type": "string"}}},
    },
}


class Server:
    """One ovsdb-server process."""

    def __init__(self, servers, name, maker):
        self.servers, self.name, self.maker = servers, name, maker
        self.directory = servers.directory
        self.socket = self.directory / f"{name}.sock"
        self.pid = None

    @property
    def remote(self):
        return f"unix:{self.socket}"

    def create(self, schema=None):
        path = self.directory / f"{self.name}.schema"
        path.write_text(json.dumps(schema or SCHEMA))
        run([self.servers.peers / "ovsdb-tool", "create", self.directory / f"{self.name}.db", path])
        return self

    def start(self, *words, database=None):
        """Starts it in the background, with its own file unless another database is given."""
        database = database or self.directory / f"{self.name}.db"
        return self.launch(database, f"--remote=punix:{self.socket}", *words)

    def launch(self, *words):
        """Starts it with these arguments and those for its own files."""
        path = self.directory / self.name
        words = [
            self.maker / "ovsdb-server",
            f"--unixctl={path}.ctl",
            f"--pidfile={path}.pid",
            f"--log-file={path}.log",
            "-vconsole:off",
            "--no-chdir",
            "--detach",
            *words,
        ]
        with open(f"{path}.err", "w") as errors:
            done = subprocess.run(
                [str(word) for word in words],
                env=self.servers.environment,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                timeout=60,
                check=False,
            )
        assert done.returncode == 0, open(f"{path}.err").read()
        self.pid = int(open(f"{path}.pid").read())
        return self

    def relay(self, *sources):
        return self.start(database="relay:T:" + ",".join(sources))

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        until(lambda: not lives(self.pid), "the end of the server")
        self.pid = None

    def appctl(self, command, *words, check=True):
        words = [self.servers.peers / "ovs-appctl", "-t", self.directory / f"{self.name}.ctl", command, *words]
        return run(words, check=check, env=self.servers.environment)

    def client(self, *words, check=True):
        return run([self.servers.peers / "ovsdb-client", *words], check=check, env=self.servers.environment)

    def transact(self, *operations, database="T", check=True):
        """Runs a transaction and returns its results; without `check`, None if the client failed."""
        words = ["--timeout=60", "transact", self.remote, json.dumps([database, *operations])]
        output = self.client(*words, check=check)
        return json.loads(output.out) if output.code == 0 else None

    def insert(self, name, table="a"):
        return self.transact({"op": "insert", "table": table, "row": {"name": name}})

    def state(self):
        """The contents without row versions; None if they are unavailable."""
        output = self.client("--timeout=10", "dump", "--format=json", "--data=json", self.remote, "T", check=False)
        return output.out if output.code == 0 else None

    def names(self, table="a"):
        rows = self.transact({"op": "select", "table": table, "where": [], "columns": ["name"]})[0]["rows"]
        return sorted(row["name"] for row in rows)

    def described(self):
        """The row of `_Server` for the database; None if the server closed the connection.

        A server disconnects clients that are not aware of database changes when a database is added, and when a
        relay receives its schema: a client that connects at that moment fails ("Broken pipe").
        """
        columns = ["model", "connected", "leader", "schema"]
        select = {"op": "select", "table": "Database", "where": [["name", "==", "T"]], "columns": columns}
        results = self.transact(select, database="_Server", check=False)
        if results is None:
            return None
        [row] = results[0]["rows"]
        return row["model"], row["connected"], row["leader"], isinstance(row["schema"], str)

    def status(self):
        return self.appctl("ovsdb-server/sync-status").out

    def replicates(self):
        return until(lambda: "replicating" in self.status(), self.status)

    def log(self):
        return (self.directory / f"{self.name}.log").read_text()


def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


class Servers:
    def __init__(self, directory, programs, peers):
        self.directory, self.programs, self.peers = directory, programs, peers
        self.environment = {**os.environ, "OVS_RUNDIR": str(directory), "OVS_LOGDIR": str(directory)}
        self.made = []
        self.wires = []

    def ours(self, name):
        return self._add(name, self.programs)

    def theirs(self, name):
        return self._add(name, self.peers)

    def _add(self, name, maker):
        self.made.append(Server(self, name, maker))
        return self.made[-1]

    def wire(self, server):
        self.wires.append(Wire(server.socket))
        return self.wires[-1]

    def end(self):
        wrong = []
        for server in self.made:
            if server.pid is None:
                continue
            if not lives(server.pid):
                wrong.append(f"{server.name} died")
                continue
            os.kill(server.pid, signal.SIGTERM)
            until(lambda pid=server.pid: not lives(pid), "the end of a server")
            wrong += [line for line in server.log().splitlines() if "panicked" in line or "|EMER|" in line]
        assert not wrong, "\n".join(wrong)


@pytest.fixture
def servers(tmp_path, programs, peers):
    made = Servers(tmp_path, programs, peers)
    yield made
    made.end()


def same(one, other):
    until(lambda: one.state() is not None and one.state() == other.state(), lambda: f"{one.state()}\n{other.state()}")


def connected(relay):
    until(lambda: relay.described() == ("relay", True, False, True), lambda: str(relay.described()))


def fill(server):
    """Inserts some rows with references and maps."""
    server.transact(
        {"op": "insert", "table": "b", "uuid-name": "x", "row": {"name": "b"}},
        {"op": "insert", "table": "a", "row": {"name": "a", "n": 1, "to": ["named-uuid", "x"]}},
        {"op": "comment", "comment": "first"},
    )
    server.transact({"op": "mutate", "table": "a", "where": [], "mutations": [["m", "insert", ["map", [["k", "v"]]]]]})


MAKERS = [("ours", "theirs"), ("theirs", "ours"), ("ours", "ours")]


@pytest.mark.parametrize("backup_of,active_of", MAKERS)
def test_a_backup_follows_and_takes_over(servers, backup_of, active_of):
    active = getattr(servers, active_of)("active").create().start()
    fill(active)
    backup = getattr(servers, backup_of)("backup").create().start(f"--sync-from={active.remote}")
    backup.replicates()
    assert backup.status() == f"database: T\nstate: backup\nreplicating: {active.remote}\n\n"
    same(backup, active)
    active.insert("more")
    active.transact({"op": "delete", "table": "a", "where": [["name", "==", "a"]]})
    same(backup, active)
    assert active.names("b") == []
    # Clients of the backup may only read.
    refused = backup.insert("no")
    assert refused == [
        {"error": "not allowed", "details": "insert operation not allowed when database server is in read only mode"}
    ]
    # The active server dies; the backup is made active, and the other server returns as its backup.
    active.kill()
    if backup_of == "ours":
        until(lambda: "connecting" in backup.status(), backup.status)
    assert backup.names() == ["more"]
    backup.appctl("ovsdb-server/disconnect-active-ovsdb-server")
    assert backup.status() == "database: T\nstate: active\n\n"
    backup.insert("after")
    active.start(f"--sync-from={backup.remote}")
    active.replicates()
    same(active, backup)
    assert active.names() == ["after", "more"]


@pytest.mark.parametrize("backup_of,active_of", MAKERS)
def test_tables_that_are_not_copied(servers, backup_of, active_of):
    active = getattr(servers, active_of)("active").create().start()
    fill(active)
    active.insert("theirs", "c")
    backup = getattr(servers, backup_of)("backup").create()
    backup.start(f"--sync-from={active.remote}", "--sync-exclude-tables=T:c", "--active")
    assert backup.status() == "database: T\nstate: active\n\n"
    assert backup.appctl("ovsdb-server/get-active-ovsdb-server").out.strip() == active.remote
    assert backup.appctl("ovsdb-server/get-sync-exclude-tables").out.strip() == "T:c"
    backup.insert("ours", "c")
    backup.appctl("ovsdb-server/connect-active-ovsdb-server")
    backup.replicates()
    assert backup.status() == f"database: T\nstate: backup\nreplicating: {active.remote}\nexclude: T:c\n"
    until(lambda: backup.names() == ["a"], "the contents")
    assert backup.names("c") == ["ours"]
    backup.appctl("ovsdb-server/set-sync-exclude-tables", "")
    until(lambda: backup.names("c") == ["theirs"], "the whole contents")


def test_a_backup_keeps_its_copy(servers):
    """The file contains the copy, and the link may be cut and the server killed at any time."""
    active = servers.theirs("active").create().start()
    wire = servers.wire(active)
    backup = servers.ours("backup").create().start(f"--sync-from={wire.remote}")
    fill(active)
    same(backup, active)
    wire.cut()
    until(lambda: "connecting" in backup.status(), backup.status)
    active.insert("while cut")
    assert backup.names() == ["a"]
    wire.mend()
    same(backup, active)
    backup.kill()
    assert "while cut" in run([servers.peers / "ovsdb-tool", "show-log", "-m", backup.directory / "backup.db"]).out
    backup.start()
    same(backup, active)


def test_databases_that_cannot_be_copied(servers):
    schema = {**SCHEMA, "tables": {**SCHEMA["tables"], "d": {"columns": {"x": {"type": "string"}}}}}
    other = servers.theirs("other").create(schema).start()
    backup = servers.ours("backup").create().start(f"--sync-from={other.remote}")
    # It goes on as a database of its own.
    until(lambda: backup.status().rstrip("\n") == "database: T\nstate: active", backup.status)
    assert "replication|INFO|Table d not present in the local db schema" in backup.log()
    assert "replication|INFO|T cannot be replicated." in backup.log()
    backup.appctl("ovsdb-server/set-active-ovsdb-server", backup.remote)
    backup.appctl("ovsdb-server/connect-active-ovsdb-server")
    until(lambda: "Self replicating is not allowed" in backup.status(), backup.status)
    assert "Self replicating is not allowed" in backup.log()
    # It stays read-only, instead of becoming a second active server by itself.
    assert "read only mode" in str(backup.insert("no"))


def test_commands_agree_with_debians(servers):
    """The control commands of both servers, in sequence, have the same output."""
    active = servers.theirs("active").create().start()
    pair = [servers.ours("ours").create().start(), servers.theirs("theirs").create().start()]
    commands = [
        ("sync-status",),
        ("get-active-ovsdb-server",),
        ("set-active-ovsdb-server", active.remote),
        ("get-active-ovsdb-server",),
        ("set-sync-exclude-tables", "T:b,T:c"),
        ("get-sync-exclude-tables",),
        ("set-active-ovsdb-server-probe-interval", "5000"),
        ("connect-active-ovsdb-server",),
        ("sync-status",),
        ("disconnect-active-ovsdb-server",),
        ("sync-status",),
        ("set-active-ovsdb-server",),
    ]
    for command, *words in commands:
        told = []
        for server in pair:
            if command == "sync-status" and sync_state(server):
                server.replicates()
            output = server.appctl(f"ovsdb-server/{command}", *words, check=False)
            told.append((output.code, output.out.strip(), output.err.splitlines()[:1]))
        assert told[0] == told[1], (command, words)


def test_a_backup_without_an_active_server(servers):
    server = servers.ours("server").create().start()
    output = server.appctl("ovsdb-server/connect-active-ovsdb-server", check=False)
    assert output.code == 0 and output.out == "Unable to connect: active server is not specified.\n"
    assert server.status() == "state: active\n"


def sync_state(server):
    return "backup" in server.status()


@pytest.mark.parametrize("relay_of,source_of", MAKERS)
def test_a_relay_forwards(servers, relay_of, source_of):
    source = getattr(servers, source_of)("source").create().start()
    fill(source)
    relay = getattr(servers, relay_of)("relay").relay(source.remote)
    connected(relay)
    same(relay, source)
    # The source executes a transaction of the relay, and the relay shows its effect when the reply arrives.
    [inserted, comment] = relay.transact(
        {"op": "insert", "table": "a", "row": {"name": "forwarded"}}, {"op": "comment", "comment": "by relay"}
    )
    assert inserted["uuid"] and comment == {}
    assert relay.names() == ["a", "forwarded"]
    same(relay, source)
    # Errors are those of the source.
    bad = {"op": "insert", "table": "a", "row": {"n": "x"}}
    assert relay.transact(bad) == source.transact(bad)
    wait = {"op": "wait", "table": "c", "where": [], "columns": ["name"], "until": "==", "rows": [{"name": "x"}]}
    timed_out = relay.transact({**wait, "timeout": 100}, {"op": "insert", "table": "c", "row": {}})
    assert timed_out[0]["error"] == "timed out" and timed_out[1] is None


def test_a_chain_of_relays(servers):
    source = servers.theirs("source").create().start()
    first = servers.ours("first").relay(source.remote)
    second = servers.ours("second").relay(first.remote)
    third = servers.theirs("third").relay(second.remote)
    for relay in (first, second, third):
        connected(relay)
    fill(third)
    for relay in (first, second, third):
        same(relay, source)
    assert source.names() == ["a"]
    # The last relays are informed that the first has lost the source, and serve their copies.
    source.kill()
    until(lambda: not second.described()[1], "the loss of the source")
    assert second.names() == ["a"]
    source.start()
    for relay in (first, second, third):
        connected(relay)
    third.insert("again")
    same(second, source)


def test_a_relay_fails_over_to_another_source(servers):
    source = servers.ours("source").create().start()
    wire, other = servers.wire(source), servers.wire(source)
    other.cut()
    relay = servers.ours("relay").relay(wire.remote, other.remote)
    connected(relay)
    relay.insert("one")
    other.mend()
    wire.cut()
    source.insert("two")
    same(relay, source)
    connected(relay)
    relay.insert("three")
    assert source.names() == ["one", "three", "two"]
    # Commands add and remove relays at run time.
    relay.appctl("ovsdb-server/set-relay-source-probe-interval", "5000")
    relay.appctl("ovsdb-server/remove-db", "T")
    assert relay.appctl("ovsdb-server/list-dbs").out.split() == ["_Server"]
    relay.appctl("ovsdb-server/add-db", f"relay:T:{other.remote}")
    connected(relay)
    same(relay, source)


def test_bad_command_lines(servers):
    server = servers.ours("server").create()
    words = [servers.programs / "ovsdb-server", "server.db"]
    expected = {
        "relay:T": "I/O error: relay:T: open failed (No such file or directory)",
        "relay:_Server:unix:x": 'ovsdb error: _Server: names beginning with "_" are reserved',
        "relay:T:unix:x": "ovsdb error: T: duplicate database name",
        "relay:T:ptcp:1": "ptcp:1: a server to copy from needs an active connection method",
        "--sync-from=ptcp:1": "ptcp:1: a server to copy from needs an active connection method",
    }
    for word, message in expected.items():
        output = run([*words, word], check=False, cwd=server.directory, env=servers.environment)
        assert output.code == 1 and message in output.err, str(output)


def test_logged_transactions(servers):
    """The same transactions write the same lines to the logs of both."""
    lines = []
    for server in (servers.ours("ours"), servers.theirs("theirs")):
        server.create().start()
        server.appctl("ovsdb-server/tlog-set", "T:a", "on")
        listed = server.appctl("ovsdb-server/tlog-list").out
        insert = {"op": "insert", "table": "a", "row": {"name": "x", "m": ["map", [["k", "v"], ["l", "w"]]]}}
        server.transact({**insert, "uuid": "00000000-0000-4000-8000-000000000001"})
        server.transact({"op": "update", "table": "a", "where": [], "row": {"n": 7}})
        server.insert("unseen", "c")
        server.transact({"op": "delete", "table": "a", "where": []})
        refused = [
            server.appctl("ovsdb-server/tlog-set", *words, check=False).err.splitlines()[0]
            for words in (("T:z", "on"), ("Z:a", "on"), ("T", "on"), ("T:a", "x"))
        ]
        logged = [line.partition("|transaction|INFO|")[2] for line in server.log().splitlines()]
        # The order of columns and the row versions may differ.
        columns = [sorted(part for part in line.split(",") if "_version" not in part) for line in logged if line]
        lines.append((listed, refused, columns))
    assert lines[0] == lines[1]
    assert len(lines[0][2]) == 3


def test_a_configuration_file(servers):
    source = servers.theirs("source").create({**SCHEMA, "name": "U"}).start()
    active = servers.theirs("active").create().start()
    fill(active)
    server = servers.ours("server").create()
    path = server.directory / "config.json"

    def write(databases):
        path.write_text(json.dumps({"remotes": {f"p{server.remote}": {}}, "databases": databases}))

    relay = {"U": {"service-model": "relay", "source": {source.remote: {"max-backoff": 2000}}}}
    backup = {"service-model": "active-backup", "backup": True, "source": {active.remote: None}}
    own = str(server.directory / "server.db")
    write({own: backup, **relay})
    server.launch(f"--config-file={path}")
    server.replicates()
    same(server, active)
    until(lambda: server.transact({"op": "comment", "comment": "x"}, database="U") == [{}], "the relay")
    # Commands that contradict the file are refused.
    refused = server.appctl("ovsdb-server/add-remote", "ptcp:0", check=False)
    assert refused.code == 2 and refused.err.startswith(f"Update the {path} and use ovsdb-server/reload instead")
    # After a reload, the backup is active, and the relay is gone.
    write({own: {**backup, "backup": False}})
    server.appctl("ovsdb-server/reload")
    assert server.status() == "database: T\nstate: active\n\n"
    assert server.appctl("ovsdb-server/list-dbs").out.split() == ["T", "_Server"]
    server.insert("own")
    write({own: {"service-model": "nonsense"}})
    bad = server.appctl("ovsdb-server/reload", check=False)
    assert bad.code == 2 and bad.err.startswith("Configuration failed.  See the log file for details.\n")
    assert "'nonsense' is not a valid service model" in server.log()
    assert server.names() == ["a", "own"]


def test_a_relay_listens_on_the_remotes_in_its_database(servers):
    """The column only exists after the source has sent the schema."""
    source = servers.ours("source").create().start()
    place = source.directory / "told.sock"
    source.insert(f"punix:{place}", "c")
    relay = servers.ours("relay").start("--remote=db:T,c,name", database=f"relay:T:{source.remote}")
    connected(relay)
    until(place.is_socket, "the socket that the row names")
    assert "T" in relay.client("list-dbs", f"unix:{place}").out
