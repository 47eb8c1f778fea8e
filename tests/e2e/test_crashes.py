"""kill -9 of the daemons, and damaged database files."""

import json
import os
import signal
import socket
import threading

from dummies import Dummies
from test_hosts import connect
from waiting import until

TRANSACTIONS = 200
ROUNDS_MIN = 11


class Client:
    """JSON-RPC on the database's socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.buffer = ""
        self.number = 0

    def call(self, method, *params):
        """Returns the reply, or None if the server ended before it was complete."""
        self.number += 1
        try:
            self.socket.sendall(json.dumps({"method": method, "params": params, "id": self.number}).encode())
            while True:
                try:
                    answer, _ = json.JSONDecoder().raw_decode(self.buffer)
                    self.buffer = ""
                    return answer
                except json.JSONDecodeError:
                    pass
                data = self.socket.recv(65536)
                if not data:
                    return None
                self.buffer += data.decode()
        except OSError:
            return None


def names(path):
    """The names of the rows that the transactions inserted."""
    select = {"op": "select", "table": "AutoAttach", "where": [], "columns": ["system_name"]}
    answer = Client(path).call("transact", "Open_vSwitch", select)
    return {row["system_name"] for row in answer["result"][0]["rows"]}


def test_no_acknowledged_transaction_is_lost(making):
    """The server is killed repeatedly while transactions run; each acknowledged transaction exists in the end."""
    switch = making.switch(start=False)
    switch.create_database()
    switch.start_database()
    switch.vsctl("--no-wait", "init")
    switch.kill("ovsdb-server")
    acknowledged = set()
    number = 0
    rounds = 0
    while number < TRANSACTIONS or rounds < ROUNDS_MIN:
        switch.start_database()
        client = Client(switch.socket)
        pid = switch.pid("ovsdb-server")
        # Each kill finds the server in another state: it follows some replies, while others are pending.
        limit = number + 1 + rounds % 9
        killer = None
        while True:
            number += 1
            # Rows without a reference from a root row would be collected.
            name = f"row{number}"
            operations = [
                {"op": "insert", "table": "AutoAttach", "row": {"system_name": name}, "uuid-name": "a"},
                {"op": "insert", "table": "Bridge", "row": {"name": name, "auto_attach": ["named-uuid", "a"]}, "uuid-name": "b"},
                {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["bridges", "insert", ["named-uuid", "b"]]]},
            ]
            if number >= limit and killer is None:
                killer = threading.Thread(target=os.kill, args=(pid, signal.SIGKILL))
                killer.start()
            answer = client.call("transact", "Open_vSwitch", *operations)
            if answer is None:
                break
            assert answer["error"] is None and not any("error" in result for result in answer["result"]), answer
            acknowledged.add(name)
        killer.join()
        switch.wait_gone(pid)
        rounds += 1
    switch.start_database()
    found = names(switch.socket)
    assert acknowledged <= found, f"lost: {sorted(acknowledged - found)}"
    # All other rows were sent; no row is incomplete.
    assert found <= {f"row{n}" for n in range(1, number + 1)}


def test_the_switch_restarts(making):
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number) for number in (1, 2)]
    connect(switch, *hosts)
    switch.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy")
    switch.vsctl("add-port", "br1", "d1", "--", "set", "interface", "d1", "type=dummy", "ofport_request=5")
    hosts[0].ping(hosts[1].address)
    identity = switch.vsctl("get", "bridge", "br0", "datapath_id")
    for killed in (["ovs-vswitchd"], ["ovsdb-server"], ["ovs-vswitchd", "ovsdb-server"]):
        for program in killed:
            switch.kill(program)
        if "ovsdb-server" in killed:
            switch.start_database()
        if "ovs-vswitchd" in killed:
            switch.start_switch("--enable-dummy")
        else:
            # The switch runs without a database, and reconnects when it is back.
            hosts[0].ping(hosts[1].address)
        assert switch.vsctl("list-br") == "br0\nbr1"
        hosts[0].ping(hosts[1].address)
        # The database does not store these columns, so the switch writes them again.
        for table, row, column, value in (
            ("bridge", "br0", "datapath_id", identity),
            ("interface", "p1", "ofport", "1"),
            ("interface", "p1", "link_state", "up"),
            ("interface", "d1", "ofport", "5"),
            ("interface", "d1", "error", "[]"),
        ):
            until(
                lambda words=(table, row, column), value=value: switch.vsctl("get", *words) == value,
                f"{column} of {row} being {value} after {killed} were killed",
            )
        switch.vsctl("add-port", "br1", "d2", "--", "set", "interface", "d2", "type=dummy")
        assert int(switch.vsctl("get", "interface", "d2", "ofport")) > 0
        switch.vsctl("del-port", "br1", "d2")


def test_damaged_database(making):
    switch = making.switch()
    Dummies(switch, "br0", "p1")
    switch.vsctl("add-port", "br0", "p2", "--", "set", "interface", "p2", "type=dummy")
    for program in ("ovs-vswitchd", "ovsdb-server"):
        switch.kill(program)
    whole = switch.database.read_bytes()
    # The last record is truncated: earlier contents are restored, and the damaged file is kept.
    damaged = whole[:-7]
    switch.database.write_bytes(damaged)
    switch.start_database()
    assert switch.peers.run("ovs-vsctl", "--no-wait", "list-br").out == "br0\n"
    switch.vsctl("--no-wait", "set", "bridge", "br0", "other-config:after=damage")
    said = [line for line in switch.log("ovsdb-server").splitlines() if "|WARN|" in line or "|ERR|" in line]
    assert any("conf.db" in line for line in said), switch.log("ovsdb-server")
    copies = [path for path in switch.directory.iterdir() if path.name.startswith("conf.db") and path != switch.database]
    assert any(path.is_file() and path.read_bytes() == damaged for path in copies), list(switch.directory.iterdir())
    switch.kill("ovsdb-server")
    switch.start_database()
    assert switch.peers.run("ovs-vsctl", "--no-wait", "get", "bridge", "br0", "other-config").out == "{after=damage}\n"
    switch.start_switch("--enable-dummy", "--disable-system")
    until(lambda: switch.vsctl("get", "interface", "p1", "ofport") == "1", "the port")


def test_an_invalid_database_file(making):
    switch = making.switch(start=False)
    switch.database.write_bytes(b"this is somebody's letter\n")
    output = switch.ours.run("ovsdb-server", switch.database, f"--remote=punix:{switch.socket}", "--unixctl=none", check=False)
    assert output.code == 1 and "conf.db" in output.err, str(output)
    assert switch.database.read_bytes() == b"this is somebody's letter\n"
