"""Open vSwitch's own tools around the switch, scripts in Python and shell, run unchanged against our daemons and programs.
docs/compatibility/programs.md has a table of them."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from databases import free_port
from waiting import until

FRAME = (
    "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),"
    "ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=80)"
)


class Scripts:
    """Runs tools of Open vSwitch in the switch's namespace. They find our programs on PATH, behind those in `fakes`, and
    write under `directory`."""

    def __init__(self, switch, peers, directory):
        self.switch = switch
        self.root = peers.parent
        self.directory = directory
        self.fakes = directory / "fakes"
        self.fakes.mkdir()
        self.environment = dict(
            switch.environment,
            PATH=f"{self.fakes}:{switch.programs}:{os.environ['PATH']}",
            # The tools warn of what their libraries import.
            PYTHONWARNINGS="ignore",
            TMPDIR=str(directory),
            TERM="xterm",
            OVS_BINDIR=str(switch.programs),
            OVS_SBINDIR=str(switch.programs),
            OVS_PKGDATADIR=str(self.root / "usr/share/openvswitch"),
        )

    def fake(self, name, text):
        """A program of the system that is missing here, as a shell script."""
        path = self.fakes / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def words(self, path, *words):
        """The command line of a tool at a path under the folder of the peers."""
        path = self.root / path
        if not path.exists():
            assert os.environ.get("CI") != "true"
            pytest.skip(f"no {path}: run tests/peers/unpack.sh again")
        interpreter = [sys.executable] if "python" in path.read_text().splitlines()[0] else []
        return self.switch.inside([*interpreter, path, *words])

    def run(self, path, *words, code=0, **options):
        """Runs the tool and returns its output."""
        options.setdefault("timeout", 120)
        words = self.words(path, *words)
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, **options)
        assert done.returncode == code, f"{words}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def scripts(switch, peers, tmp_path):
    return Scripts(switch, peers, tmp_path)


@pytest.fixture
def kernel_scripts(kernel_switch, peers, tmp_path):
    return Scripts(kernel_switch, peers, tmp_path)


def forward_a_frame(switch):
    """Has a bridge of dummies with three ports flood a frame from p1; returns the frame in hexadecimal."""
    switch.add_dummy_bridge("br0", "p1", "p2", "p3")
    switch.ofctl("-O", "OpenFlow14", "add-flow", "br0", "cookie=5,table=0,priority=1,actions=set_field:3->reg1,resubmit(,1)")
    switch.ofctl("-O", "OpenFlow10", "add-flow", "br0", "cookie=6,table=1,tcp,tp_dst=80,actions=mod_vlan_vid:5,flood")
    switch.appctl("netdev-dummy/receive", "p1", FRAME)
    switch.appctl("revalidator/wait")
    sent = switch.directory / "p2-tx.pcap"
    until(lambda: sent.stat().st_size > 24, "the frame at p2")
    return sent


def test_ovs_dpctl_top(scripts, switch):
    forward_a_frame(switch)
    flows = switch.ours.run("ovs-dpctl", "dump-flows").out
    assert "in_port(1)" in flows
    out = scripts.run("usr/bin/ovs-dpctl-top", "--script", input=flows)
    fields = {line.split()[0]: line.split()[1] for line in out.splitlines() if "(" in line.split(" ")[0]}
    assert fields["in_port(1)"] == "1" and fields["eth_type(0x0800)"] == "1", out
    # Without --script, it runs our ovs-dpctl by itself, and draws on the terminal.
    terminal, other_end = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    words = scripts.words("usr/bin/ovs-dpctl-top", "--delay", "1")
    tool = subprocess.Popen(words, env=scripts.environment, stdin=other_end, stdout=other_end, stderr=other_end, start_new_session=True)
    os.close(other_end)
    drawn = b""
    try:
        while b"in_port(1)" not in drawn:
            drawn += os.read(terminal, 65536)
        os.write(terminal, b"q")
        # It restores the terminal and ends; then there is nothing left to read.
        with contextlib.suppress(OSError):
            while os.read(terminal, 65536):
                pass
        assert tool.wait(timeout=60) == 0
    except OSError as error:
        raise AssertionError(f"ovs-dpctl-top ended: {drawn.decode(errors='replace')}") from error
    finally:
        tool.kill()
        tool.wait()
        os.close(terminal)


def test_ovs_dpctl_top_reads_the_system_datapath_without_errors(making, kernel_scripts, kernel_switch):
    """A dump of this datapath has flows alone, as one of Open vSwitch's kernel datapath."""
    host = making.host(kernel_switch, 1)
    kernel_switch.vsctl("add-br", "br0", "--", "add-port", "br0", host.port)
    host.run("ping", "-c", "1", "-W", "1", "-I", "e0", "224.0.0.1", check=False)
    host.run("ping", "-c", "1", "-W", "1", "-I", "e0", "ff02::1", check=False)
    flows = until(lambda: kernel_switch.ours.run("ovs-dpctl", "dump-flows", "system@ovs-system").out, "a flow")
    out = kernel_scripts.run("usr/bin/ovs-dpctl-top", "--script", input=flows)
    assert re.search(r"Total: [1-9]\d*  errors: 0 ", out), out


