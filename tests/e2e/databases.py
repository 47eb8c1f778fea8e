"""Database servers without a switch: their files, their processes, and their contents."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import jsonrpc
from switch import create_database, run
from waiting import until


def free_port():
    """A port of TCP that no socket uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def plain(value):
    """A `<value>` of RFC 7047 in a normal form: sets and maps sorted, a set of one as its element."""
    match value:
        case ["set", [only]]:
            return plain(only)
        case [("set" | "map") as kind, elements]:
            return [kind, sorted((plain(element) for element in elements), key=json.dumps)]
        case list():
            return [plain(element) for element in value]
    return value


class DatabaseServer:
    """A database server in the foreground, with files in a folder of its own; it can be killed and restarted."""

    def __init__(self, programs, peers, directory, schemas):
        self.programs = Path(programs)
        self.peers = Path(peers)
        self.directory = Path(directory)
        self.socket = self.directory / "sock"
        self.remote = f"unix:{self.socket}"
        self.log = self.directory / "log"
        self.process = None
        # What the server was started with besides.
        self.words = ()
        self.environment = dict(
            os.environ,
            OVS_SYSLOG_METHOD="null",
            **{f"{who}_{what}DIR": str(self.directory) for who in ("OVS", "OVN") for what in ("RUN", "LOG", "DB", "SYSCONF")},
        )
        self.files = []
        for schema in schemas:
            file = self.directory / f"{Path(schema).stem}.db"
            create_database(self.programs, file, schema, self.environment)
            self.files.append(file)

    def start(self, *words):
        self.words = words
        words = [
            self.programs / "ovsdb-server",
            *self.files,
            f"--remote=p{self.remote}",
            f"--unixctl={self.directory / 'ctl'}",
            f"--log-file={self.log}",
            "-vconsole:off",
            *words,
        ]
        self.process = subprocess.Popen(
            [str(word) for word in words], env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        until(self._answers, lambda: f"a server that answers: {self.log.read_text(errors='replace')}")

    def _answers(self):
        assert self.process.poll() is None, f"the server ended: {self.log.read_text(errors='replace')}"
        try:
            return jsonrpc.request(self.socket, "list_dbs", [], timeout_s=5)
        except jsonrpc.RequestError:
            return False

    def kill(self, with_signal=signal.SIGKILL):
        """Ends the process and waits until it is gone."""
        self.process.send_signal(with_signal)
        self.process.wait(timeout=60)
        self.process = None

    def stop(self):
        """Ends the process, if it was started, and returns whether it was running without errors until then."""
        if self.process is None:
            return
        code = self.process.poll()
        if code is None:
            self.kill(signal.SIGTERM)
        log = self.log.read_text(errors="replace")
        assert code is None and "panicked" not in log and "|EMER|" not in log, f"exit code {code}\n{log}"

    def run(self, program, *words, **options):
        """Runs one of Debian's programs with the server's folders."""
        return run([self.peers / program, *words], env=self.environment, **options)

    def appctl(self, *words):
        return self.run("ovs-appctl", "-t", self.directory / "ctl", *words).out.rstrip("\n")

    def transact(self, database, *operations):
        """Returns the results of a transaction."""
        request = json.dumps([database, *operations])
        return json.loads(self.run("ovsdb-client", "--timeout=60", "transact", self.remote, request).out)

    def contents(self, database, tables):
        """{table: {uuid: {column: value}}}, values as `plain` has them."""
        results = self.transact(database, *({"op": "select", "table": table, "where": []} for table in tables))
        found = {}
        for table, result in zip(tables, results):
            rows = found[table] = {}
            for row in result["rows"]:
                uuid = row.pop("_uuid")[1]
                row.pop("_version")
                rows[uuid] = {column: plain(value) for column, value in row.items()}
        return found
