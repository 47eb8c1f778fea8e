"""Third-party database clients: Python's Idl and ovsdbapp, Go's libovsdb, and OVN with its two databases."""

import json
import random
import re
import subprocess

import ovs.db.idl
import pytest
from ovsdbapp.backend.ovs_idl import connection
from ovsdbapp.schema.open_vswitch import impl_idl

from databases import DatabaseServer, plain
from switch import TOP, run
from waiting import DEADLINE_S, until

SCHEMA = TOP / "crates/ovsdb-server/tests/data/all.ovsschema"
TABLES = ("root", "bound", "top", "kid", "needy", "few", "unique")


@pytest.fixture
def serve(programs, peers, tmp_path_factory):
    """Creates and starts a database server with these schemas: ours, unless `maker` is another folder."""
    servers = []

    def make(*schemas, maker=None):
        server = DatabaseServer(maker or programs, peers, tmp_path_factory.mktemp("db"), schemas)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.stop()


# Python's Idl.


def plain_json(value):
    """JSON of the Idl, which leaves its own objects in maps with default values."""
    if isinstance(value, list):
        return [plain_json(element) for element in value]
    return plain_json(value.to_json()) if hasattr(value, "to_json") else value


class Replica:
    """A database as seen by a Python client."""

    def __init__(self, server, condition=None):
        helper = ovs.db.idl.SchemaHelper(str(SCHEMA))
        helper.register_all()
        self.server = server
        self.idl = ovs.db.idl.Idl(server.remote, helper)
        if condition:
            self.idl.cond_change(*condition)
        self.run_until(self.idl.has_ever_connected, "a connection")

    def run_until(self, check, what):
        """Runs the client until a condition holds."""

        def step():
            self.idl.run()
            return check()

        until(step, what, interval_s=0.002)

    def contents(self):
        """As `DatabaseServer.contents` has it."""
        found = {}
        for table in TABLES:
            columns = self.idl.tables[table].columns
            rows = self.idl.tables[table].rows
            found[table] = {
                str(uuid): {name: plain(plain_json(rows[uuid]._data[name].to_json())) for name in columns} for uuid in rows.keys()
            }
        return found

    def rows(self, table):
        return list(self.idl.tables[table].rows.values())

    def close(self):
        self.idl.close()


def change(replica, dice):
    """Runs a random transaction of a Python client; returns its result."""
    idl = replica.idl
    transaction = ovs.db.idl.Transaction(idl)
    tables = idl.tables
    for _ in range(dice.randint(1, 4)):
        tops = replica.rows("top")
        top = dice.choice(tops) if tops and dice.random() < 0.7 else transaction.insert(tables["top"])
        match dice.randrange(9):
            case 0:
                top.name = dice.choice(["a", "é\"", ""])
            case 1:
                kid = transaction.insert(tables["kid"])
                kid.name = f"kid {dice.randrange(100)}"
                top.addvalue("kids", kid.uuid)
                top.setkey("byname", "k", kid.uuid)
                top.friends = [kid]
            case 2:
                top.kids = []
                top.byname = {}
                top.heir = []
            case 3:
                few = transaction.insert(tables["few"])
                few.n = dice.randrange(10)
            case 4:
                root = transaction.insert(tables["root"])
                root.i, root.r, root.b, root.s = dice.randrange(-9, 9), dice.randrange(1000) / 8, True, "text"
                root.mss = {"a": "b", "c": dice.choice("de")}
                root.si = dice.sample(range(9), 3)
                root.imm = "fixed"
            case 5 if replica.rows("root"):
                root = dice.choice(replica.rows("root"))
                root.verify("i")
                root.i = root.i + 1
                root.setkey("mss", "new", "x")
                root.delkey("mss", "a")
                root.addvalue("si", dice.randrange(20))
            case 6 if replica.rows("few"):
                dice.choice(replica.rows("few")).delete()
            case 7:
                unique = transaction.insert(tables["unique"])
                unique.name = dice.choice("abcdefgh")
                unique.a = [dice.randrange(3)]
            case 8 if len(tops) > 4:
                dice.choice(tops).delete()
                # A deleted row must not be used any more.
                break
    transaction.add_comment("random")
    return transaction.commit_block()


