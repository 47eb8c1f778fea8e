"""A switch under test: the daemons under their Open vSwitch names, in a run directory and a network namespace of their
own, and the command line programs that talk to them.

The namespace separates the names of bridges and ports from those of the machine and of other tests, and deletes the
remaining ones with it.
"""

import os
import pathlib
import re
import signal
import subprocess
from pathlib import Path

import jsonrpc
from waiting import until

TOP = Path(__file__).resolve().parents[2]
SCHEMA = TOP / "crates/ovsdb/schemas/vswitch.ovsschema"
COMMAND_SECONDS_MAX = 300


class Output:
    """The result of a command; equal outputs of two programs are equal strings."""

    def __init__(self, words, done):
        self.words = [str(word) for word in words]
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def __str__(self):
        return f"{' '.join(self.words)}\nexit code {self.code}\n{self.out}{self.err}"


def run(words, check=True, **options):
    """Runs a command to its end and returns its `Output`; with `check`, an exit code other than 0 fails the test."""
    options.setdefault("timeout", COMMAND_SECONDS_MAX)
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    output = Output(words, done)
    assert not check or output.code == 0, str(output)
    return output


# Empty databases by their makers and schemas: a copy is cheaper than a program that makes another one.
_empty = {}


def create_database(programs, file, schema, environment):
    """Creates the file of an empty database."""
    key = (Path(programs), Path(schema))
    if key in _empty:
        file.write_bytes(_empty[key])
        return
    run([key[0] / "ovsdb-tool", "create", file, schema], env=environment)
    _empty[key] = file.read_bytes()


# Programs that reach daemons by sockets in the run directory need no network namespace, unless their words name another target.
LOCAL = ("ovs-vsctl", "ovs-ofctl", "ovs-appctl")
REMOTE = re.compile(r"\b(tcp|ssl|udp|ptcp|pssl):")


class Tools:
    """The command line programs of one maker, configured for one switch."""

    def __init__(self, switch, directory):
        self.switch = switch
        self.directory = Path(directory)

    def run(self, program, *words, check=True, **options):
        local = program in LOCAL and not any(REMOTE.search(str(word)) for word in words)
        words = [self.directory / program, *words]
        return run(words if local else self.switch.inside(words), check=check, env=self.switch.environment, **options)

    def vsctl(self, *words, **options):
        """Runs ovs-vsctl and returns its output, without the last line end."""
        return self.run("ovs-vsctl", "--timeout=60", *words, **options).out.rstrip("\n")

    def ofctl(self, *words, **options):
        return self.run("ovs-ofctl", *words, **options).out.rstrip("\n")

    def appctl(self, *words, **options):
        return self.run("ovs-appctl", "--timeout=60", *words, **options).out.rstrip("\n")

    def ovsdb_client(self, *words, **options):
        return self.run("ovsdb-client", *words, **options).out.rstrip("\n")

    def flows(self, bridge, *words):
        """The flows of a bridge as text, without fields that change by themselves (durations, counters, ages)."""
        text = self.ofctl("dump-flows", bridge, *words)
        lines = [line.strip() for line in text.splitlines() if "actions=" in line]
        return sorted(re.sub(r"(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*, ?", "", line) for line in lines)

    def n_packets(self, bridge, match):
        """The packet count of the flows that `match` selects."""
        text = self.ofctl("dump-aggregate", bridge, match)
        return int(re.search(r"packet_count=(\d+)", text).group(1))