def test_ovs_pcap_and_ovs_tcpundump(scripts, switch):
    sent = forward_a_frame(switch)
    (frame,) = scripts.run("usr/bin/ovs-pcap", sent).split()
    assert frame.startswith("505400000007" "505400000005" "81000005" "0800" "4500"), frame
    dump = subprocess.run(["tcpdump", "-xx", "-r", sent], capture_output=True, text=True, check=True).stdout
    assert scripts.run("usr/bin/ovs-tcpundump", input=dump).split() == [frame]
    # It is what ofproto/trace and ovs-ofctl take.
    traced = switch.ours.appctl("ofproto/trace", "br0", "in_port=p1", frame)
    assert "dl_vlan=5" in traced


def test_ovs_flowviz(scripts, switch):
    pytest.importorskip("click", reason="the environment of tests is older than requirements.txt")
    forward_a_frame(switch)
    flows = switch.ours.ofctl("dump-flows", "br0")
    cached = switch.ours.run("ovs-dpctl", "-m", "dump-flows").out
    tool = "usr/bin/ovs-flowviz"
    of_json = json.loads(scripts.run(tool, "openflow", "json", input=flows))
    assert [flow["info"]["cookie"] for flow in of_json] == [5, 6]
    assert of_json[1]["match"] == {"tcp": True, "tp_dst": {"value": 80, "mask": 65535}}, of_json[1]
    assert of_json[1]["actions"] == [{"mod_vlan_vid": 5}, {"output": {"port": "FLOOD"}}], of_json[1]
    assert "resubmit(,1)" in scripts.run(tool, "openflow", "console", input=flows)
    assert "Table 1" in scripts.run(tool, "openflow", "html", input=flows)
    (thread,) = json.loads(scripts.run(tool, "datapath", "json", input=cached)).values()
    (flow,) = thread
    assert flow["match"]["in_port"] == "p1", flow
    # `graph` works on files only.
    file = scripts.directory / "cached"
    file.write_text(cached)
    for form in ("console", "tree", "html", "graph"):
        assert "p1" in scripts.run(tool, "--input", file, "datapath", form), form


def test_ovs_tcpdump_makes_a_mirror(making, kernel_scripts, kernel_switch):
    """The switch takes the mirror, and the tool's rows and device are gone when it ends."""
    host = making.host(kernel_switch, 1)
    kernel_switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    kernel_switch.vsctl("add-port", "br0", host.port)
    # The tool may drop the last lines of a program that ends.
    seen = kernel_scripts.directory / "seen"
    kernel_scripts.fake("dump", f'{{ ovs-vsctl --columns=name list mirror; ovs-vsctl list-ports br0; echo "$@"; }} >{seen}')
    kernel_scripts.run("usr/bin/ovs-tcpdump", "--dump-cmd", "dump", "-i", host.port, "-n")
    out = seen.read_text()
    assert f": m_{host.port}\n" in out and f"\nmi{host.port}\n" in out and f"-i mi{host.port} -l -n" in out, out
    assert "mirror" not in kernel_switch.log()
    assert kernel_switch.vsctl("list", "mirror") == ""
    assert kernel_switch.vsctl("list-ports", "br0") == host.port


def test_ovs_save(scripts, switch):
    forward_a_frame(switch)
    switch.ofctl("-O", "OpenFlow14", "add-group", "br0", "group_id=7,type=select,bucket=actions=output:2")
    # OpenFlow 1.0's flows have this flag, which ovs-ofctl does not restore.
    flows = lambda: [flow.replace("reset_counts ", "") for flow in switch.flows("br0", "-O", "OpenFlow14")]
    before = flows()
    restore = scripts.run("usr/share/openvswitch/scripts/ovs-save", "save-flows", "br0")
    switch.ofctl("-O", "OpenFlow14", "del-groups", "br0")
    switch.ofctl("del-flows", "br0")
    subprocess.run(switch.inside(["sh", "-e", "-c", restore]), env=scripts.environment, check=True)
    assert flows() == before
    assert "group_id=7,type=select" in switch.ofctl("-O", "OpenFlow14", "dump-groups", "br0")