@pytest.mark.parametrize("maker", ["ours", "peers"])
def test_python_idl(serve, peers, maker):
    server = serve(SCHEMA, maker=peers if maker == "peers" else None)
    writer, reader = Replica(server), Replica(server)
    part = Replica(server, condition=("few", [["n", ">=", 5]]))
    dice = random.Random(47)
    ended = {}
    for step in range(120):
        status = change(writer, dice)
        ended[status] = ended.get(status, 0) + 1
        assert status in (ovs.db.idl.Transaction.SUCCESS, ovs.db.idl.Transaction.UNCHANGED, ovs.db.idl.Transaction.ERROR)
        if step == 60:
            part.idl.cond_change("few", [["n", "<", 5]])
        if step % 10 < 9:
            continue
        expected = server.contents("A", TABLES)
        writer.run_until(lambda: writer.contents() == expected, "the writer's replica")
        reader.run_until(lambda: reader.contents() == expected, "the reader's replica")
        wanted = {u: row for u, row in expected["few"].items() if (row["n"] >= 5) == (step < 60)}
        part.run_until(lambda: part.contents()["few"] == wanted, "the replica with a condition")
    # Both kinds of failure occurred: rows beyond a limit and duplicates are refused.
    assert ended[ovs.db.idl.Transaction.SUCCESS] > 40 and ended[ovs.db.idl.Transaction.ERROR] > 5, ended

    # A lock moves from one client to another.
    writer.idl.set_lock("lock")
    writer.run_until(lambda: writer.idl.has_lock, "the lock")
    reader.idl.set_lock("lock")
    reader.run_until(lambda: reader.idl.is_lock_contended, "the word that the lock is another's")
    writer.idl.set_lock(None)
    writer.run_until(lambda: not writer.idl.has_lock, "the lock given back")
    reader.run_until(lambda: reader.idl.has_lock, "the lock of the next one")
    for replica in (writer, reader, part):
        replica.close()


def test_python_idl_reconnects(serve):
    server = serve(SCHEMA)
    replica = Replica(server)
    dice = random.Random(11)
    for _ in range(20):
        change(replica, dice)
    before = server.contents("A", TABLES)
    server.kill()
    server.start()
    assert server.contents("A", TABLES) == {
        table: {uuid: {**row, **({"eph": 0, "ephs": ["set", []]} if table == "root" else {})} for uuid, row in rows.items()}
        for table, rows in before.items()
    }
    server.transact("A", {"op": "insert", "table": "root", "row": {"s": "while away"}})
    after = server.contents("A", TABLES)
    replica.run_until(lambda: replica.contents() == after, "the replica of a server that came again")
    replica.close()


# ovsdbapp, which OpenStack configures switches with.


