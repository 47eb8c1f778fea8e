"""A controller on a host: listens on a TCP port, sends HELLO, and answers echo requests.

usage: answering_controller.py PORT
"""

import socket
import struct
import sys
import threading

HELLO, ECHO_REQUEST, ECHO_REPLY = 0, 2, 3


def message(kind, xid=0, body=b""):
    return struct.pack("!BBHI", 1, kind, 8 + len(body), xid) + body


def serve(connection):
    connection.sendall(message(HELLO))
    with connection, connection.makefile("rb") as stream:
        while header := stream.read(8):
            _, kind, length, xid = struct.unpack("!BBHI", header)
            body = stream.read(length - 8)
            if kind == ECHO_REQUEST:
                connection.sendall(message(ECHO_REPLY, xid, body))


def main():
    listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


main()
