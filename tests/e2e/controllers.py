"""A controller under control of the test: raw OpenFlow 1.0 over a socket, which records every message."""

import collections
import contextlib
import socket
import struct
import threading

from waiting import until

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, VENDOR, FEATURES_REQUEST = 0, 1, 2, 3, 4, 5
PACKET_IN, BARRIER_REQUEST, BARRIER_REPLY = 10, 18, 19

Message = collections.namedtuple("Message", "type xid body")


class Connection:
    """One connection from a switch. It says HELLO at once if it `greets`, and answers echo requests."""

    def __init__(self, sock, greets=True):
        self.socket = sock
        self.messages = []
        self.closed = False
        if greets:
            self.send(HELLO)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        data = b""
        with contextlib.suppress(OSError):
            while chunk := self.socket.recv(1 << 16):
                data += chunk
                while len(data) >= 8 and len(data) >= (length := int.from_bytes(data[2:4], "big")):
                    message = Message(data[1], int.from_bytes(data[4:8], "big"), data[8:length])
                    data = data[length:]
                    self.messages.append(message)
                    if message.type == ECHO_REQUEST:
                        self.send(ECHO_REPLY, message.body, message.xid)
        self.closed = True

    def send(self, kind, body=b"", xid=1):
        self.socket.sendall(struct.pack("!BBHI", 1, kind, 8 + len(body), xid) + body)

    def of_type(self, kind):
        return [message for message in list(self.messages) if message.type == kind]

    def wait(self, kind, count=1):
        """Waits for `count` messages of a type, and returns them."""
        until(lambda: len(self.of_type(kind)) >= count, lambda: f"{count} of type {kind} in {self.messages}")
        return self.of_type(kind)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Controller:
    """A controller that listens at a path; `accept` returns its connections."""

    def __init__(self, path):
        self.path = path
        self.target = f"unix:{path}"
        self.listener = None
        self.connections = []

    def listen(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(5)

    def accept(self, greets=True):
        self.listener.settimeout(90)
        self.connections.append(Connection(self.listener.accept()[0], greets))
        return self.connections[-1]

    def stop(self):
        """Stops listening; connections stay."""
        if self.listener:
            self.listener.close()
            self.listener = None
            self.path.unlink()

    def end(self):
        self.stop()
        for connection in self.connections:
            connection.close()