def test_ovsdbapp(switch):
    idl = connection.OvsdbIdl.from_server(f"unix:{switch.socket}", "Open_vSwitch")
    api = impl_idl.OvsdbIdl(connection.Connection(idl=idl, timeout=DEADLINE_S))
    with api.transaction(check_error=True) as transaction:
        transaction.add(api.add_br("br0", datapath_type="dummy"))
        transaction.add(api.add_port("br0", "p1", type="dummy"))
        transaction.add(api.set_fail_mode("br0", "secure"))
        transaction.add(api.db_set("Bridge", "br0", ("other_config", {"a": "b"}), ("protocols", ["OpenFlow13", "OpenFlow15"])))
    # When a transaction returns, the switch has applied it.
    assert "1(p1)" in switch.ofctl("-O", "OpenFlow13", "show", "br0")
    assert api.list_br().execute(check_error=True) == ["br0"]
    assert api.list_ports("br0").execute(check_error=True) == ["p1"]
    assert api.db_get("Interface", "p1", "ofport").execute(check_error=True) == 1
    assert api.iface_to_br("p1").execute(check_error=True) == "br0"
    api.br_set_external_id("br0", "id", "x y").execute(check_error=True)
    assert api.br_get_external_id("br0", "id").execute(check_error=True) == "x y"
    found = api.db_find("Interface", ("name", "=", "p1"), columns=["name", "type"]).execute(check_error=True)
    assert found == [{"name": "p1", "type": "dummy"}]
    api.add_port("br0", "p2", type="dummy").execute(check_error=True)
    api.db_add("Bridge", "br0", "other_config", {"c": "d"}).execute(check_error=True)
    api.db_clear("Bridge", "br0", "protocols").execute(check_error=True)
    assert switch.vsctl("get", "bridge", "br0", "other_config", "protocols") == "{a=b, c=d}\n[]"
    with pytest.raises(Exception, match="nowhere"):
        api.add_port("nowhere", "p3").execute(check_error=True)
    api.del_port("p1").execute(check_error=True)
    assert switch.vsctl("list-ports", "br0") == "p2"
    # This client receives changes by others.
    switch.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy")
    until(lambda: sorted(api.list_br().execute(check_error=True)) == ["br0", "br1"], "the bridge that ovs-vsctl made")
    api.del_br("br0").execute(check_error=True)
    assert switch.vsctl("list-br") == "br1"
    api.ovsdb_connection.stop(DEADLINE_S)


# Go's libovsdb, which ovn-kubernetes works with.


@pytest.fixture(scope="module")
def libovsdb(tmp_path_factory):
    program = tmp_path_factory.mktemp("go") / "libovsdb"
    run([TOP / "tests/e2e/libovsdb/build.sh", program], timeout=900)
    return program


def test_libovsdb(serve, libovsdb):
    server = serve(SCHEMA)
    done = run([libovsdb, server.remote])
    assert json.loads(done.out) == {"few": [2, 5], "part": [5]}
    contents = server.contents("A", TABLES)
    assert sorted(row["n"] for row in contents["few"].values()) == [2, 5]
    assert [row["si"] for row in contents["root"].values()] == [["set", [1, 2, 3, 9]]]


# OVN: northd makes logical flows of the northbound database in the southbound one.

NETWORK = [
    # Addresses allocated by OVN begin with random bytes.
    "init -- set nb_global . options:mac_prefix='\"0a:00:00\"'",
    "ls-add sw0",
    "lsp-add sw0 sw0-p1 -- lsp-set-addresses sw0-p1 '00:00:00:00:00:01 10.0.0.1'",
    "lsp-add sw0 sw0-p2 -- lsp-set-addresses sw0-p2 '00:00:00:00:00:02 10.0.0.2'",
    "lsp-set-port-security sw0-p1 '00:00:00:00:00:01 10.0.0.1'",
    "acl-add sw0 from-lport 1001 'inport == \"sw0-p1\" && ip4' allow-related",
    "acl-add sw0 to-lport 1000 'outport == \"sw0-p2\" && tcp.dst == 80' drop",
    "--log --severity=info --name=deny acl-add sw0 to-lport 900 'ip6' reject",
    "lr-add r0",
    "lrp-add r0 r0-sw0 00:00:00:00:ff:01 10.0.0.254/24",
    "lsp-add sw0 sw0-r0 -- lsp-set-type sw0-r0 router -- lsp-set-addresses sw0-r0 router"
    " -- lsp-set-options sw0-r0 router-port=r0-sw0",
    "ls-add sw1",
    "lrp-add r0 r0-sw1 00:00:00:00:ff:02 10.0.1.254/24 fd00::1/64",
    "lsp-add sw1 sw1-r0 -- lsp-set-type sw1-r0 router -- lsp-set-addresses sw1-r0 router"
    " -- lsp-set-options sw1-r0 router-port=r0-sw1",
    "lsp-add sw1 sw1-p1 -- lsp-set-addresses sw1-p1 'dynamic'",
    "lr-route-add r0 192.168.0.0/16 10.0.1.1",
    "lr-nat-add r0 snat 172.16.0.1 10.0.0.0/24",
    "lb-add lb0 10.0.0.100:80 10.0.0.1:80,10.0.0.2:80",
    "ls-lb-add sw0 lb0",
    "pg-add group sw0-p1 sw0-p2",
    "set logical_switch sw1 other_config:subnet=10.0.1.0/24",
    "lsp-del sw0-p2",
    "lsp-add sw0 sw0-p3 -- lsp-set-addresses sw0-p3 unknown",
]