def test_ovs_ctl_of_open_vswitch(making, peers, tmp_path):
    """Starts, restarts and stops our daemons. It loads the kernel's module first, which need not be there."""
    switch = making.switch(start=False)
    scripts = Scripts(switch, peers, tmp_path)
    scripts.fake("modprobe", "exit 0")
    (switch.directory / "openvswitch").mkdir()
    tool = "usr/share/openvswitch/scripts/ovs-ctl"
    options = ["--system-id=random", "--ovs-vswitchd-options=--enable-dummy --disable-system"]
    try:
        scripts.run(tool, *options, "start")
        assert len(re.findall(r" is running with pid \d+\n", scripts.run(tool, "status"))) == 2
        switch.add_dummy_bridge("br0", "p1")
        switch.ofctl("add-flow", "br0", "table=3,tcp,actions=drop")
        before = switch.flows("br0")
        out = scripts.run(tool, *options, "restart")
        assert "Restoring saved flows" in out
        assert switch.flows("br0") == before
        assert switch.vsctl("get", "Open_vSwitch", ".", "ovs_version", "external_ids:rundir") == f'"4.0.0"\n"{switch.directory}"'
        assert scripts.run(tool, "version").count("Flowstone ") == 2
    finally:
        scripts.run(tool, "stop")
    assert scripts.run(tool, "status", code=1) == "ovsdb-server is not running\novs-vswitchd is not running\n"


def test_bash_completion_of_open_vswitch(scripts, switch):
    """Their scripts parse --help, --commands and list-commands of our programs and daemons."""
    switch.add_dummy_bridge("br0", "p1", "p2")
    folder = scripts.root / "usr/share/bash-completion/completions"

    def vsctl(line):
        words = ["bash", folder / "ovs-vsctl-bashcomp.bash", "test", line]
        return subprocess.run(words, env=scripts.environment, capture_output=True, text=True, check=False).stdout.split()

    def others(*line):
        words = ["bash", folder / "ovs-appctl-bashcomp.bash", "debug", *line]
        text = subprocess.run(words, env=scripts.environment, capture_output=True, text=True, check=False).stderr
        return text.partition("Available completions:")[2].split()

    assert vsctl("add-p") == ["add-port"]
    assert vsctl("--no-w") == ["--no-wait"]
    assert vsctl("add-port ") == ["br0"]
    assert vsctl("del-port br0 ") == ["p1", "p2"]
    assert {"p1", "p2"} <= set(vsctl("set Interface p"))
    assert {"Bridge", "Interface", "Open_vSwitch"} <= set(vsctl("list "))
    assert others("ovs-appctl", "--target", "TAB") == ["ovs-ofctl", "ovs-vswitchd", "ovsdb-server"]
    assert "fdb/stats-show" in others("ovs-appctl", "fdb/")
    assert others("ovs-appctl", "ofproto/trace", "TAB") == ["br0", "ovs-dummy"]
    assert others("ovs-appctl", "--target", "ovsdb-server", "ovsdb-server/list-") == ["ovsdb-server/list-dbs", "ovsdb-server/list-remotes"]
    assert others("ovs-ofctl", "dump-flows", "TAB") == ["br0"]
    assert others("ovsdb-tool", "compa") == ["compact", "compare-versions"]


def test_ovs_pki(scripts, switch):
    """Its keys and certificates connect a client to our server."""
    at = scripts.directory
    options = [f"--dir={at / 'pki'}", f"--log={at / 'pki.log'}"]
    scripts.run("usr/bin/ovs-pki", *options, "init")
    for name, kind in (("sc", "switch"), ("ctl", "controller")):
        scripts.run("usr/bin/ovs-pki", *options, "req+sign", name, kind, cwd=at)
    files = [f"--private-key={at}/ctl-privkey.pem", f"--certificate={at}/ctl-cert.pem", f"--ca-cert={at}/pki/switchca/cacert.pem"]
    server = [f"--private-key={at}/sc-privkey.pem", f"--certificate={at}/sc-cert.pem", f"--ca-cert={at}/pki/controllerca/cacert.pem"]
    port = free_port()
    # A second server, with the switch's files.
    run = [switch.programs / "ovsdb-server", "--no-dbs", f"--remote=pssl:{port}:127.0.0.1", *server, "-vconsole:off"]
    run += ["--unixctl", at / "second.ctl", "--run"]
    client = " ".join(map(str, [switch.programs / "ovsdb-client", *files, "list-dbs", f"ssl:127.0.0.1:{port}"]))
    done = subprocess.run(switch.inside([*run, client]), env=scripts.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "_Server\n"), done