class Switch:
    """`ovsdb-server` and `ovs-vswitchd`, started and ended by process id."""

    def __init__(self, programs, peers, directory, namespace):
        self.programs = Path(programs)
        self.directory = Path(directory)
        self.namespace = namespace
        self.socket = self.directory / "db.sock"
        self.database = self.directory / "conf.db"
        # Every directory is explicit, so that no program uses the system's own.
        self.environment = dict(
            os.environ,
            OVS_RUNDIR=str(self.directory),
            OVS_LOGDIR=str(self.directory),
            OVS_DBDIR=str(self.directory),
            OVS_SYSCONFDIR=str(self.directory),
            OVS_SYSLOG_METHOD="null",
        )
        self.ours = Tools(self, self.programs)
        self.peers = Tools(self, peers)
        # The programs of Open vSwitch test ours; a test that needs our clients says so.
        self.vsctl = self.peers.vsctl
        self.ofctl = self.peers.ofctl
        self.appctl = self.peers.appctl
        self.flows = self.peers.flows
        self.started = []

    def inside(self, words):
        """The command line that runs `words` in the network namespace of the switch."""
        return ["ip", "netns", "exec", self.namespace, *[str(word) for word in words]]

    def create_database(self):
        create_database(self.programs, self.database, SCHEMA, self.environment)

    def start_database(self, *words):
        self._start(
            "ovsdb-server", self.database, f"--remote=punix:{self.socket}", "--detach", "--pidfile", "--log-file", *words
        )

    def start_switch(self, *words, command=None):
        words = ["--detach", "--pidfile", "--log-file", "-vvconn", "-vconsole:warn", *words]
        self._start("ovs-vswitchd", *words, command=command)

    def start_both(self, binary, *words):
        """Starts database and switch in one process."""
        self._start("ovs-vswitchd", *words, "--detach", "--log-file", "-vconsole:warn", command=[binary, "run"])

    def _start(self, program, *words, command=None):
        # The output goes to a file: a daemon that keeps a pipe open would block a reader until it ends.
        with open(self.directory / f"{program}.start", "wb+") as log:
            command = self.inside([*(command or [self.programs / program]), *words])
            done = subprocess.run(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=120, check=False
            )
            log.seek(0)
            assert done.returncode == 0, f"{program} did not start: {log.read().decode(errors='replace')}"
        self.started.append(self.pid(program))

    def pid(self, program):
        """The process id in the daemon's pid file."""
        return int((self.directory / f"{program}.pid").read_text())

    def runs(self, program="ovs-vswitchd"):
        """Returns true if the daemon lives."""
        try:
            return self.lives(self.pid(program))
        except OSError:
            return False

    def kill(self, program):
        """Sends SIGKILL, and waits until the process is gone."""
        pid = self.pid(program)
        os.kill(pid, signal.SIGKILL)
        self.wait_gone(pid)

    def wait_gone(self, pid):
        # A process whose first thread has ended holds its files, the pid file among them, until the last thread has.
        threads = pathlib.Path(f"/proc/{pid}/task")
        ended = lambda: not self.lives(pid) and (not threads.exists() or len(list(threads.iterdir())) <= 1)
        until(ended, f"the end of process {pid}")
        if pid in self.started:
            self.started.remove(pid)

    def lives(self, pid):
        """Whether the process exists, is no zombie, and is ours (process ids are reused)."""
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
            program = Path(os.readlink(f"/proc/{pid}/exe")).name
            return state != "Z" and program.startswith(("flowstone", "ovs"))
        except (OSError, IndexError):
            return False

    def stop(self):
        """Ends the daemons: by command, then by signal."""
        for pid in reversed(list(self.started)):
            if self.lives(pid):
                os.kill(pid, signal.SIGTERM)
                try:
                    until(lambda pid=pid: not self.lives(pid), "the end of a daemon", deadline_s=20)
                except AssertionError:
                    os.kill(pid, signal.SIGKILL)
        self.started.clear()

    def log(self, program="ovs-vswitchd"):
        """The daemon's log so far."""
        path = self.directory / f"{program}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def control(self, program):
        """The control socket of a daemon."""
        return self.directory / f"{program}.{self.pid(program)}.ctl"

    def command(self, *words):
        """Runs a control command of the switch without a program, and returns its output."""
        return jsonrpc.control(self.control("ovs-vswitchd"), *words)

    def rows(self, **tables):
        """The rows of tables of the switch's database, see `jsonrpc.select`."""
        return jsonrpc.select(self.socket, "Open_vSwitch", **tables)

    def management(self, bridge):
        """The OpenFlow socket of a bridge."""
        return self.directory / f"{bridge}.mgmt"

    # Set-ups that many tests share.

    def add_dummy_bridge(self, bridge, *ports):
        """A bridge of dummy ports p1, p2, ... in the order of their OpenFlow numbers, each with a capture of sent
        frames in NAME-tx.pcap."""
        words = ["--", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=dummy", "fail-mode=secure"]
        for number, port in enumerate(ports, 1):
            words += ["--", "add-port", bridge, port]
            words += ["--", "set", "interface", port, "type=dummy", f"ofport_request={number}"]
            words += [f"options:tx_pcap={self.directory / port}-tx.pcap"]
        self.vsctl(*words[1:])


def known_to_both(text):
    """The output of ovs-ofctl without actions and fields that Open vSwitch's version does not know and leaves out."""
    for name in (" push_pbb", " pop_pbb", " pbb_{isid,uca}", " pbb_isid", " pbb_uca"):
        text = text.replace(name, "")
    return text.replace("label,exthdr}", "label}")
