"""Shared parts of the benchmarks: hosts in namespaces, switches started in a directory of their own, and clean-up."""

import atexit
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = pathlib.Path(os.environ.get("FLOWSTONE_PEERS", ROOT / ".cache" / "peers"))


# A benchmark that receives SIGTERM cleans up, as after Ctrl-C.
def _on_sigterm(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


signal.signal(signal.SIGTERM, _on_sigterm)


def run(*args, env=None, check=True, timeout=600):
    """Runs a command and returns its standard output."""
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, env=env, timeout=timeout, check=False)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, args))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def need_root():
    """Namespaces, packet sockets and huge pages need root."""
    if os.geteuid() != 0:
        raise SystemExit("run this as root (namespaces, packet sockets and huge pages need it)")


def own_network():
    """Starts this program again in a network namespace of its own: devices of switches do not conflict with those of
    another switch, and are removed with the last process."""
    if os.environ.get("FLOWSTONE_BENCH_NETWORK") != "own":
        need_root()
        need_programs("unshare", "ip", "taskset")
        os.environ["FLOWSTONE_BENCH_NETWORK"] = "own"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    run("ip", "link", "set", "lo", "up")


def need_peer_with_dpdk():
    """Unpacks the peer into its default folder if it is missing; a folder given by the user must be complete."""
    need_peer("ovs-vswitchd-dpdk", "dpdk")


def need_peer(daemon="ovs-vswitchd", *extra):
    """The same for one of the peer's daemons, which `unpack.sh` installs with these arguments."""
    if (PEERS / "bin" / daemon).exists():
        return
    if "FLOWSTONE_PEERS" in os.environ:
        raise SystemExit(f"no {daemon} in {PEERS}/bin: run {' '.join(['tests/peers/unpack.sh', str(PEERS), *extra])}")
    print(f"unpacking Open vSwitch into {PEERS}", file=sys.stderr)
    run(ROOT / "tests/peers/unpack.sh", PEERS, *extra)


def need_programs(*names):
    """Reports missing programs before anything is set up."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")


def need_package(program, package):
    """Installs the Debian package of a program if it is missing, as `./test` does."""
    if shutil.which(program) is None:
        say(f"installing {package}")
        run("bash", "-c", '. "$0" && install_packages "$1"', ROOT / "tests/packages.sh", package)


def say(text):
    """Prints progress."""
    print(text, file=sys.stderr, flush=True)


def programs(which):
    """The folder with the ovs-* programs of `which`: ours (links to the release build) or the peer's."""
    if which == "peer":
        bin_dir = PEERS / "bin"
        if not (bin_dir / "ovs-vswitchd").exists():
            raise SystemExit(f"no peer in {PEERS}: run tests/peers/unpack.sh {PEERS}, or set FLOWSTONE_PEERS")
        return bin_dir
    binary = our_binary()
    links = pathlib.Path(tempfile.mkdtemp(prefix="flowstone-links-"))
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    run(binary, "links", links)
    return links


def our_binary():
    """The path of the binary under measurement: FLOWSTONE, or the release build, which is built if it is missing."""
    if "FLOWSTONE" in os.environ:
        binary = pathlib.Path(os.environ["FLOWSTONE"]).resolve()
        if not binary.exists():
            raise SystemExit(f"FLOWSTONE: {binary} is not there")
        return binary
    binary = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "flowstone"
    if not binary.exists():
        print(f"building {binary}", file=sys.stderr)
        run("cargo", "build", "--release", "-q", "-p", "flowstone", "--manifest-path", ROOT / "Cargo.toml", timeout=3600)
    return binary


