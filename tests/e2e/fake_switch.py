"""The switch's side of an OpenFlow connection alone, to record the replies of a controller."""

import socket
import struct

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY, PACKET_IN = 0, 1, 2, 3, 5, 6, 10
MULTIPART_REQUEST, MULTIPART_REPLY, PORT_DESC = 18, 19, 13
NO_BUFFER = 0xFFFFFFFF
PORTS = [(1, "p1"), (2, "p2"), (3, "p3")]


class FakeSwitch:
    """A connection to a controller at a unix socket, in one version."""

    def __init__(self, path, version):
        self.version = version
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.bytes = b""
        self.xid = 1000
        bitmap = struct.pack("!HHI", 1, 8, 1 << version)
        self.send(HELLO, bitmap if version >= 4 else b"")
        self.hello = self.next()

    def close(self):
        self.socket.close()

    def send(self, kind, body=b"", xid=None):
        if xid is None:
            self.xid += 1
            xid = self.xid
        self.socket.sendall(struct.pack("!BBHI", self.version, kind, 8 + len(body), xid) + body)
        return xid

    def next(self):
        """The next message of the controller; answers requests for features and ports before it."""
        while len(self.bytes) < 8 or len(self.bytes) < int.from_bytes(self.bytes[2:4], "big"):
            received = self.socket.recv(65536)
            assert received, "the controller closed the connection"
            self.bytes += received
        length = int.from_bytes(self.bytes[2:4], "big")
        message, self.bytes = self.bytes[:length], self.bytes[length:]
        xid = int.from_bytes(message[4:8], "big")
        if message[1] == FEATURES_REQUEST:
            self.send(FEATURES_REPLY, self.features(), xid)
        elif message[1] == MULTIPART_REQUEST and self.version >= 4 and message[8:10] == PORT_DESC.to_bytes(2, "big"):
            ports = b"".join(self.port(*port) for port in PORTS)
            self.send(MULTIPART_REPLY, struct.pack("!HH4x", PORT_DESC, 0) + ports, xid)
        return message

    def answers(self):
        """All messages of the controller before its reply to an echo request."""
        marker = self.send(ECHO_REQUEST, b"marker")
        messages = []
        while True:
            message = self.next()
            if message[1] == ECHO_REPLY and int.from_bytes(message[4:8], "big") == marker:
                return messages
            messages.append(message)

    def features(self):
        if self.version == 1:
            return struct.pack("!QIB3xII", 0x1122, 256, 254, 0xC7, 0xFFF) + b"".join(self.port(*port) for port in PORTS)
        body = struct.pack("!QIBB2xII", 0x1122, 256, 254, 0, 0x4F, 0)
        return body + (b"".join(self.port(*port) for port in PORTS) if self.version < 4 else b"")

    def port(self, number, name):
        mac = bytes([2, 0, 0, 0, 0, number])
        if self.version == 1:
            return struct.pack("!H6s16s24x", number, mac, name.encode())
        if self.version < 5:
            return struct.pack("!I4x6s2x16s32x", number, mac, name.encode())
        return struct.pack("!IH2x6s2x16s8x", number, 40, mac, name.encode())

    def packet_in(self, port, frame, buffer_id=NO_BUFFER, reason=0):
        """Sends a packet-in to the controller."""
        if self.version == 1:
            body = struct.pack("!IHHBx", buffer_id, len(frame), port, reason)
        elif self.version == 2:
            body = struct.pack("!IIIHBB", buffer_id, port, port, len(frame), reason, 0)
        else:
            match = struct.pack("!HHII4x", 1, 12, 0x80000004, port)
            cookie = struct.pack("!Q", 2**64 - 1) if self.version >= 4 else b""
            body = struct.pack("!IHBB", buffer_id, len(frame), reason, 0) + cookie + match + bytes(2)
        self.send(PACKET_IN, body + frame)
