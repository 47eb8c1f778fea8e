"""The database over TLS, with Debian's programs, which use OpenSSL; and the permissions of roles of remotes."""

import json
import re
import subprocess
import sys

import pytest

from pki import Authority
from switch import run
from test_tls import certificate_bytes
from waiting import until

PORT = 6640
TARGET = f"ssl:127.0.0.1:{PORT}"
LISTEN = f"pssl:{PORT}:127.0.0.1"
COLUMNS = [
    "--private-key=db:Open_vSwitch,SSL,private_key",
    "--certificate=db:Open_vSwitch,SSL,certificate",
    "--ca-cert=db:Open_vSwitch,SSL,ca_cert",
    "--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
]
MAKERS = pytest.mark.parametrize("makers", ["ours-peers", "peers-ours", "ours-ours"])


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "pki")


@pytest.fixture
def stranger(authority):
    return Authority(authority.directory / "other", "other")


def serving(making, peers, makers, *words):
    """A database server of the first maker with these options, and the tools of the second."""
    server, tools = makers.split("-")
    switch = making.switch(start=False, maker=peers if server == "peers" else None)
    switch.create_database()
    switch.start_database(*words)
    switch.ours.vsctl("--no-wait", "init")
    return switch, getattr(switch, tools)


def fails(tools, program, *words):
    """The error output of a failing program."""
    output = tools.run(program, "-t", "30", *words, check=False)
    assert output.code == 1 and output.out == "", str(output)
    return output.err


def is_connected(switch):
    """The connection state of the only manager in the database."""
    return switch.vsctl("--columns=is_connected", "--bare", "list", "manager") == "true"


@MAKERS
@pytest.mark.parametrize("algorithm", ["ec", "rsa"])
def test_programs_connect_to_a_server(making, peers, authority, stranger, makers, algorithm):
    options = authority.options("server", algorithm=algorithm)
    switch, tools = serving(making, peers, makers, f"--remote={LISTEN}", *options)
    me = authority.options("operator", algorithm=algorithm)
    assert tools.ovsdb_client(*me, "list-dbs", TARGET) == "Open_vSwitch\n_Server"
    # More than a TLS record holds, in both directions.
    operations = ["Open_vSwitch", {"op": "insert", "table": "SSL", "row": {"private_key": "x" * 100_000}}]
    operations += [{"op": "select", "table": "SSL", "where": [], "columns": ["private_key"]}]
    assert "x" * 100_000 in tools.ovsdb_client(*me, "transact", TARGET, json.dumps(operations))
    add = ["--", "add-br", "br{0}", "--", "set", "bridge", "br{0}", "external_ids:a=" + "y" * 1000]
    many = [word.format(n) for n in range(50) for word in add][1:]
    tools.vsctl("--no-wait", f"--db={TARGET}", *me, *many)
    assert len(tools.vsctl(f"--db={TARGET}", *me, "list-br").splitlines()) == 50
    assert tools.ovsdb_client(*me, "dump", TARGET, "Open_vSwitch", "Bridge").count("y" * 1000) == 50
    # A peer without a certificate of the CA is rejected, and rejects the server.
    other = stranger.options("stranger")
    for wrong in (other, [*me[:4], *other[4:]], [*other[:4], *me[4:]]):
        assert fails(tools, "ovsdb-client", *wrong, "list-dbs", TARGET)
        assert fails(tools, "ovs-vsctl", f"--db={TARGET}", *wrong, "show")
    # A client that trusts all servers is accepted.
    assert tools.ovsdb_client(*me[:4], "-C", "none", "list-dbs", TARGET)
    # Other clients are served at the same time, and afterwards.
    assert tools.vsctl("list-br").count("br") == 50