def test_ovs_docker(making, kernel_scripts, kernel_switch):
    """With a program `docker` that knows one container, whose process is ours."""
    kernel_switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    container = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    try:
        own = os.stat("/proc/self/ns/net").st_ino
        until(lambda: os.stat(f"/proc/{container.pid}/ns/net").st_ino != own, "the container's namespace")
        kernel_scripts.fake("docker", f'test "$*" = "inspect -f {{{{.State.Pid}}}} c1" && echo {container.pid}')
        kernel_scripts.fake("uuidgen", "cat /proc/sys/kernel/random/uuid")
        tool = "usr/bin/ovs-docker"
        kernel_scripts.run(tool, "add-port", "br0", "eth1", "c1", "--ipaddress=10.1.0.2/24", "--mtu=1400")
        inside = lambda *words: subprocess.run(["nsenter", "-t", str(container.pid), "-n", *words], capture_output=True, text=True, check=False)
        assert "mtu 1400" in inside("ip", "link", "show", "eth1").stdout
        for words in (["address", "add", "10.1.0.1/24", "dev", "br0"], ["link", "set", "br0", "up"]):
            subprocess.run(kernel_switch.inside(["ip", *words]), check=True)
        ping = inside("ping", "-c", "2", "-i", "0.2", "-W", "20", "10.1.0.1")
        assert ping.returncode == 0, ping.stdout
        (port,) = kernel_switch.vsctl("list-ports", "br0").split()
        kernel_scripts.run(tool, "set-vlan", "br0", "eth1", "c1", "5")
        assert kernel_switch.vsctl("get", "port", port, "tag") == "5"
        kernel_scripts.run(tool, "del-port", "br0", "eth1", "c1")
        assert kernel_switch.vsctl("list-ports", "br0") == ""
        # The switch deletes no device that it did not make; the tool did.
        assert inside("ip", "link", "show", "eth1").returncode != 0
    finally:
        container.kill()
        container.wait()


def test_ovs_monitor_ipsec_reads_the_database(scripts, switch):
    """It writes the daemon's files for tunnels with keys; the tunnels themselves are not supported."""
    switch.add_dummy_bridge("br0")
    switch.vsctl("--no-wait", "add-port", "br0", "t1", "--", "set", "interface", "t1", "type=gre", "options:remote_ip=192.0.2.1", "options:psk=swordfish")
    root = scripts.directory / "root"
    for folder in ("sbin", "usr/sbin", "etc/strongswan.d", "etc/ipsec.d"):
        (root / folder).mkdir(parents=True)
    # The programs that it asks for keys and security associations, of which there are none.
    for program in ("usr/sbin/ipsec", "sbin/ip"):
        (root / program).write_text("#!/bin/sh\n")
        (root / program).chmod(0o755)
    options = [f"unix:{switch.socket}", "--ike-daemon=strongswan", f"--root-prefix={root}", "--pidfile", "-vconsole:off"]
    words = scripts.words("usr/share/openvswitch/scripts/ovs-monitor-ipsec", *options)
    with subprocess.Popen(words, env=scripts.environment) as monitor:
        try:
            secrets = root / "etc/ipsec.secrets"
            until(lambda: secrets.exists() and '192.0.2.1 : PSK "swordfish"' in secrets.read_text(), "the key")
            assert "leftprotoport=gre" in (root / "etc/ipsec.conf").read_text()
            # Our ovs-appctl controls it.
            shown = switch.ours.appctl("-t", "ovs-monitor-ipsec", "tunnels/show")
            assert "Interface name: t1" in shown, shown
            switch.vsctl("--no-wait", "del-port", "t1")
            until(lambda: "swordfish" not in secrets.read_text(), "the removal of the key")
            switch.ours.appctl("-t", "ovs-monitor-ipsec", "exit")
            monitor.wait(timeout=60)
        finally:
            monitor.kill()
