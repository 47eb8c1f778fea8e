"""A bad message on any socket ends at most its own connection."""

import json
import socket
import struct

import pytest

from waiting import until

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST = 0, 1, 2, 3, 5
VERSION_10, VERSION_13 = 1, 4


def message(version, kind, body=b"", xid=7, length=None):
    return struct.pack("!BBHI", version, kind, 8 + len(body) if length is None else length, xid) + body


class Connection:
    """Bytes to and from a stream socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def exactly(self, count):
        """Reads `count` bytes, or fewer at the end of the connection."""
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                break
            if not more:
                break
            data += more
        return data

    def receive(self):
        """The next OpenFlow message: version, type, transaction and body; None at the end of the connection."""
        header = self.exactly(8)
        if len(header) < 8:
            return None
        version, kind, length, xid = struct.unpack("!BBHI", header)
        return version, kind, xid, self.exactly(length - 8)

    def reply(self, kind):
        """The next message of that type; None at the end of the connection."""
        while (got := self.receive()) is not None:
            if got[1] == kind:
                return got
        return None

    def is_ended(self):
        """Reads to the end; a connection that stays open fails by its timeout."""
        while self.exactly(65536):
            pass
        return True


@pytest.fixture
def bridge(switch):
    switch.add_dummy_bridge("br0", "p1")
    return switch


def greeted(bridge, version):
    connection = Connection(bridge.management("br0"))
    connection.send(message(version, HELLO))
    assert connection.receive()[1] == HELLO
    return connection


MALFORMED = [
    # (name, version, message, type and code of the error)
    ("unknown type", VERSION_10, message(VERSION_10, 99), (1, 1)),
    ("unknown type in 1.3", VERSION_13, message(VERSION_13, 99), (1, 1)),
    ("short flow mod", VERSION_10, message(VERSION_10, 14, b"\0" * 20), (1, 6)),
    ("short flow mod in 1.3", VERSION_13, message(VERSION_13, 14, b"\0" * 20), (1, 6)),
    ("unknown statistics", VERSION_10, message(VERSION_10, 16, b"\x77\x77\0\0"), (1, 2)),
    ("unknown multipart", VERSION_13, message(VERSION_13, 18, b"\x77\x77\0\0\0\0\0\0"), (1, 2)),
    ("unknown vendor", VERSION_10, message(VERSION_10, 4, b"\0\x12\x34\x56\0\0\0\1"), (1, 3)),
    ("unknown action", VERSION_10, message(VERSION_10, 13, struct.pack("!IHH", 0xFFFFFFFF, 0xFFFF, 8) + struct.pack("!HHI", 0x7777, 8, 0)), (2, 0)),
    ("action without length", VERSION_10, message(VERSION_10, 13, struct.pack("!IHH", 0xFFFFFFFF, 0xFFFF, 8) + bytes(8)), (2, 1)),
    ("action list too long", VERSION_10, message(VERSION_10, 13, struct.pack("!IHH", 0xFFFFFFFF, 0xFFFF, 4000)), (1, 6)),
]


@pytest.mark.parametrize(("version", "bad", "expected"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_malformed_openflow_gets_an_error(bridge, version, bad, expected):
    connection = greeted(bridge, version)
    connection.send(bad)
    error = connection.reply(ERROR)
    assert error is not None, "the connection ended"
    assert error[0] == version and error[2] == 7
    assert struct.unpack_from("!HH", error[3]) == expected
    # The error contains the offending message, and the connection stays open.
    assert error[3][4:] == bad[: len(error[3]) - 4]
    connection.send(message(version, ECHO_REQUEST, b"still there"))
    assert connection.reply(ECHO_REPLY)[3] == b"still there"


@pytest.mark.parametrize(
    "garbage",
    [
        message(VERSION_10, ECHO_REQUEST, length=4),
        message(VERSION_10, ECHO_REQUEST, length=0),
        bytes(64),
        b"GET / HTTP/1.1\r\nHost: switch\r\n\r\n",
        bytes(range(256)) * 16,
    ],
    ids=["length 4", "length 0", "zeros", "http", "bytes"],
)
@pytest.mark.parametrize("first", ["hello", "nothing"])
def test_garbage_ends_its_connection_only(bridge, garbage, first):
    other = greeted(bridge, VERSION_13)
    connection = greeted(bridge, VERSION_10) if first == "hello" else Connection(bridge.management("br0"))
    connection.send(garbage)
    # The switch no longer waits for the rest of a message.
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.is_ended()
    other.send(message(VERSION_13, ECHO_REQUEST, b"x"))
    assert other.reply(ECHO_REPLY)[3] == b"x"
    assert "OFPST_DESC" in bridge.ofctl("dump-desc", "br0")


def test_an_unknown_version(bridge):
    connection = Connection(bridge.management("br0"))
    connection.send(message(0x70, HELLO, struct.pack("!HHI", 1, 8, 1 << 30)))
    got = connection.reply(ERROR)
    # HELLO_FAILED, INCOMPATIBLE.
    assert got is not None and struct.unpack_from("!HH", got[3]) == (0, 0)
    assert connection.is_ended()


@pytest.mark.parametrize("socket_of", ["database", "ovs-vswitchd", "ovsdb-server"])
@pytest.mark.parametrize(
    "garbage",
    [
        b"}",
        b"hello",
        b'{"method": "echo", "params": [], "id": }',
        b'[1, 2, 3]',
        b'{"id": 1}',
        b'{"method": 7, "params": {}, "id": 1}',
        b'{"result": 1, "error": null, "id": 99}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
    ids=["brace", "word", "syntax", "array", "no method", "wrong types", "stray reply", "not text", "deep"],
)
def test_malformed_json_ends_its_connection_only(bridge, socket_of, garbage):
    path = bridge.socket if socket_of == "database" else bridge.control(socket_of)
    connection = Connection(path)
    connection.send(garbage)
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.is_ended()
    # The daemons still answer other clients.
    assert bridge.vsctl("list-br") == "br0"
    bridge.appctl("version")
    bridge.appctl("-t", "ovsdb-server", "version")


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "nosuch"}],
        [{"op": "insert"}],
        [{"op": "insert", "table": "Bridge", "row": {"name": 7}}],
        [{"op": "select", "table": "Bridge", "where": [["name", "nosuch", "x"]]}],
        [{"op": "mutate", "table": "Bridge", "where": [], "mutations": [["name", "+=", 1]]}],
        [{"op": "wait", "table": "Bridge", "timeout": 0, "where": [], "columns": ["name"], "until": "==", "rows": []}],
        [7],
        [{}],
    ],
)
def test_bad_transactions_get_an_error(bridge, operations):
    connection = Connection(bridge.socket)
    request = {"method": "transact", "params": ["Open_vSwitch", *operations], "id": 1}
    connection.send(json.dumps(request).encode())
    buffer = b""
    while True:
        buffer += connection.socket.recv(65536)
        try:
            answer = json.loads(buffer)
            break
        except json.JSONDecodeError:
            continue
    assert answer["error"] is not None or any("error" in (each or {}) for each in answer["result"]), answer
    assert bridge.vsctl("list-br") == "br0"


def test_a_client_that_never_reads(bridge):
    """A connection whose replies pile up does not delay the others."""
    lazy = Connection(bridge.socket)
    lazy.socket.setblocking(False)
    request = json.dumps({"method": "get_schema", "params": ["Open_vSwitch"], "id": 1}).encode()
    try:
        for _ in range(200):
            lazy.socket.sendall(request)
    except BlockingIOError:
        pass
    silent = Connection(bridge.management("br0"))
    for _ in range(3):
        assert bridge.vsctl("list-br") == "br0"
        bridge.ofctl("dump-flows", "br0")
    silent.socket.close()
    lazy.socket.close()
    until(lambda: bridge.vsctl("list-ports", "br0") == "p1", "an answer")