class Ovn:
    """Both databases of OVN, and northd between them."""

    def __init__(self, server):
        self.server = server
        north, south = (f"--ovn{which}-db={server.remote}" for which in ("nb", "sb"))
        log = server.directory / "northd.log"
        words = [server.peers / "ovn-northd", north, south, f"--log-file={log}", "-vconsole:off"]
        words.append(f"--unixctl={server.directory / 'northd.ctl'}")
        self.process = subprocess.Popen([str(word) for word in words], env=server.environment, stdin=subprocess.DEVNULL)

    def nbctl(self, words):
        """Runs ovn-nbctl with shell words, and waits until northd has processed the change."""
        line = f"'{self.server.peers / 'ovn-nbctl'}' --timeout=60 --db={self.server.remote} --wait=sb {words}"
        return run(["sh", "-c", line], env=self.server.environment).out

    def sbctl(self, *words):
        return self.server.run("ovn-sbctl", "--timeout=60", f"--db={self.server.remote}", *words).out

    def flows(self):
        """The logical flows, in an order that does not depend on UUIDs."""
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", self.sbctl("lflow-list"))
        return {part.split("\n", 1)[0]: sorted(part.splitlines()) for part in text.split("Datapath: ") if part}

    def stop(self):
        code = self.process.poll()
        self.process.terminate()
        self.process.wait(timeout=60)
        assert code is None, f"northd ended with {code}"


@pytest.fixture
def ovn(serve, peers):
    schemas = [peers.parent / f"usr/share/ovn/ovn-{which}.ovsschema" for which in ("nb", "sb")]
    assert (peers / "ovn-northd").exists(), f"no ovn-northd in {peers}: run tests/peers/unpack.sh DIR ovn first"
    started = []

    def make(maker=None):
        ovn = Ovn(serve(*schemas, maker=maker))
        started.append(ovn)
        return ovn

    yield make
    for ovn in started:
        ovn.stop()


def test_ovn(ovn, peers):
    ours, theirs = ovn(), ovn(maker=peers)
    for words in NETWORK:
        said = [each.nbctl(words) for each in (ours, theirs)]
        assert said[0] == said[1], words
    for each in (ours, theirs):
        each.sbctl("chassis-add", "hv1", "geneve", "127.0.0.1")
        each.sbctl("lsp-bind", "sw0-p1", "hv1")
        each.nbctl("sync")
    flows = ours.flows()
    # Two switches and a router, each with an ingress and an egress pipeline.
    assert len(flows) == 6 and sum(len(lines) for lines in flows.values()) > 300
    assert flows == theirs.flows()
    shown = [re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", each.sbctl("show")) for each in (ours, theirs)]
    assert shown[0] == shown[1] and "sw0-p1" in shown[0]
    columns = ["--columns=name,up,addresses,dynamic_addresses", "list", "logical_switch_port"]
    ports = [sorted(each.nbctl(" ".join(columns)).strip().split("\n\n")) for each in (ours, theirs)]
    assert ports[0] == ports[1]

    # northd continues with a server that was killed and restarted.
    ours.server.kill()
    ours.server.start()
    for each in (ours, theirs):
        each.nbctl("ls-add sw2 -- lsp-add sw2 sw2-p1 -- lsp-set-addresses sw2-p1 '00:00:00:00:00:05'")
    assert ours.flows() == theirs.flows()
