"""A virtual machine with Debian's kernel, for what the kernel of the test machine may lack, with the files that
tests/virtual/build.sh makes. QEMU emulates it without KVM.

Its interfaces eth0, eth1, ... are tap devices in a network namespace of this machine. It has no disk and no services: tests
configure it by commands, which its second serial port takes and answers in order.
"""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time

from switch import TOP, Output, run
from waiting import until

BOOT_SECONDS_MAX = 120
ANSWER_SECONDS_MAX = 60
FILES = TOP / ".cache/virtual"


class VirtualMachine:
    """The constructor starts it, and the first command waits for it. `speeds_mbps` has the speed of each interface, in order,
    by the name of its tap device, which appears in `namespace`; `directory` is for sockets and logs. The machine has the
    `programs` of this host in /sbin, by their names there, with the libraries that they need."""

    def __init__(self, directory, namespace, speeds_mbps, mtu=1500, programs=None):
        kernel, initrd = FILES / "kernel", FILES / "initrd"
        assert kernel.exists() and initrd.exists(), f"no virtual machine in {FILES}: run tests/virtual/build.sh first"
        if programs:
            initrd = with_programs(initrd, directory, programs)
        self.log, self.console = directory / "qemu.log", directory / "console.log"
        path, self.monitor = directory / "agent.sock", directory / "monitor.sock"
        self.namespace = namespace
        # Bytes from the agent that are not read yet.
        self.left = b""
        self.booted = False
        for tap in speeds_mbps:
            run(["ip", "-n", namespace, "tuntap", "add", tap, "mode", "tap", "vnet_hdr"])
            run(["ip", "-n", namespace, "link", "set", tap, "mtu", mtu, "up"])
        words = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "768" if programs else "256", "-nodefaults", "-no-reboot"]
        words += ["-display", "none", "-kernel", kernel, "-initrd", initrd]
        words += ["-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on"]
        words += ["-serial", f"file:{self.console}"]
        words += ["-chardev", f"socket,id=agent,path={path},server=on,wait=off", "-serial", "chardev:agent"]
        words += ["-qmp", f"unix:{self.monitor},server=on,wait=off"]
        for number, (tap, speed) in enumerate(speeds_mbps.items()):
            device = f"netdev={tap},mac=02:00:00:00:aa:{number + 2:02x},host_mtu={mtu},speed={speed},duplex=full,romfile="
            words += ["-netdev", f"tap,id={tap},ifname={tap},script=no,downscript=no", "-device", f"virtio-net-pci,{device}"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *[str(word) for word in words]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        # Now, since QEMU drops what the machine writes while nobody is connected.
        self.agent = socket.socket(socket.AF_UNIX)
        connects = lambda: self.agent.connect_ex(str(path)) == 0 or self.process.poll() is not None
        until(connects, lambda: self._explain("did not start"))

    def _explain(self, what):
        """An error text with all that is known of the machine."""
        logs = [path.read_text(errors="replace") for path in (self.log, self.console) if path.exists()]
        return f"the virtual machine {what}: {self.left[-2000:].decode(errors='replace')}\n" + "\n".join(logs)

    def _read_line(self, start, seconds):
        """Reads until a line that starts with `start`; returns the text before it and the rest of the line."""
        end = time.monotonic() + seconds
        mark = start.encode()
        while True:
            before, found, after = self.left.partition(mark)
            if found and b"\n" in after:
                rest, _, self.left = after.partition(b"\n")
                return before.decode(errors="replace"), rest.decode().strip()
            left = end - time.monotonic()
            assert left > 0, self._explain(f"does not answer within {seconds} s")
            self.agent.settimeout(left)
            try:
                data = self.agent.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            assert data, self._explain("ended")
            self.left += data

    def run(self, command, check=True, seconds=ANSWER_SECONDS_MAX):
        """Runs a line of shell and returns its `Output`, with errors among the output; with `check`, an exit code other
        than 0 fails the test."""
        assert "\n" not in command
        if not self.booted:
            self._read_line("agent: ready", BOOT_SECONDS_MAX)
            self.booted = True
        self.agent.sendall(command.encode() + b"\n")
        out, status = self._read_line("\nagent: status ", seconds)
        output = Output([command], subprocess.CompletedProcess(command, int(status), out, ""))
        assert not check or output.code == 0, f"in the virtual machine: {output}"
        return output

    def batch(self, program, lines):
        """Runs commands of ip or tc, without that word, in one process: the emulated machine starts one slowly."""
        self.run("rm -f /tmp/batch")
        # A terminal's buffer is small, and the agent reads slowly.
        for first in range(0, len(lines), 10):
            words = " ".join(shlex.quote(line) for line in lines[first : first + 10])
            self.run(f"printf '%s\\n' {words} >>/tmp/batch")
        self.run(f"{program} -batch /tmp/batch")

    def set_carrier(self, tap, state):
        """Takes the carrier of a cable away from both of its ends ("off"), or gives it back ("on")."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(ANSWER_SECONDS_MAX)
            monitor.connect(str(self.monitor))
            with monitor.makefile("rw") as lines:
                execute(lines, "qmp_capabilities")
                execute(lines, "set_link", name=tap, up=state == "on")
        run(["ip", "-n", self.namespace, "link", "set", tap, "carrier", state])

    def end(self):
        """Ends it, and waits for that."""
        self.agent.close()
        self.process.kill()
        self.process.wait(timeout=60)


def with_programs(initrd, directory, programs):
    """An initrd with more programs: the kernel reads archives that follow each other."""
    root = directory / "programs"
    for name, source in programs.items():
        # The archive is in memory, symbols would fill it.
        target = root / "sbin" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        run(["strip", "-o", target, source])
        for library in re.findall(r"/\S+", run(["ldd", source]).out):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(library), place)
    names = "\0".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    whole = directory / "initrd"
    shutil.copy(initrd, whole)
    with open(whole, "ab") as archive:
        archive.write(b"\0" * (-archive.tell() % 4))
        archive.flush()
        subprocess.run(["cpio", "--quiet", "--null", "-o", "-H", "newc"], cwd=root, input=names.encode(), stdout=archive, check=True)
    return whole


def execute(lines, command, **arguments):
    """Runs a command of QEMU's monitor, which `lines` leads to."""
    lines.write(json.dumps({"execute": command, "arguments": arguments}))
    lines.flush()
    # The greeting and events come before the reply.
    for line in lines:
        reply = json.loads(line)
        assert "error" not in reply, f"{command}: {line}"
        if "return" in reply:
            return
    raise AssertionError(f"{command}: the virtual machine ended")
