"""The database server: small transactions a second, many rows at once, one change sent to many clients, many clients
that reconnect to a large database, its memory, its start time, and the longest wait of a client during
compaction.

The large database has a schema like that of logical flows: each row refers to one of 500 datapaths. It is written
here, as a file in the documented format, so that both servers begin with the same bytes. The server has one core,
the clients have the other one.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import common
from between import compiled
from report import Report, Table, middle, ratio

CLIENT_CORE, SERVER_CORE = "0", "1"
CLIENTS, WRITERS, SHARERS = 500, 50, 50
# Clients that request everything, each of which has all of it in transit.
COPIES = 10
CHANGES = 50
ROWS = 100_000
DATAPATHS = 500
ZERO = "00000000-0000-0000-0000-000000000000"
SCHEMA = {
    "name": "Bench",
    "version": "1.0.0",
    "tables": {
        "Counter": {"isRoot": True, "columns": {"n": {"type": "integer"}, "name": {"type": "string"}}},
        "Item": {
            "isRoot": True,
            "columns": {"name": {"type": "string"}, "size": {"type": "integer"}, "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}},
        },
        "Datapath": {"isRoot": True, "columns": {"tunnel_key": {"type": "integer"}}},
        "Flow": {
            "isRoot": True,
            "columns": {
                "datapath": {"type": {"key": {"type": "uuid", "refTable": "Datapath"}}},
                "pipeline": {"type": {"key": {"type": "string", "enum": ["set", ["ingress", "egress"]]}}},
                "table_id": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 32}}},
                "priority": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 65535}}},
                "match": {"type": "string"},
                "actions": {"type": "string"},
                "tags": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
                "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
            },
        },
    },
}
EVERYTHING = {name: [{"columns": list(table["columns"])}] for name, table in SCHEMA["tables"].items()}


def uuid(kind, i):
    """A row's UUID: derived from the numbers of table and row, and random enough for hashing and sorting."""
    digits = hashlib.md5(f"{kind} {i}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def record(value):
    body = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return b"OVSDB JSON %d %s\n" % (len(body), hashlib.sha1(body).hexdigest().encode()) + body


def flow(i):
    a, b, c = i >> 16 & 255, i >> 8 & 255, i & 255
    return {
        "datapath": ["uuid", uuid("datapath", i % DATAPATHS)],
        "pipeline": "ingress" if i % 3 else "egress",
        "table_id": i % 24,
        "priority": 50 + i % 100,
        "match": f'inport == "port-{i % 5000}" && eth.src == 02:00:00:{a:02x}:{b:02x}:{c:02x} && ip4.dst == 10.{a}.{b}.{c}/32',
        "actions": f"reg{i % 10} = {i}; ct_commit {{ ct_mark.blocked = 0; }}; next;",
        "external_ids": ["map", [["source", f"northd.c:{i % 9000}"], ["stage-name", f"ls_in_acl_{i % 24}"]]],
    }


def write_database(path, megabytes):
    """Writes a database with counters, datapaths and, for a given size, flows; returns its length in bytes."""
    first = {"Counter": {uuid("counter", i): {"name": f"c{i}"} for i in range(CLIENTS)}}
    first["Datapath"] = {uuid("datapath", i): {"tunnel_key": i} for i in range(DATAPATHS)}
    if megabytes:
        n = megabytes * 1_000_000 // len(f'"{ZERO}":{json.dumps(flow(100_000), separators=(",", ":"))},')
        first["Flow"] = {uuid("flow", i): flow(i) for i in range(n)}
    first |= {"_date": 1_700_000_000_000, "_is_diff": True, "_comment": "made for a measurement"}
    path.write_bytes(record(SCHEMA) + record(first))
    return path.stat().st_size


class Server:
    """One server on its core, with one database."""

    def __init__(self, which, database):
        self.bin = common.programs(which)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="flowstone-bench-"))
        self.env = dict(os.environ, OVS_SYSLOG_METHOD="null", OVS_RUNDIR=str(self.dir), OVS_LOGDIR=str(self.dir))
        self.socket = self.dir / "db.sock"
        shutil.copy(database, self.dir / "bench.db")
        # The disk must not be busy with the copy during the measurement.
        os.sync()
        words = [self.bin / "ovsdb-server", self.dir / "bench.db", f"--remote=punix:{self.socket}", f"--pidfile={self.dir}/pid"]
        words += [f"--unixctl={self.dir}/ctl", f"--log-file={self.dir}/log"]
        start = time.monotonic()
        self.process = subprocess.Popen(["taskset", "-c", SERVER_CORE, *map(str, words)], env=self.env, stderr=subprocess.DEVNULL)
        try:
            self.ask("list_dbs", [])
        except BaseException:
            self.stop()
            raise
        self.start_s = time.monotonic() - start

    def ask(self, method, params):
        """Returns the result of one request."""
        deadline = time.monotonic() + 300
        while True:
            try:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(str(self.socket))
                break
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise SystemExit(f"the server does not answer: {(self.dir / 'log').read_text()[-2000:]}") from None
                time.sleep(0.002)
        with connection:
            connection.sendall(json.dumps({"id": 0, "method": method, "params": params}).encode())
            data = b""
            while part := connection.recv(1 << 20):
                data += part
                with contextlib.suppress(ValueError):
                    answer = json.loads(data)
                    if answer["error"] is not None:
                        raise SystemExit(f"{method}: {answer['error']}")
                    return answer["result"]
        raise SystemExit(f"{method}: the server closed the connection")

    def transact(self, *operations):
        results = self.ask("transact", ["Bench", *operations])
        if any(result and "error" in result for result in results):
            raise SystemExit(f"transact: {results}")
        return results

    def control(self, *words):
        return common.run(self.bin / "ovs-appctl", "-t", self.dir / "ctl", *words, env=self.env)

    def cpu_s(self):
        """Processor time of all threads so far, in seconds."""
        ticks = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self, which="VmRSS"):
        """Resident memory now; with `VmHWM` its peak since the start or `forget_peak`."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{which}:"):
                return int(line.split()[1]) / 1024
        raise SystemExit(f"no {which}")

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Bench:
    """The tools and options of a part."""

    def __init__(self, directory, sizes):
        self.directory = directory
        self.small, self.large = directory / "small.db", directory / "large.db"
        self.n_files = 0
        common.say("writing databases")
        write_database(self.small, 0)
        self.large_bytes = write_database(self.large, sizes) if sizes else 0

    def lines(self, requests):
        """A file with these requests, one a line."""
        self.n_files += 1
        path = self.directory / f"lines{self.n_files}"
        with path.open("w") as file:
            for method, params in requests:
                file.write(json.dumps({"id": 1, "method": method, "params": params}, separators=(",", ":")) + "\n")
        return path

    def clients(self, server, n, *words):
        return ["taskset", "-c", CLIENT_CORE, str(self.directory / "clients"), str(server.socket), str(n), *map(str, words)]

    def run(self, server, n, *words):
        return json.loads(common.run(*self.clients(server, n, *words), timeout=1200))


def count_up(i, durable):
    change = {"op": "mutate", "table": "Counter", "where": [["_uuid", "==", ["uuid", uuid("counter", i)]]], "mutations": [["n", "+=", 1]]}
    return "transact", ["Bench", change, *([{"op": "commit", "durable": True}] if durable else [])]


def transactions(bench, which, options):
    """Small transactions in a closed loop, durable or not."""
    found = {}
    for durable in (True, False):
        path = bench.lines(count_up(i, durable) for i in range(WRITERS))
        for n in (1, WRITERS):
            with server_of(which, bench.small) as server:
                one = bench.run(server, n, path, "loop", options.seconds)
            name = f"transactions a second, {n} client{'s' * (n > 1)}{', durable' * durable}"
            found[name] = one["answers"]["n"] / one["seconds"]
    return found


def rows(bench, which, _options):
    """Rows in transactions of 100, and all in one."""

    def insert(i):
        row = {"name": f"item{i}", "size": i, "options": ["map", [["a", f"{i}"], ["b", "x"]]]}
        return {"op": "insert", "table": "Item", "row": row}

    found = {}
    for size, what in ((100, "100 at a time"), (ROWS, "at once")):
        path = bench.lines(
            ("transact", ["Bench", *(insert(i) for i in range(start, start + size))]) for start in range(0, ROWS, size)
        )
        with server_of(which, bench.small) as server:
            found[f"seconds to insert {ROWS:,} rows, {what}"] = bench.run(server, 1, path, "through")["seconds"]
            last = server.transact({"op": "select", "table": "Item", "where": [["size", "==", ROWS - 1]]})
            if len(last[0]["rows"]) != 1:
                raise SystemExit(f"{which}: not all rows are there")
    return found


def changes(bench, which, _options):
    """One change sent to many clients, each of which monitors the whole of a small database."""
    watch = bench.lines([("monitor_cond_since", ["Bench", None, EVERYTHING, ZERO])])
    change = bench.lines(count_up(i, False) for i in range(CHANGES))
    with server_of(which, bench.small) as server:
        with common.beside(*bench.clients(server, CLIENTS, watch, "hear", CHANGES, change)) as heard:
            before = server.cpu_s()
        cpu_s = server.cpu_s() - before
    return {
        f"ms until {CLIENTS} clients know of a change": 1000 * heard["heard"]["p50"],
        "ms of the server's processor for that": 1000 * cpu_s / CHANGES,
    }


def large(bench, which, _options):
    """A large database: time from start to its first reply, its memory, and clients that connect and reconnect to
    it."""
    found = {}
    with server_of(which, bench.large) as server:
        found[f"seconds to start with {bench.large_bytes / 1e6:.0f} MB"] = server.start_s
        found["MiB of memory then"] = server.rss_mib()
        name, params = count_up(0, False)
        server.ask(name, params)
        last = server.ask("monitor_cond_since", ["Bench", None, {"Counter": [{"columns": ["n"]}]}, ZERO])[1]
        server.ask(name, params)
        rest = {table: columns for table, columns in EVERYTHING.items() if table != "Flow"}
        shares = [
            {**rest, "Flow": [{**EVERYTHING["Flow"][0], "where": [["datapath", "==", ["uuid", uuid("datapath", i)]]]}]}
            for i in range(SHARERS)
        ]
        returning = [("monitor_cond_since", ["Bench", None, EVERYTHING, last])]
        loads = [
            (f"{COPIES} clients come back that know their last transaction", COPIES, returning),
            (f"{CLIENTS} clients come back that know their last transaction", CLIENTS, returning),
            (f"{SHARERS} clients come, each for a datapath's flows", SHARERS, [("monitor_cond_since", ["Bench", None, share, ZERO]) for share in shares]),
            (f"{COPIES} clients come for everything", COPIES, [("monitor_cond_since", ["Bench", None, EVERYTHING, ZERO])]),
        ]
        for what, n, requests in loads:
            if n == CLIENTS and requests is returning and last == ZERO:
                # It has no history, and would send all of it to each client: more than fits into memory.
                found[f"seconds until {what}"] = found[f"seconds of the server's processor while {what}"] = None
                continue
            before = server.cpu_s()
            one = bench.run(server, n, bench.lines(requests), "answers")
            found[f"seconds until {what}"] = one["seconds"]
            found[f"seconds of the server's processor while {what}"] = server.cpu_s() - before
            common.say(f"{what}: {one['seconds']:.2f} s")
        found["MiB of memory after that"] = server.rss_mib()
    return found


def compaction(bench, which, _options):
    """The longest wait of a client for a reply while the large database is compacted, and the peak of memory. The
    client sends small transactions continuously: first without, then with `durable`."""
    with server_of(which, bench.large) as server:
        server.forget_peak()
        before_mib = server.rss_mib()
        found = waits(bench, server, False) | waits(bench, server, True)
        found["MiB of memory before compaction"] = before_mib
        found["MiB of memory at most during compaction"] = server.rss_mib("VmHWM")
    return found


def waits(bench, server, durable):
    """The longest wait of a client for its transactions, without and with a concurrent compaction."""
    path = bench.lines(count_up(i, durable) for i in range(WRITERS))
    with common.beside(*bench.clients(server, 1, path, "gaps")) as quiet:
        time.sleep(1)
    with common.beside(*bench.clients(server, 1, path, "gaps")) as waited:
        time.sleep(0.5)
        start = time.monotonic()
        server.control("ovsdb-server/compact")
        seconds = time.monotonic() - start
        time.sleep(0.5)
    client = f"longest wait of a client{', durable' * durable}"
    return {
        f"{client}, ms": 1000 * quiet["answers"]["max"],
        f"{client}, during compaction, ms": 1000 * waited["answers"]["max"],
        f"seconds that compaction takes{', durable' * durable}": seconds,
    }


PARTS = (transactions, rows, changes, large, compaction)


@contextlib.contextmanager
def server_of(which, database):
    """A server, ended after the block."""
    server = Server(which, database)
    try:
        yield server
    finally:
        server.stop()


def add_arguments(group):
    group.add_argument("--megabytes", type=int, default=200, help="bytes of the large database (200)")
    names = [part.__name__ for part in PARTS]
    group.add_argument("--part", action="append", choices=names, help="only this part; more than once for several")


def measure(options):
    common.need_programs("taskset", "cc")
    common.need_peer()
    parts = [part for part in PARTS if part.__name__ in (options.part or [part.__name__ for part in PARTS])]
    rounds = {"peer": [], "ours": []}
    with compiled("clients") as directory:
        bench = Bench(directory, options.megabytes if {large, compaction} & set(parts) else 0)
        for number in range(options.rounds):
            for which, done in rounds.items():
                found = {}
                for part in parts:
                    found |= part(bench, which, options)
                    common.say(f"database, round {number + 1}, {which}, {part.__name__}: {found}")
                done.append(found)
    return report(rounds)


def middle_of(values):
    """The median; `None` of what was not measured."""
    values = [value for value in values if value is not None]
    return middle(values) if values else None


def report(rounds):
    medians = {which: {what: middle_of(one[what] for one in done) for what in done[0]} for which, done in rounds.items()}
    table = []
    for what, theirs in medians["peer"].items():
        ours = medians["ours"][what]
        # Higher is better for rates, lower for everything else.
        better = ratio(ours, theirs) if "a second" in what else ratio(theirs, ours)
        table.append([what, theirs, ours, better])
    notes = [f"{CLIENTS} clients of one program on core {CLIENT_CORE}, the server on core {SERVER_CORE}; all over a unix socket."]
    header = ["what", "Open vSwitch", "Flowstone", "times as good"]
    return Report([Table("the database server", header, table)], {"rounds": rounds, **medians}, notes)