class Switch:
    """ovsdb-server and ovs-vswitchd of ours or of the peer, in a run directory of their own."""

    def __init__(self, which, daemon="ovs-vswitchd"):
        self.which = which
        self.daemon = daemon
        self.bin = programs(which)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="flowstone-bench-"))
        self.env = dict(os.environ, OVS_SYSLOG_METHOD="null")
        # The XDP programs of the peer's libxdp are where its packages were unpacked.
        for objects in PEERS.glob("usr/lib/*/bpf"):
            self.env["LIBXDP_OBJECT_PATH"] = str(objects)
        for place in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"):
            self.env[place] = str(self.dir)
        try:
            self._start_database()
        except BaseException:
            self.stop()
            raise

    def _start_database(self):
        schema = ROOT / "crates/ovsdb/schemas/vswitch.ovsschema"
        if self.which == "peer":
            schema = PEERS / "usr/share/openvswitch/vswitch.ovsschema"
        self("ovsdb-tool", "create", self.dir / "conf.db", schema)
        self("ovsdb-server", self.dir / "conf.db", f"--remote=punix:{self.dir}/db.sock", "--detach", "--pidfile", "--log-file")
        self("ovs-vsctl", "--no-wait", "init")

    def start(self, *options, core=None, inside=None):
        """Starts the switch daemon; with `core`, all of its threads on that one core; with `inside`, in that network
        namespace."""
        before = [] if inside is None else ["ip", "netns", "exec", inside]
        before += [] if core is None else ["taskset", "-c", core]
        run(*before, self.bin / self.daemon, *options, "--detach", "--pidfile", "--log-file", env=self.env)

    def log_tail(self, lines=15):
        """The end of the switch daemon's log, for messages."""
        with contextlib.suppress(OSError):
            return "\n".join((self.dir / f"{self.daemon}.log").read_text().splitlines()[-lines:])
        return "(no log)"

    def __call__(self, program, *args, check=True):
        return run(self.bin / program, *args, env=self.env, check=check)

    def ask(self, command):
        """The reply to a control command of the switch daemon, as `ovs-appctl` prints it, without starting a process:
        benchmarks that ask often share the cores with the switch."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(120)
            control.connect(str(self.dir / f"{self.daemon}.{self.pid()}.ctl"))
            control.sendall(json.dumps({"id": 0, "method": command, "params": []}).encode())
            text = b""
            while piece := control.recv(1 << 16):
                text += piece
                with contextlib.suppress(ValueError):
                    reply = json.loads(text)
                    break
            else:
                raise SystemExit(f"{self.daemon} closed its control socket at {command}")
        if reply["error"] is not None:
            raise SystemExit(f"{self.daemon}: {command}: {reply['error']}")
        return reply["result"]

    def pid(self, daemon=None):
        return int((self.dir / f"{daemon or self.daemon}.pid").read_text())

    def cpu_s(self):
        """Processor time of all threads of the switch daemon, in seconds."""
        ticks = pathlib.Path(f"/proc/{self.pid()}/stat").read_text().rsplit(") ", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self):
        """Resident memory of the switch daemon."""
        for line in pathlib.Path(f"/proc/{self.pid()}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise SystemExit("no VmRSS")

    def end(self, daemon):
        """Ends one of the two daemons, if it runs."""
        with contextlib.suppress(OSError, ValueError):
            end_process(self.pid(daemon))

    def stop(self):
        for daemon in (self.daemon, "ovsdb-server"):
            self.end(daemon)
        shutil.rmtree(self.dir, ignore_errors=True)


def end_process(pid, patience_s=10):
    """Ends a process: by SIGTERM, then by SIGKILL."""

    def lives():
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
        except OSError:
            return False

    for number in (signal.SIGTERM, signal.SIGKILL):
        os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while lives() and time.monotonic() < deadline:
            time.sleep(0.02)
        if not lives():
            return


@contextlib.contextmanager
def beside(*words):
    """Starts a program and waits until it reports readiness; the yielded object has its output after the block."""
    found = {}
    process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{' '.join(map(str, words))} does not begin")
        yield found
        found |= json.loads(process.communicate(timeout=60)[0])
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def started(*words):
    """Starts a program, and ends it after the block."""
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL)
    try:
        yield process
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(map(str, words))} ended too early, with status {process.returncode}")
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def hosts(n):
    """`n` namespaces, each with a device e0 (10.98.0.N/24), whose other ends p0.. are in this namespace."""
    tag = f"{os.getpid() % 100000}"
    names = [f"fb{tag}h{i}" for i in range(n)]
    ports = [f"fb{tag}p{i}" for i in range(n)]
    try:
        for i, (name, port) in enumerate(zip(names, ports)):
            run("ip", "netns", "add", name)
            run("ip", "link", "add", port, "type", "veth", "peer", "name", "e0", "netns", name)
            run("ip", "-n", name, "addr", "add", f"10.98.0.{i + 1}/24", "dev", "e0")
            for device in ("e0", "lo"):
                run("ip", "-n", name, "link", "set", device, "up")
            run("ip", "link", "set", port, "up")
        yield names, ports
    finally:
        for name, port in zip(names, ports):
            run("ip", "link", "del", port, check=False)
            run("ip", "netns", "del", name, check=False)


def receive_on(core, devices):
    """Makes the kernel receive from `devices` on `core`, and not on the sender's core."""
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-sys-") as sysfs:
        # /sys may show another network namespace than that of this process.
        run("mount", "-t", "sysfs", "none", sysfs)
        try:
            for device in devices:
                for queue in pathlib.Path(sysfs, "class/net", device, "queues").glob("rx-*"):
                    (queue / "rps_cpus").write_text(f"{1 << int(core):x}")
        finally:
            run("umount", sysfs)


def wait_for(condition, what, patience_s=10):
    """Waits until `condition` holds."""
    give_up_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > give_up_s:
            raise SystemExit(f"waited {patience_s} s in vain for {what}")
        time.sleep(0.02)


def wait_for_ping(name, address):
    """Waits until `address` answers."""
    for _ in range(40):
        if subprocess.run(["ip", "netns", "exec", name, "ping", "-c1", "-W1", address], capture_output=True, check=False).returncode == 0:
            return
    raise SystemExit(f"{address} does not answer")


def tcp_gbps(client, server, address, seconds, streams=1):
    """TCP streams by iperf3: the total rate received, in Gb/s."""
    daemon = subprocess.Popen(["ip", "netns", "exec", server, "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        words = ["iperf3", "-c", address, "-t", seconds, "-P", streams, "-J"]
        out = run("ip", "netns", "exec", client, *words, timeout=seconds + 30)
        return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9
    finally:
        daemon.terminate()
        daemon.wait()
