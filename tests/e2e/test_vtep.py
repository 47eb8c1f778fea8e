"""vtep-ctl on a database with the schema in the binary. crates/vtepctl compares its commands with Open vSwitch's
program; these tests cover how it is started, and its intended deviations."""

import os
import signal
import subprocess

import pytest


class Vtep:
    """A database server for a VTEP, and programs that use it."""

    def __init__(self, programs, peers, directory):
        self.programs, self.peers, self.directory = programs, peers, directory
        self.environment = os.environ | {name: str(directory) for name in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")}
        self.schema = directory / "vtep.ovsschema"
        self.database = directory / "vtep.db"

    def run(self, *words, folder=None):
        program = (folder or self.programs) / words[0]
        return subprocess.run([program, *words[1:]], env=self.environment, capture_output=True, text=True, timeout=60)

    def ctl(self, *words, folder=None):
        result = self.run("vtep-ctl", *words, folder=folder)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def refused(self, *words):
        result = self.run("vtep-ctl", *words)
        assert result.returncode == 1 and not result.stdout
        return result.stderr


@pytest.fixture
def vtep(programs, peers, tmp_path):
    made = Vtep(programs, peers, tmp_path)
    flowstone = os.path.realpath(programs / "vtep-ctl")
    text = subprocess.run([flowstone, "schema", "hardware_vtep"], check=True, capture_output=True).stdout
    made.schema.write_bytes(text)
    assert made.run("ovsdb-tool", "create", made.database, made.schema).returncode == 0
    pidfile = tmp_path / "server.pid"
    started = made.run(
        "ovsdb-server", made.database, f"--remote=punix:{tmp_path}/db.sock", "--detach", f"--pidfile={pidfile}",
        "-vconsole:off", f"--unixctl={tmp_path}/server.ctl",
    )  # fmt: skip
    assert started.returncode == 0
    yield made
    os.kill(int(pidfile.read_text()), signal.SIGTERM)


def test_the_schema_is_the_one_of_open_vswitch(vtep, peers):
    theirs = peers.parent / "usr/share/openvswitch/vtep.ovsschema"
    other = vtep.directory / "other.db"
    assert vtep.run("ovsdb-tool", "create", other, theirs, folder=peers).returncode == 0
    for folder in (None, peers):
        for database, schema in ((vtep.database, theirs), (other, vtep.schema)):
            assert vtep.run("ovsdb-tool", "needs-conversion", database, schema, folder=folder).stdout == "no\n"


def test_a_switch_is_configured_and_shown(vtep, peers):
    vtep.ctl("add-ps", "ps0", "--", "add-port", "ps0", "p1", "--", "add-ls", "ls0", "--", "bind-ls", "ps0", "p1", "7", "ls0")
    vtep.ctl("add-ucast-remote", "ls0", "02:00:00:00:00:01", "192.0.2.1")
    vtep.ctl("add-mcast-local", "ls0", "unknown-dst", "192.0.2.2", folder=peers)
    for folder in (None, peers):
        shown = vtep.ctl("show", folder=folder).splitlines()[1:]
        assert [line.strip() for line in shown] == ["Physical_Switch ps0", "Physical_Port p1", "vlan_bindings:", "7=ls0"]
        assert "unknown-dst -> vxlan_over_ipv4/192.0.2.2" in vtep.ctl("list-local-macs", "ls0", folder=folder)
        assert "02:00:00:00:00:01 -> vxlan_over_ipv4/192.0.2.1" in vtep.ctl("list-remote-macs", "ls0", folder=folder)


def test_commands_follow_the_manual_page(vtep):
    vtep.ctl("add-ps", "a", "--", "add-ps", "b", "--", "add-port", "a", "x", "--", "add-port", "b", "x", "--", "add-port", "b", "y")
    vtep.ctl("del-port", "b", "y")
    assert vtep.refused("del-port", "b", "y") == "vtep-ctl: no port named y\n"
    assert vtep.ctl("--", "--if-exists", "del-port", "b", "y") == ""
    # The manual page has a form without the switch, which Open vSwitch 4.0 refuses.
    assert vtep.refused("del-port", "x") == "vtep-ctl: 'del-port' command requires at least 2 arguments\n"
    vtep.ctl("add-ls", "l")
    assert vtep.ctl("get-replication-mode", "l") == "(null)\n"
    # Digits at the start count, and a word without them is 0.
    vtep.ctl("bind-ls", "a", "x", "seven", "l")
    assert vtep.ctl("list-bindings", "a", "x") == "0000 l\n"


def test_the_binary_has_the_schemas_of_both_databases(programs):
    flowstone = os.path.realpath(programs / "vtep-ctl")
    run = lambda *words: subprocess.run([flowstone, "schema", *words], capture_output=True, text=True)  # noqa: E731
    assert '"name": "Open_vSwitch"' in run("Open_vSwitch").stdout
    for words in ((), ("nothing",), ("hardware_vtep", "more")):
        result = run(*words)
        assert result.returncode == 1 and "Open_vSwitch or hardware_vtep" in result.stderr
