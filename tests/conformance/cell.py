"""A cell: a namespace with the target switch, one with the tester switch, and three links between them.

    target (datapath id 1)   1 ---- 1   tester (datapath id 2)
                             2 ---- 2
                             3 ---- 3
                             control

Each has a database of its own. Both have the tester program as their controller, which runs beside the tester
switch; the target reaches it over a fourth link that is no port of a switch. (Two of Debian's switches in one
namespace would conflict over devices.)
"""

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from hosts import Namespace  # noqa: E402, after the path
from switch import Switch, run  # noqa: E402

PORT = 6653
CONTROLLER, FAR_END = "192.0.2.1", "192.0.2.2"
PROTOCOLS = {"of10": ("OpenFlow10", "openflow10"), "of13": ("OpenFlow13", "openflow13"), "of14": ("OpenFlow14", "openflow14")}
# In a run without errors the tester is silent at most for a stream of 30 s and a few waits of 3 s each.
SILENCE_S_MAX = 75
VERDICT = re.compile(r"^ {4}(\S.*?) +(OK|ERROR)$")


class Cell:
    """Two running switches and the links."""

    def __init__(self, target, tester, peers):
        self.directory = Path(tempfile.mkdtemp(prefix="flowstone-conformance-"))
        self.namespaces = []
        self.switches = []
        try:
            near, far = self._namespace("tg"), self._namespace("ts")
            for name in ("p1", "p2", "p3", "control"):
                run(["ip", "-n", near, "link", "add", name, "type", "veth", "peer", "name", name, "netns", far])
                for namespace in (near, far):
                    run(["ip", "-n", namespace, "link", "set", name, "up"])
            run(["ip", "-n", near, "addr", "add", f"{FAR_END}/30", "dev", "control"])
            run(["ip", "-n", far, "addr", "add", f"{CONTROLLER}/30", "dev", "control"])
            self.target = self._switch("target", target, peers, near, 1)
            self.tester = self._switch("tester", tester, peers, far, 2)
        except BaseException:
            self.end()
            raise

    def _namespace(self, word):
        """Creates a namespace in which the kernel sends no packets of its own over the links, and returns its name."""
        namespace = Namespace(word)
        self.namespaces.append(namespace)
        for which in ("all", "default"):
            path = f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6"
            namespace.run("sh", "-c", f"test ! -e {path} || echo 1 > {path}")
        return namespace.name

    def _switch(self, name, programs, peers, namespace, number):
        directory = self.directory / name
        directory.mkdir()
        switch = Switch(programs, peers, directory, namespace)
        self.switches.append(switch)
        switch.create_database()
        switch.start_database()
        switch.vsctl("--no-wait", "init")
        # Unlike in other tests, not every message is logged: there are thousands a second.
        switch.start_switch("--disable-system", "-vvconn:info")
        # The tester reads counters at the end of a stream, which are otherwise updated every half second.
        switch.vsctl("set", "open_vswitch", ".", "other-config:max-revalidator=100")
        words = ["add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "fail-mode=secure"]
        words += [f"other-config:datapath-id={number:016x}", "other-config:disable-in-band=true"]
        for port in (1, 2, 3):
            words += ["--", "add-port", name, f"p{port}", "--", "set", "interface", f"p{port}", f"ofport_request={port}"]
        switch.vsctl(*words)
        for port in (1, 2, 3):
            error = switch.vsctl("get", "interface", f"p{port}", "error")
            assert error == "[]", f"port p{port} of the {name}: {error}"
        return switch

    def use(self, version):
        """Configures both switches for that version with a tester that starts soon."""
        for switch, name in ((self.target, "target"), (self.tester, "tester")):
            words = ["del-controller", name, "--", "set", "bridge", name, f"protocols={PROTOCOLS[version][0]}"]
            words += ["--", "set-controller", name, f"tcp:{CONTROLLER}:{PORT}"]
            switch.vsctl(*words, "--", "set", "controller", name, "max_backoff=1000")

    def lives(self):
        """Whether no daemon of the cell has died."""
        return all(switch.lives(pid) for switch in self.switches for pid in switch.started)

    def wrong(self):
        """Errors in the daemons' logs."""
        return [
            line
            for switch in self.switches
            for program in ("ovs-vswitchd", "ovsdb-server")
            for line in switch.log(program).splitlines()
            if "panicked" in line or "|EMER|" in line
        ]

    def end(self):
        for switch in self.switches:
            switch.stop()
        for namespace in self.namespaces:
            namespace.delete()
        shutil.rmtree(self.directory, ignore_errors=True)


class Tester:
    """One run of the tester program over a folder of case files; iterates over its output."""

    def __init__(self, cell, version, folder, log):
        word = PROTOCOLS[version][1]
        command = [sys.executable, HERE.parent / "e2e/osken_app.py", "os_ken.tests.switch.tester"]
        command += ["--ofp-listen-host", CONTROLLER, "--ofp-tcp-listen-port", PORT]
        command += ["--test-switch-dir", folder, "--test-switch-target-version", word, "--test-switch-tester-version", word]
        self.log = log
        self.lines = queue.Queue()
        # Dots for progress go to standard output, everything else to standard error. A session of its own includes the
        # processes that `ip netns exec` starts, so that all end together.
        self.process = subprocess.Popen(
            cell.tester.inside(command),
            # Streams are sent with sleeps of 10 ms, which other hubs round up to the next millisecond.
            env=dict(os.environ, EVENTLET_HUB="selects", PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        # A real-time priority keeps it on time on a busy machine; it uses little of one processor.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.sched_setscheduler(self.process.pid, os.SCHED_FIFO, os.sched_param(1))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stderr:
            self.log.write(line)
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def verdicts(self, stop, alive):
        """Yields (test, "OK" or "ERROR", reason) in the order of the tests; ends when the tester ends, or when it
        cannot continue: then the last item is (None, "broke off", reason)."""
        pending = None
        last = time.monotonic()
        while True:
            why = None
            try:
                line = self.lines.get(timeout=1)
                last = time.monotonic()
            except queue.Empty:
                if pending:  # the reason follows at once, or not at all
                    yield pending
                    pending = None
                if stop.is_set():
                    why = "told to stop"
                elif not alive():
                    why = "a switch died"
                elif time.monotonic() - last > SILENCE_S_MAX:
                    why = f"silent for {SILENCE_S_MAX} s"
                else:
                    continue
                line = None
            if pending:
                if line and line.startswith(" " * 8):
                    pending = (pending[0], pending[1], line.strip())
                yield pending
                pending = None
            if line is None:
                if why:
                    yield (None, "broke off", why)
                return
            if found := VERDICT.match(line):
                pending = (found.group(1), found.group(2), "")
            elif "in _test_sequential_execute" in line:
                why = self._exception()
                yield (None, "broke off", why)
                return

    def _exception(self):
        """The last line of the traceback that is being printed: an exception ended the tester's thread."""
        line = ""
        try:
            while (text := self.lines.get(timeout=2)) is not None:
                if re.match(r"^\w[\w.]*(Error|Exception)\b", text):
                    return f"the tester broke off: {text}"
                line = text or line
        except queue.Empty:
            pass
        return f"the tester broke off: {line.strip()}"

    def end(self):
        if self.process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self.process.pid, number)
                    self.process.wait(timeout=5)
                    break
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        self.process.wait()
