"""A private switch of one maker, whose time stands still, for comparing how it tracks connections.

It has a bridge br0 of dummy ports p1 to p4. Commands go to the control socket directly, many at a time; what a port sent
is read from its capture file.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

PORTS = (1, 2, 3, 4)
SECONDS = 20
# A frame of this type leaves by p4 at once: when it is there, the frames before it have been processed.
MARKER_TYPE = "beef"
# Each marker has another source address, which the first flow has translation read: so no marker takes a cached flow, and it
# stays behind the frames before it.
MARKER_FLOWS = [
    f"table=0,priority=65535,dl_type=0x{MARKER_TYPE},dl_src=02:00:00:00:00:00,actions=drop",
    f"table=0,priority=65534,dl_type=0x{MARKER_TYPE},actions=output:1,output:2,output:3,output:4,in_port",
]


class Died(Exception):
    """The switch has closed its control connection, or does not answer."""


class Refused(Exception):
    """A program has failed."""


class Programs:
    """The programs of one maker: a folder for PATH, and a database of a bridge to start with."""

    def __init__(self, path, schemas):
        self.path, self.schemas = path, schemas
        self.database = None

    def bridges(self):
        """The words for ovs-vsctl that make the bridge."""
        words = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath-type=dummy", "fail-mode=secure"]
        for port in PORTS:
            words += ["--", "add-port", "br0", f"p{port}", "--", "set", "interface", f"p{port}", "type=dummy"]
            words += [f"ofport_request={port}", f"options:tx_pcap=p{port}.pcap"]
        return words

    def environment(self, home):
        return {
            "PATH": f"{self.path}:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "OVS_PKGDATADIR": str(self.schemas),
            "OVS_SYSLOG_METHOD": "null",
            **{f"OVS_{kind}DIR": str(home) for kind in ("RUN", "LOG", "DB")},
        }

    def run(self, home, *words, **options):
        """Runs a program to its end, and returns what it printed; its daemons keep no file of ours open."""
        with open(home / "errors", "wb+") as errors, open(home / "output", "wb+") as output:
            done = subprocess.run(
                words, cwd=home, env=self.environment(home), stdout=output, stderr=errors, timeout=SECONDS, check=False,
                **({} if "input" in options else {"stdin": subprocess.DEVNULL}), **options,
            )
            errors.seek(0)
            output.seek(0)
            if done.returncode:
                raise Refused(f"{' '.join(words)}: {errors.read().decode(errors='replace')}")
            return output.read().decode()

    def server(self, home):
        self.run(
            home, "ovsdb-server", "--detach", "--no-chdir", "--pidfile", "-vconsole:off", "--log-file",
            f"--remote=punix:{home}/db.sock", "conf.db",
        )

    def make_database(self, home):
        """A database with the bridge, made once."""
        if self.database is None:
            self.run(home, "ovsdb-tool", "create", "conf.db", f"{self.schemas}/vswitch.ovsschema")
            self.server(home)
            self.run(home, "ovs-vsctl", "--timeout=15", "--no-wait", "init", "--", *self.bridges())
            end(home / "ovsdb-server.pid")
            self.database = (home / "conf.db").read_bytes()
        else:
            (home / "conf.db").write_bytes(self.database)


def end(file):
    """Ends the daemon that wrote this pid file, and waits until its locks are free."""
    try:
        pid = int(file.read_text())
        os.kill(pid, signal.SIGKILL)
        file.unlink()
        while pathlib.Path(f"/proc/{pid}/exe").exists():
            time.sleep(0.001)
    except (OSError, ValueError):
        pass


class Switch:
    """A running switch. Use it as a context manager, which ends it."""

    # The numbers of the ports of br0, by their names, and how the daemon is started.
    captured = {number: f"p{number}" for number in PORTS}
    command_line = ("ovs-vswitchd", "--enable-dummy=override")

    def __init__(self, programs):
        self.programs = programs
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="tracked-"))
        self.socket, self.received = None, ""
        self.captures = {}
        self.marker = 0

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.programs.make_database(self.home)
        self.programs.server(self.home)
        self.programs.run(
            self.home, *self.command_line, "--detach", "--no-chdir", "--pidfile", "-vconsole:off", "--log-file",
            "--disable-system", f"--unixctl={self.home}/ctl",
        )
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(self.home / "ctl"))
        self.command("time/stop")
        self.captures = {port: Capture(self.home / f"{name}.pcap") for port, name in self.captured.items()}

    def stop(self):
        if self.socket:
            self.socket.close()
        for capture in self.captures.values():
            capture.close()
        for daemon in ("ovs-vswitchd", "ovsdb-server"):
            end(self.home / f"{daemon}.pid")
        shutil.rmtree(self.home, ignore_errors=True)

    def log(self):
        """The warnings and errors of the switch."""
        lines = (self.home / "ovs-vswitchd.log").read_text(errors="replace").splitlines()
        return [line for line in lines if any(f"|{level}|" in line for level in ("WARN", "ERR", "EMER")) or "panicked" in line]

    def flows(self, lines):
        """Adds flows."""
        (self.home / "flows").write_text("\n".join([*lines, *MARKER_FLOWS, ""]))
        self.programs.run(self.home, "ovs-ofctl", "add-flows", "br0", "flows")

    def send(self, *commands):
        """Sends commands, which are lists of words, without waiting for replies."""
        requests = [{"method": name, "params": words, "id": n} for n, (name, *words) in enumerate(commands)]
        try:
            self.socket.sendall("".join(map(json.dumps, requests)).encode())
        except OSError as error:
            raise Died(str(error)) from error

    def replies(self, count):
        """The replies to so many commands; an error begins with `error: `."""
        found, decoder = [], json.JSONDecoder()
        while True:
            try:
                while len(found) < count:
                    self.received = self.received.lstrip()
                    reply, at = decoder.raw_decode(self.received)
                    self.received = self.received[at:]
                    answer = reply["result"] if reply["error"] is None else f"error: {reply['error']}"
                    # `ovs-appctl` ends the last line if the daemon does not.
                    found.append(answer.rstrip("\n"))
                return found
            except ValueError:
                pass
            try:
                data = self.socket.recv(1 << 20)
            except OSError as error:
                raise Died(f"no answer: {error}") from error
            if not data:
                raise Died("it closed the control connection")
            self.received += data.decode()

    def commands(self, *commands):
        self.send(*commands)
        return self.replies(len(commands))

    def command(self, *words):
        return self.commands(words)[0]

    # A step in two halves, so that several switches do it at the same time.

    def begin(self, port, frames):
        """Has the port receive frames, and a marker."""
        self.marker += 1
        receive = ["netdev-dummy/receive", self.captured[port]]
        marker = f"ffffffffffff02{self.marker:010x}" + MARKER_TYPE + "00" * 46
        self.count = len(frames) + 1
        self.send(*[[*receive, frame.hex()] for frame in frames], [*receive, marker])

    def outputs(self):
        """The frames that each port sent since the last call, {port: [frame]}, and what is wrong with replies."""
        errors = [reply for reply in self.replies(self.count) if reply]
        found = {port: [] for port in self.captured}
        # Packets are processed later than the commands that bring them, and each port sends for itself.
        for turn in range(2000):
            for port in self.captured:
                found[port] += self.captures[port].frames()
            if all(any(map(self.is_marker, frames)) for frames in found.values()):
                break
            self.command("version") if turn % 10 == 9 else time.sleep(0.0002)
        else:
            errors.append("the marker is lost")
        found = {port: [frame for frame in frames if not self.is_marker(frame)] for port, frames in found.items()}
        return found, errors

    def late(self):
        """The frames that have left since `outputs`."""
        found = {port: self.captures[port].frames() for port in self.captured}
        return {port: [frame for frame in frames if not self.is_marker(frame)] for port, frames in found.items()}

    @staticmethod
    def is_marker(frame):
        return frame[12:14].hex() == MARKER_TYPE


class Capture:
    """A capture file that a switch still writes."""

    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)
        self.data = b""
        self.order = None

    def frames(self):
        """The frames that have come since the last call."""
        if new := self.file.read():
            self.data += new
        if self.order is None:
            if len(self.data) < 24:
                return []
            self.order = "<" if self.data[0] in (0xD4, 0x4D) else ">"
            self.data = self.data[24:]
        found, at = [], 0
        while len(self.data) >= at + 16:
            (size,) = struct.unpack_from(self.order + "I", self.data, at + 8)
            if len(self.data) < at + 16 + size:
                break
            found.append(self.data[at + 16 : at + 16 + size])
            at += 16 + size
        self.data = self.data[at:]
        return found

    def close(self):
        self.file.close()