@pytest.mark.parametrize("makers", ["ours-peers", "peers-ours"])
def test_without_a_certificate(making, peers, authority, makers):
    switch, tools = serving(making, peers, makers, f"--remote={LISTEN}", *authority.options("server"))
    for program, words in (("ovsdb-client", ["list-dbs", TARGET]), ("ovs-vsctl", [f"--db={TARGET}", "show"])):
        error = fails(tools, program, *words)
        for what in ("Private key", "Certificate", "CA certificate"):
            assert f"stream_ssl|ERR|{what} must be configured to use SSL" in error
        assert "Protocol not available" in error
    # A client without a certificate gets no reply.
    ask = json.dumps({"id": 1, "method": "list_dbs", "params": []})
    for version in ("-tls1_2", "-tls1_3"):
        words = ["openssl", "s_client", "-quiet", version, "-connect", f"127.0.0.1:{PORT}", "-CAfile", authority.certificate]
        answer = run(switch.inside(words), check=False, input=ask)
        assert "Open_vSwitch" not in answer.out
        key, certificate = authority.issue("openssl")
        with subprocess.Popen(
            [str(word) for word in switch.inside([*words, "-cert", certificate, "-key", key])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) as talk:
            talk.stdin.write(ask)
            talk.stdin.flush()
            assert "Open_vSwitch" in talk.stdout.read(60)
            talk.kill()


@MAKERS
def test_a_switch_on_a_remote_database(making, peers, authority, makers):
    server, other = makers.split("-")
    switch = making.switch(start=False, maker=peers if other == "peers" else None)
    switch.create_database()
    database = making.switch(start=False, maker=peers if server == "peers" else None, directory=switch.directory)
    database.namespace = switch.namespace
    database.start_database(f"--remote={LISTEN}", *authority.options("server"))
    switch.ours.vsctl("--no-wait", "init")
    switch.start_switch("--enable-dummy", "--disable-system", *authority.options("switch"), TARGET)
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    assert switch.vsctl("get", "interface", "br0", "ofport") == "65534"
    # The client finds a restarted server again.
    database.kill("ovsdb-server")
    database.start_database(f"--remote={LISTEN}", *authority.options("server"))
    switch.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy")
    assert switch.vsctl("get", "interface", "br1", "ofport") == "65534"


@MAKERS
def test_certificate_files_named_in_the_database(making, peers, authority, stranger, makers):
    switch, tools = serving(making, peers, makers, *COLUMNS)
    assert switch.appctl("-t", "ovsdb-server", "ovsdb-server/list-remotes").splitlines() == [
        COLUMNS[3].removeprefix("--remote="), f"punix:{switch.socket}"
    ]
    options = authority.options("operator")
    switch.vsctl("--no-wait", "set-manager", LISTEN)
    key, certificate = authority.issue("server")
    switch.vsctl("--no-wait", "set-ssl", key, certificate, authority.certificate)

    def answers(options):
        return tools.run("ovsdb-client", "-t", "30", *options, "list-dbs", TARGET, check=False).code == 0

    until(lambda: answers(options), lambda: switch.log("ovsdb-server"))
    monitor = [str(word) for word in switch.inside([tools.directory / "ovsdb-client", *options, "monitor", TARGET, "Bridge", "name"])]
    with subprocess.Popen(monitor, env=switch.environment, stdout=subprocess.PIPE, text=True) as watching:
        until(lambda: is_connected(switch), "the connection reported")
        watching.kill()
    # Another CA, key and certificate apply at once.
    renewed = stranger.options("operator")
    assert not answers(renewed)
    switch.vsctl("--no-wait", "set-ssl", *stranger.issue("server"), stranger.certificate)
    until(lambda: answers(renewed), lambda: switch.log("ovsdb-server"))
    assert not answers(options)
    # So do replaced files.
    key, certificate = authority.issue("server")
    for new, old in ((key, "server-key.pem"), (certificate, "server-cert.pem"), (authority.certificate, stranger.certificate.name)):
        (stranger.directory / old).write_bytes(new.read_bytes())
    until(lambda: answers(options), lambda: switch.log("ovsdb-server"))
    assert not answers(renewed)
    # Without files, no client is accepted; Debian's server keeps the previous ones.
    if makers.startswith("peers"):
        return
    switch.vsctl("--no-wait", "del-ssl")
    until(lambda: not answers(options), lambda: switch.log("ovsdb-server"))
    assert switch.vsctl("get-manager") == LISTEN


@MAKERS
def test_an_active_manager_connection(making, peers, authority, makers):
    switch, tools = serving(making, peers, makers, *COLUMNS)
    switch.vsctl("--no-wait", "set-ssl", *authority.issue("server"), authority.certificate)
    words = [tools.directory / "ovsdb-client", *authority.options("manager"), "monitor", LISTEN, "Open_vSwitch", "Open_vSwitch", "next_cfg"]
    monitor = [str(word) for word in switch.inside(words)]
    with subprocess.Popen(monitor, env=switch.environment, stdout=subprocess.PIPE, text=True) as manager:
        switch.vsctl("--no-wait", "set-manager", TARGET)
        assert "next_cfg" in until(manager.stdout.readline, lambda: switch.log("ovsdb-server"))
        until(lambda: is_connected(switch), "the connection reported")
        manager.kill()


@MAKERS
def test_the_ca_is_learned_from_the_server(making, peers, authority, stranger, makers):
    # Only the connecting side learns the CA: the server, which does not know it either, rejects all clients.
    learned, mine = (authority.directory / f"{who}-learned.pem" for who in ("server", "client"))
    key, certificate = authority.issue("server")
    words = ["-p", key, "-c", certificate, f"--bootstrap-ca-cert={learned}", f"--peer-ca-cert={authority.certificate}"]
    switch, tools = serving(making, peers, makers, f"--remote={LISTEN}", *words)
    key, certificate = authority.issue("client")
    me = ["-p", key, "-c", certificate, f"--bootstrap-ca-cert={mine}", f"--peer-ca-cert={authority.certificate}"]
    # The connection that learns the CA ends.
    assert fails(tools, "ovs-vsctl", f"--db={TARGET}", *me, "show")
    assert certificate_bytes(mine) == certificate_bytes(authority.certificate)
    assert fails(tools, "ovs-vsctl", f"--db={TARGET}", *me, "show")
    assert not learned.exists()
    learned.write_bytes(authority.certificate.read_bytes())
    assert tools.vsctl(f"--db={TARGET}", *me, "show")
    # Afterwards no other CA is trusted.
    for file, old in zip(stranger.issue("server"), ("server-key.pem", "server-cert.pem")):
        (authority.directory / old).write_bytes(file.read_bytes())
    assert fails(tools, "ovsdb-client", *me[:5], "list-dbs", TARGET)


def test_versions_and_ciphers(making, peers, authority):
    limits = ["--ssl-protocols=TLSv1.2", "--ssl-ciphers=ECDHE-ECDSA-AES256-GCM-SHA384"]
    switch, ours = serving(making, peers, "ours-ours", f"--remote={LISTEN}", *authority.options("server"), *limits)
    me = authority.options("operator")
    for tools in (ours, switch.peers):
        assert tools.ovsdb_client(*me, "list-dbs", TARGET)
        assert tools.ovsdb_client(*me, "--ssl-protocols=TLSv1.2", "--ssl-ciphers=ECDHE+AES256", "list-dbs", TARGET)
        assert fails(tools, "ovsdb-client", *me, "--ssl-ciphers=ECDHE-ECDSA-AES128-GCM-SHA256", "list-dbs", TARGET)
    assert fails(ours, "ovsdb-client", *me, "--ssl-protocols=TLSv1.3", "list-dbs", TARGET)
    for program, words in (("ovsdb-client", ["list-dbs", TARGET]), ("ovs-vsctl", [f"--db={TARGET}", "show"])):
        # The error is logged, and the default stays.
        for tools in (ours, switch.peers):
            done = tools.run(program, *me, "--ssl-protocols=TLSv1", *words)
            assert "stream_ssl|ERR|TLSv1: SSL/TLS protocol not recognized" in done.err
        assert "no cipher match" in ours.run(program, *me, "--ssl-ciphers=NONSENSE", *words).err


def test_a_silent_client_delays_no_other_and_is_disconnected(making, peers, authority):
    switch, tools = serving(making, peers, "ours-peers", f"--remote={LISTEN}", *authority.options("server"))
    silent = [str(word) for word in switch.inside(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; echo; exec cat <&3"])]
    # More connections than the limit of handshakes.
    many = [subprocess.Popen(silent, stdout=subprocess.PIPE) for _ in range(70)]
    for one in many:
        assert one.stdout.readline() == b"\n"
    assert tools.ovsdb_client(*authority.options("operator"), "list-dbs", TARGET)
    for one in many:
        # The loop ends when the server closes the connection.
        assert one.communicate(timeout=90)[0] == b""
    assert tools.ovsdb_client(*authority.options("operator"), "list-dbs", TARGET)


def test_both_in_one_process_take_files_from_the_database(making, peers, programs, authority):
    switch = making.switch(start=False)
    binary = (programs / "ovs-vsctl").resolve()
    # A remote that cannot listen yet does not prevent the start.
    switch.start_both(binary, "--enable-dummy", "--disable-system")
    switch.vsctl("set-manager", LISTEN)
    switch.vsctl("set-ssl", *authority.issue("switch"), authority.certificate)
    options = authority.options("operator")
    listed = lambda: switch.peers.run("ovs-vsctl", "-t", "30", *options, f"--db={TARGET}", "list-br", check=False)
    until(lambda: listed().code == 0, lambda: str(listed()))
    switch.peers.vsctl(*options, f"--db={TARGET}", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    switch.vsctl("--no-wait", "del-ssl")
    pid = switch.pid("ovs-vswitchd")
    switch.appctl("exit")
    switch.wait_gone(pid)
    switch.start_both(binary, "--enable-dummy", "--disable-system")
    assert switch.vsctl("list-br") == "br0"


# Roles.

ANY = {"min": 0, "max": "unlimited"}
SCHEMA = {
    "name": "R",
    "version": "1.0.0",
    "tables": {
        "Top": {
            "isRoot": True,
            "columns": {"connections": {"type": {"key": {"type": "uuid", "refTable": "Connection"}, **ANY}}},
        },
        "Connection": {
            "columns": {"target": {"type": "string"}, "role": {"type": "string"}, "read_only": {"type": "boolean"}},
        },
        "RBAC_Role": {
            "isRoot": True,
            "columns": {
                "name": {"type": "string"},
                "permissions": {
                    "type": {
                        "key": "string",
                        "value": {"type": "uuid", "refTable": "RBAC_Permission", "refType": "weak"},
                        **ANY,
                    }
                },
            },
        },
        "RBAC_Permission": {
            "isRoot": True,
            "columns": {
                "table": {"type": "string"},
                "authorization": {"type": {"key": "string", **ANY}},
                "insert_delete": {"type": "boolean"},
                "update": {"type": {"key": "string", **ANY}},
            },
        },
        "A": {
            "isRoot": True,
            "columns": {
                "owner": {"type": "string"},
                "optional": {"type": {"key": "string", "min": 0}},
                "other": {"type": "string"},
                "ids": {"type": {"key": "string", "value": "string", **ANY}},
                "set": {"type": {"key": "string", **ANY}},
                "n": {"type": "integer"},
                "kids": {"type": {"key": {"type": "uuid", "refTable": "Kid"}, **ANY}},
            },
        },
        "Kid": {"columns": {"name": {"type": "string"}}},
        "B": {"isRoot": True, "columns": {"name": {"type": "string"}}},
    },
}


def insert(table, name=None, /, **row):
    return {"op": "insert", "table": table, "row": row, **({"uuid-name": name} if name else {})}


def update(table, where, **row):
    return {"op": "update", "table": table, "where": where, "row": row}


def mutate(table, where, *mutations):
    return {"op": "mutate", "table": table, "where": where, "mutations": mutations}


def delete(table, *where):
    return {"op": "delete", "table": table, "where": where}


def members(*items):
    return ["set", items]


def pairs(*items):
    return ["map", items]


SET_UP = [
    insert("RBAC_Permission", "a", authorization=members("owner", "ids:k", "set", "optional"), insert_delete=True,
           update=members("n", "ids", "other", "kids")),
    insert("RBAC_Permission", "b", authorization="", insert_delete=False, update="name"),
    insert("RBAC_Role", name="worker", permissions=pairs(["A", ["named-uuid", "a"]], ["B", ["named-uuid", "b"]])),
    insert("Top", connections=members(*(["named-uuid", name] for name in ("tls", "read", "unix", "unknown")))),
    insert("Connection", "tls", target=LISTEN, role="worker"),
    insert("Connection", "read", target=f"pssl:{PORT + 1}:127.0.0.1", role="worker", read_only=True),
    insert("Connection", "unix", target="punix:unix", role="worker"),
    insert("Connection", "unknown", target=f"pssl:{PORT + 2}:127.0.0.1", role="nobody"),
    insert("B", name="b"),
    insert("A", owner="bob", n=100),
]


def permit(*names, **more):
    """An operation of the administrator: sets the owner of rows of A."""
    return update("RBAC_Permission", [["insert_delete", "==", True]], authorization=members(*names), **more)


N1, N100, OWN = [["n", "==", 1]], [["n", "==", 100]], [["owner", "==", "alice"]]
# Steps in sequence: the client's name or remote, and the operations.
STEPS = [
    ("alice", insert("A", owner="alice", n=1)),
    ("alice", insert("A", owner="bob")),
    ("alice", insert("A", ids=pairs(["k", "alice"]), n=3)),
    ("alice", insert("A", ids=pairs(["z", "alice"]))),
    ("alice", insert("A", set="alice")),
    ("alice", insert("A", optional="alice", n=5)),
    ("alice", insert("B", name="x")),
    ("alice", insert("RBAC_Role", name="x")),
    ("alice", insert("Kid", name="x")),
    ("alice", insert("A", nothing="x")),
    ("alice", insert("Connection", target=5)),
    ("alice", insert("A", "x", owner="alice"), insert("A", "x", owner="bob")),
    ("alice", insert("A", owner="alice", n=60), insert("A", owner="bob"), {"op": "comment", "comment": "x"}),
    ("alice", insert("A", owner="alice", kids=["named-uuid", "kid"]), insert("Kid", "kid", name="x")),
    ("alice", update("A", N1, n=2), update("A", [["n", "==", 2]], n=1)),
    ("alice", update("A", N100, n=101)),
    ("alice", update("A", [], n=7)),
    ("alice", update("A", [["n", "==", 777]], n=7)),
    ("alice", update("A", [["n", "==", 777]], owner="x")),
    ("alice", update("A", N1, set="q")),
    ("alice", update("A", N1, owner="alice")),
    ("alice", update("A", N1, n=1, owner="alice")),
    ("alice", update("A", N1)),
    ("alice", update("B", [], name="bb")),
    ("alice", update("Kid", [], name="bb")),
    ("alice", update("Top", [])),
    ("alice", mutate("A", N1, ["n", "+=", 1], ["n", "-=", 1])),
    ("alice", mutate("A", N100, ["n", "+=", 1])),
    ("alice", mutate("A", [], ["n", "+=", 1])),
    ("alice", mutate("A", N1, ["set", "insert", "q"])),
    ("alice", mutate("A", N1, ["ids", "insert", pairs(["q", "r"])])),
    ("alice", mutate("A", [["n", "==", 777]], ["set", "insert", "q"])),
    ("alice", mutate("A", N1, ["owner", "insert", "q"])),
    ("alice", mutate("A", N1)),
    ("alice", mutate("Top", [])),
    ("alice", insert("A", owner="alice", n=50), update("A", [["n", "==", 50]], n=51), delete("A", ["n", "==", 51])),
    ("alice", update("A", OWN, other="q"), mutate("A", OWN, ["n", "+=", 1]), mutate("A", OWN, ["n", "-=", 1])),
    ("alice", {"op": "select", "table": "RBAC_Role", "where": [], "columns": ["name"]}),
    ("alice", {"op": "wait", "table": "A", "where": N100, "columns": ["n"], "until": "==", "rows": [{"n": 100}], "timeout": 0}),
    ("alice", delete("A", ["n", "==", 777])),
    ("alice", delete("A", *N100)),
    ("alice", delete("A", *N1)),
    ("alice", delete("B")),
    ("alice", delete("B", ["name", "==", "nothing"])),
    ("alice", delete("Top")),
    ("alice", delete("Kid")),
    ("bob", update("A", N100, other="by bob")),
    ("bob", insert("A", owner="alice")),
    # A client without a name, by a remote with a role.
    ("unix", insert("A", owner="alice")),
    ("unix", update("B", [], name="bb")),
    ("unix", delete("Kid")),
    ("unix", {"op": "comment", "comment": "x"}),
    # A role that does not exist, and a read-only remote.
    ("unknown", insert("A", owner="unknown")),
    ("read", insert("A", owner="read")),
    ("read", insert("A", owner="bob")),
    ("read", insert("A", nothing=1)),
    ("read", update("A", [["n", "==", 777]], n=1)),
    ("read", update("Top", [])),
    ("read", mutate("A", [["n", "==", 777]])),
    ("read", delete("B")),
    ("read", delete("B", ["name", "==", "nothing"])),
    # Ways to name the owner of a row.
    *(
        step
        for names in ([], ["", "owner"], ["nothing", "owner"], ["ids::k"], ["ids:k:x"], [":owner"], ["owner:"], [":"], ["_uuid"],
                      ["ids"], ["owner:k"], ["n"], ["n:alice", "kids"], ["optional"])
        for step in (
            ("admin", permit(*names)),
            ("alice", insert("A", owner="alice", optional="alice")),
            ("alice", insert("A", ids=pairs(["k", "alice"]))),
            ("alice", insert("A", owner="zoe")),
            ("unix", insert("A", owner="alice")),
        )
    ),
    # A key of a map is no column.
    ("admin", permit("", update=members("ids:k", ""))),
    ("alice", update("A", [], ids=pairs(["k", "alice"]))),
    ("alice", mutate("A", [], ["ids", "insert", pairs(["k", "alice"])])),
    ("alice", update("A", [], n=5)),
    # The administrator has no restrictions, and a role can be revoked.
    ("admin", {"op": "select", "table": "A", "where": [["owner", "==", "bob"]], "columns": ["n", "other"]}),
    ("admin", delete("RBAC_Role")),
    ("alice", insert("A", owner="alice")),
]


def answers(making, maker, authority, directory):
    """The replies of a server to all steps, without UUIDs."""
    switch = making.switch(start=False, maker=maker)
    schema = directory / "schema"
    schema.write_text(json.dumps(SCHEMA))
    run([switch.programs / "ovsdb-tool", "create", switch.database, schema], env=switch.environment)
    switch.start_database("--remote=db:R,Top,connections", "--no-chdir", *authority.options("server"))
    tool = switch.peers

    def ask(who, *operations):
        port = {"read": PORT + 1, "unknown": PORT + 2}.get(who, PORT)
        remote = {"admin": f"unix:{switch.socket}", "unix": f"unix:{switch.unix}"}.get(who, f"ssl:127.0.0.1:{port}")
        options = authority.options(who) if remote.startswith("ssl:") else []
        return tool.run("ovsdb-client", "-t", "60", *options, "transact", remote, json.dumps(["R", *operations]), check=False)

    switch.unix = switch.directory / "unix"
    set_up = json.loads(json.dumps(SET_UP).replace("punix:unix", f"punix:{switch.unix}"))
    assert "error" not in ask("admin", *set_up).out
    until(lambda: ask("unknown").code == 0, lambda: switch.log("ovsdb-server"))
    replies = []
    for who, *operations in STEPS:
        output = ask(who, *operations)
        assert output.code == 0, str(output)
        replies.append(re.sub(r"[0-9a-f]{8}-[-0-9a-f]{27}", "UUID", output.out))
    options = authority.options("alice")
    converted = tool.run("ovsdb-client", "-t", "60", *options, "convert", TARGET, schema, check=False)
    return replies, re.sub(r"^\S+\|", "", converted.err)


def test_roles(making, peers, authority, tmp_path):
    (theirs, their_conversion), (ours, our_conversion) = (
        answers(making, maker, authority, tmp_path) for maker in (peers, None)
    )
    for step, their_reply, our_reply in zip(STEPS, theirs, ours):
        assert json.loads(our_reply) == json.loads(their_reply), step
    assert "prohibit \\\"convert\\\" of database R" in their_conversion
    assert our_conversion == their_conversion
    refused = sum("permission error" in reply for reply in theirs)
    assert 30 < refused < len(STEPS) - 30


def test_a_changed_role_applies_to_open_connections(making, authority, tmp_path):
    """Debian's server keeps the first role of the remote."""
    switch = making.switch(start=False)
    schema = tmp_path / "schema"
    schema.write_text(json.dumps(SCHEMA))
    run([switch.programs / "ovsdb-tool", "create", switch.database, schema], env=switch.environment)
    switch.start_database("--remote=db:R,Top,connections", *authority.options("server"))
    admin = f"unix:{switch.socket}"

    def ask(remote, *operations):
        options = authority.options("alice") if remote.startswith("ssl:") else []
        return switch.peers.ovsdb_client(*options, "transact", remote, json.dumps(["R", *operations]))

    ask(admin, insert("Top", connections=["named-uuid", "tls"]), insert("Connection", "tls", target=LISTEN))
    until(lambda: TARGET.split(":")[2] in run(switch.inside(["ss", "-ltn"])).out, "the server listening")
    assert "permission error" not in ask(TARGET, insert("B", name="x"))
    words = switch.inside([switch.peers.directory / "ovsdb-client", *authority.options("alice"), "monitor", TARGET, "R", "B"])
    with subprocess.Popen([str(word) for word in words], env=switch.environment, stdout=subprocess.PIPE) as monitor:
        until(monitor.stdout.readline, "the contents")
        ask(admin, update("Connection", [], role="worker"))
        # The server disconnects the client: its former permissions end.
        monitor.wait(timeout=90)
    assert "permission error" in ask(TARGET, insert("B", name="x"))
    ask(admin, update("Connection", [], role="", read_only=True))
    until(lambda: "read only mode" in ask(TARGET, insert("B", name="x")), "the remote read only")


def server_name(switch, *words):
    """The server name in a client's first TLS message (RFC 6066 section 3)."""
    listen = [
        "import socket, sys",
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))",
        "print(flush=True)",
        "print(listener.accept()[0].recv(4096).hex())",
    ]
    command = switch.inside([sys.executable, "-c", "; ".join(listen), PORT])
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout.readline() == "\n"
        switch.ours.run(*words, check=False)
        hello = bytes.fromhex(listener.stdout.read())
    # One name of type host (0), in extension 0.
    found = re.search(rb"\0\0(..)(..)\0(..)", hello, re.DOTALL)
    while found:
        sizes = [int.from_bytes(size) for size in found.groups()]
        if sizes[0] == sizes[1] + 2 == sizes[2] + 5:
            return hello[found.end() : found.end() + sizes[2]].decode()
        found = re.compile(rb"\0\0(..)(..)\0(..)", re.DOTALL).search(hello, found.start() + 1)
    return None


def test_server_name_indication(making, authority):
    switch = making.switch(start=False)
    me = authority.options("operator")
    named = f"ssl:localhost:{PORT}"
    other = "--ssl-server-name=db.example.org"
    programs = [
        ("ovsdb-client", "-t", "5", *me, "{}", "list-dbs", "{target}"),
        ("ovs-vsctl", "-t", "5", *me, "{}", "--db={target}", "show"),
        ("ovs-ofctl", "-t", "5", *me, "{}", "show", "{target}"),
    ]
    for program in programs:
        def words(option, target):
            words = [str(word).replace("{target}", target).replace("{}", option) for word in program]
            return [word for word in words if word]

        assert server_name(switch, *words("", named)) == "localhost", program
        assert server_name(switch, *words("", TARGET)) is None, program
        for target in (named, TARGET):
            assert server_name(switch, *words(other, target)) == "db.example.org", program
        # An address is no name of a server, which the log says.
        assert server_name(switch, *words("--ssl-server-name=127.0.0.1", TARGET)) is None, program
        assert server_name(switch, *words("--ssl-server-name=127.0.0.1", named)) == "localhost", program


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_dscp_of_manager_connections(making, host):
    switch = making.switch(start=False)
    switch.create_database()
    switch.start_database("--remote=db:Open_vSwitch,Open_vSwitch,manager_options")
    switch.vsctl("--no-wait", "init")

    def of_port(port):
        """The classes of packets from a port: of the listener, and of connections."""
        lines = run(switch.inside(["ss", "-tanH", "--tos", f"sport = :{port}"])).out
        lines = re.sub(r"\n\s+", " ", lines).splitlines()
        word = "tclass" if host.startswith("[") else "tos"
        return {line.split()[0]: int(re.search(rf"{word}:((?:0x)?[0-9a-f]+)", line)[1], 16) >> 2 for line in lines}

    switch.vsctl("--no-wait", "set-manager", f"ptcp:{PORT}:{host}")
    until(lambda: of_port(PORT).get("LISTEN") == 48, lambda: switch.log("ovsdb-server"))
    tools = switch.peers
    words = [tools.directory / "ovsdb-client", "monitor", f"tcp:{host}:{PORT}", "Open_vSwitch", "Bridge", "name"]
    monitor = [str(word) for word in switch.inside(words)]
    with subprocess.Popen(monitor, env=switch.environment, stdout=subprocess.DEVNULL) as watching:
        until(lambda: of_port(PORT) == {"LISTEN": 48, "ESTAB": 48}, lambda: switch.log("ovsdb-server"))
        # Changes apply to open connections, too.
        switch.vsctl("--no-wait", "set", "manager", ".", "other_config:dscp=10")
        until(lambda: of_port(PORT) == {"LISTEN": 10, "ESTAB": 10}, lambda: switch.log("ovsdb-server"))
        switch.vsctl("--no-wait", "set", "manager", ".", "other_config:dscp=64")
        until(lambda: "other_config:dscp: \"64\" is no number from 0 to 63" in switch.log("ovsdb-server"), "a complaint")
        until(lambda: of_port(PORT) == {"LISTEN": 48, "ESTAB": 48}, lambda: switch.log("ovsdb-server"))
        assert watching.poll() is None
        watching.kill()
    # The same for a manager to which the server connects.
    words = [tools.directory / "ovsdb-client", "monitor", f"ptcp:{PORT + 1}:{host}", "Open_vSwitch", "Bridge", "name"]
    monitor = [str(word) for word in switch.inside(words)]
    with subprocess.Popen(monitor, env=switch.environment, stdout=subprocess.DEVNULL) as manager:
        switch.vsctl("--no-wait", "set-manager", f"tcp:{host}:{PORT + 1}")
        switch.vsctl("--no-wait", "set", "manager", ".", "other_config:dscp=0")

        def of_connections():
            lines = run(switch.inside(["ss", "-tnHp", "--tos", f"dport = :{PORT + 1}"])).out
            return [int(tos, 16) >> 2 for tos in re.findall(r"(?:tclass|tos):((?:0x)?[0-9a-f]+)", lines)]

        until(lambda: of_connections() and set(of_connections()) <= {0}, lambda: switch.log("ovsdb-server"))
        manager.kill()


@pytest.mark.parametrize("maker", ["ours", "peers"])
def test_the_switch_uses_the_ssl_row_for_its_own_connection(making, peers, authority, stranger, maker):
    """The row SSL applies to all connections of the program, including the next one to the database."""
    switch = making.switch(start=False, maker=peers if maker == "peers" else None)
    switch.create_database()
    database = making.switch(start=False, directory=switch.directory)
    database.namespace = switch.namespace
    database.start_database(f"--remote={LISTEN}", *authority.options("server"))
    switch.ours.vsctl("--no-wait", "init")
    switch.start_switch("--enable-dummy", "--disable-system", *authority.options("switch"), TARGET)
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    # Missing files change nothing.
    switch.vsctl("--no-wait", "set-ssl", "/none/key", "/none/cert", "/none/ca")
    switch.vsctl("set", "bridge", "br0", "other_config:x=1")
    database.kill("ovsdb-server")
    database.start_database(f"--remote={LISTEN}", *authority.options("server"))
    switch.vsctl("set", "bridge", "br0", "other_config:x=2")
    # From here on the other CA is in use.
    switch.vsctl("set-ssl", *stranger.issue("switch"), stranger.certificate)
    database.kill("ovsdb-server")
    database.start_database(f"--remote={LISTEN}", *stranger.options("server"))
    switch.vsctl("set", "bridge", "br0", "other_config:x=3")


def test_the_server_logs_the_indicated_name(making, peers, authority):
    words = [f"--remote={LISTEN}", *authority.options("server"), "-vstream_ssl:file:dbg"]
    switch, ours = serving(making, peers, "ours-ours", *words)
    assert ours.ovsdb_client(*authority.options("operator"), "list-dbs", f"ssl:localhost:{PORT}")
    assert "stream_ssl|DBG|connection indicated server name localhost" in switch.log("ovsdb-server")
