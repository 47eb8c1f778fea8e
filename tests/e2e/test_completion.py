"""Completion in bash with the output of `flowstone completion bash`: a bash process returns its candidates for a
line."""

import os
import subprocess

import pytest

# Sources the completion and calls it as readline would; prints the candidates, and "nospace" if no space is to follow.
ASK = r"""
source "$1"
COMP_LINE=$2; COMP_POINT=${#COMP_LINE}; COMP_WORDS=(); COMP_CWORD=0; COMPREPLY=()
nospace=
compopt() { [[ $* == *nospace* ]] && nospace=yes; }
words=($2)
specification=$(complete -p "${words[0]##*/}") || exit 3
[[ $specification =~ -F\ ([^ ]+) ]] || exit 4
"${BASH_REMATCH[1]}" "${words[0]}" "" ""
printf '%s\n' "${COMPREPLY[@]}"
[[ -z $nospace ]] || echo nospace
"""


class Shell:
    """A bash with completion for the programs."""

    def __init__(self, environment, directory):
        # A busy machine may need longer than the default for users.
        self.environment = environment | {"FLOWSTONE_COMPLETION_TIMEOUT": "30"}
        self.script = directory / "completion.bash"
        flowstone = environment["FLOWSTONE_BINARY"]
        text = subprocess.run([flowstone, "completion", "bash"], check=True, capture_output=True, text=True).stdout
        self.script.write_text(text)

    def offers(self, line):
        words = ["bash", "--norc", "-c", ASK, "ask", str(self.script), line]
        result = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0 and not result.stderr, result
        return [word for word in result.stdout.split("\n") if word]


@pytest.fixture
def shell(programs, switch, tmp_path):
    """A switch with two bridges, and a bash beside it."""
    switch.ours.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "other_config:hwaddr=02:00:00:00:00:01")
    switch.ours.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy")
    switch.ours.vsctl("add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy")
    environment = os.environ | switch.environment | {"FLOWSTONE_BINARY": os.path.realpath(programs / "ovs-vsctl")}
    return Shell(environment, tmp_path)


def test_commands_and_options(shell):
    assert shell.offers("ovs-vsctl add-") == ["add-aa-mapping", "add-bond", "add-bond-iface", "add-br", "add-port", "add-zone-tp"]
    # Only options with the typed prefix.
    assert shell.offers("ovs-vsctl -- --with-iface ") == ["del-port"]
    assert shell.offers("ovs-vsctl --no-w") == ["--no-wait"]
    assert shell.offers("ovs-vsctl --db") == ["--db=", "nospace"]
    assert shell.offers("ovs-vsctl add-br br7 -- --if-e") == ["--if-exists"]
    assert shell.offers("vtep-ctl list-l") == ["list-local-macs", "list-lr", "list-ls"]
    assert shell.offers("ovs-ofctl dump-group") == ["dump-group-features", "dump-group-stats", "dump-groups"]
    assert shell.offers("ovsdb-tool schema-") == ["schema-cksum", "schema-name", "schema-version"]
    assert shell.offers("ovsdb-server --remo") == ["--remote=", "nospace"]
    assert shell.offers("ovs-dpctl dump-d") == ["dump-dps"]
    assert shell.offers("ovs-vtep --vt") == ["--vtep-db=", "nospace"]


def test_completion_from_the_database(shell):
    assert shell.offers("ovs-vsctl list-ports ") == ["br0", "br1"]
    assert shell.offers("ovs-vtep --detach ") == ["br0", "br1"]
    assert shell.offers("ovs-vsctl del-port br0 ") == ["--", "br0", "br1", "p1"]
    assert shell.offers("ovs-vsctl iface-to-br p") == ["p1"]
    assert shell.offers("ovs-vsctl list Br") == shell.offers("ovs-vsctl list br") == ["Bridge"]
    assert shell.offers("ovs-vsctl list bridge b") == ["br0", "br1"]
    assert shell.offers("ovs-vsctl list open_vswitch ") == ["--", "."]
    assert shell.offers("ovs-vsctl get bridge br0 fail") == ["fail_mode"]
    assert shell.offers("ovs-vsctl set bridge br0 fail") == ["fail_mode=", "nospace"]
    # Readline starts words behind = and :, so candidates only contain the part behind them.
    assert shell.offers("ovs-vsctl set bridge br0 fail_mode=") == ["secure", "standalone"]
    assert shell.offers("ovs-vsctl set bridge br0 other_config:") == ["hwaddr=", "nospace"]
    assert shell.offers("ovs-vsctl add-port br0 p9 vlan_mode=dot") == ["dot1q-tunnel"]
    assert shell.offers("ovs-vsctl set-fail-mode br0 ") == ["secure", "standalone"]
    assert shell.offers("ovs-vsctl add-br br7 -- set bridge br") == ["br0", "br1"]
    assert shell.offers("ovs-ofctl dump-flows b") == ["br0", "br1"]
    assert shell.offers("ovsdb-client dump Br") == ["Bridge"]
    assert shell.offers("ovsdb-client dump Open_vSwitch Bridge fail") == ["fail_mode"]


def test_commands_of_the_daemon(shell):
    assert shell.offers("ovs-appctl fdb/sh") == ["fdb/show"]
    assert shell.offers("ovs-appctl fdb/show ") == ["br0", "br1"]
    assert "ovs-vswitchd" in shell.offers("ovs-appctl -t ovs-")
    assert shell.offers("ovs-appctl -t ovsdb-server ovsdb-server/list-d") == ["ovsdb-server/list-dbs"]
    assert shell.offers("ovs-appctl -t nobody ") == []


def test_without_anything_running(programs, tmp_path):
    environment = os.environ | {"OVS_RUNDIR": str(tmp_path), "FLOWSTONE_BINARY": os.path.realpath(programs / "ovs-vsctl")}
    shell = Shell(environment, tmp_path)
    assert shell.offers("ovs-vsctl list-ports ") == []
    # The schema in the binary.
    assert shell.offers("ovs-vsctl list Flow_T") == ["Flow_Table"]
    assert shell.offers("vtep-ctl list Logical_") == ["Logical_Binding_Stats", "Logical_Router", "Logical_Switch"]
    assert shell.offers("flowstone vsctl add-p") == ["add-port"]
    assert shell.offers("flowstone sch") == ["schema"]
    assert shell.offers("flowstone schema hard") == ["hardware_vtep"]
    # Completion does not listen: that would take 30 seconds, and leave a socket.
    listener = tmp_path / "listener"
    assert shell.offers(f"ovs-vsctl --db=unix:/nonexistent,punix:{listener} list Flow_T") == ["Flow_Table"]
    assert shell.offers(f"ovsdb-client dump punix:{listener} ") == []
    assert not listener.exists()
    for line in ("ovs-vsctl 'un", "ovs-vsctl set bridge $(x", "ovs-vsctl -- -- --", "ovs-ofctl é", "flowstone nothing "):
        shell.offers(line)
