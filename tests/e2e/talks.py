"""Servers and clients of common protocols: a program for the hosts' namespaces. Servers print `ready`, and end with their
namespace; clients print what a test expects, or fail.

usage: talks.py http-server ADDRESS PORT                  serves a body of N bytes at /N
       talks.py http-client ADDRESS PORT COUNT BYTES      fetches so many bodies, some at the same time, prints how many were right
       talks.py ftp-server ADDRESS PORT                   serves a directory of its own to everybody, for reading and writing
       talks.py ftp-client ADDRESS PORT active|passive BYTES    stores a file, lists it, fetches it; prints its size
       talks.py tftp-server ADDRESS PORT                  serves files of N bytes, named N, each from a port of its own
       talks.py tftp-client ADDRESS PORT BYTES            fetches such a file, prints its size
       talks.py dns-server ADDRESS PORT                   answers queries of addresses
       talks.py dns-client ADDRESS PORT COUNT             asks so many, each from a port of its own, prints how many were answered
       talks.py echo-server ADDRESS PORT                  sends datagrams back
       talks.py echo-client ADDRESS PORT COUNT LENGTH     sends so many, one after the other, prints how many came back whole
       talks.py resets ADDRESS PORT                       resets each connection once it has received a byte
       talks.py is-reset ADDRESS PORT                     prints `reset` if its connection is
       talks.py is-refused ADDRESS PORT                   prints `refused` if a datagram brings back an error about the port
       talks.py complains ADDRESS PORT MTU                answers datagrams with errors: too long, for this MTU
       talks.py learns-mtu ADDRESS PORT                   sends long datagrams until the path has an MTU below the link's, prints it
       talks.py sctp-server ADDRESS PORT                  sends back what comes over one association
       talks.py sctp-client ADDRESS PORT                  prints what came back
"""

import concurrent.futures
import errno
import ftplib
import http.client
import http.server
import io
import random
import socket
import socketserver
import struct
import sys
import tempfile
import threading
import time

WAIT_S = 20
TRIES = 50
BLOCK_LEN = 512
# The option of sockets IP_MTU_DISCOVER with this value keeps the kernel from making fragments.
PMTUDISC_DO = 2


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def ready():
    print("ready", flush=True)


def body(length):
    """Bytes that only their number determines."""
    return random.Random(length).randbytes(length)


# HTTP.


class Bodies(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        content = body(int(self.path.strip("/")))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def http_server(address, port):
    class Server(http.server.ThreadingHTTPServer):
        address_family = family(address)
        request_queue_size = 64

        # The standard one asks DNS for a name of the address.
        server_bind = socketserver.TCPServer.server_bind

    with Server((address, int(port)), Bodies) as server:
        ready()
        server.serve_forever()


def fetch(address, port, length):
    connection = http.client.HTTPConnection(address, int(port), timeout=WAIT_S)
    connection.request("GET", f"/{length}")
    right = connection.getresponse().read() == body(length)
    connection.close()
    return right


def http_client(address, port, count, length):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        print(sum(pool.map(lambda _: fetch(address, port, int(length)), range(int(count)))))


# FTP.


def ftp_server(address, port):
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import FTPServer

    with tempfile.TemporaryDirectory() as directory:
        authorizer = DummyAuthorizer()
        authorizer.add_anonymous(directory, perm="elradfmw")
        handler = type("Handler", (FTPHandler,), {"authorizer": authorizer, "permit_foreign_addresses": False})
        # Standard output is for one line.
        out, sys.stdout = sys.stdout, sys.stderr
        server = FTPServer((address, int(port)), handler)
        sys.stdout = out
        ready()
        server.serve_forever()


def ftp_client(address, port, mode, length):
    content = body(int(length))
    with ftplib.FTP(timeout=WAIT_S) as ftp:
        ftp.connect(address, int(port))
        ftp.login()
        ftp.set_pasv(mode == "passive")
        ftp.storbinary("STOR file", io.BytesIO(content))
        assert ftp.nlst() == ["file"]
        received = io.BytesIO()
        ftp.retrbinary("RETR file", received.write)
    assert received.getvalue() == content
    print(len(content))


# TFTP (RFC 1350).


def serve_file(address, peer, length):
    content = body(length)
    with socket.socket(family(address), socket.SOCK_DGRAM) as out:
        out.bind((address, 0))
        out.settimeout(1)
        for number in range(length // BLOCK_LEN + 1):
            block = content[number * BLOCK_LEN : (number + 1) * BLOCK_LEN]
            for _ in range(TRIES):
                out.sendto(struct.pack(">HH", 3, (number + 1) % 65536) + block, peer)
                try:
                    if out.recv(100) == struct.pack(">HH", 4, (number + 1) % 65536):
                        break
                except TimeoutError:
                    pass


def tftp_server(address, port):
    with socket.socket(family(address), socket.SOCK_DGRAM) as server:
        server.bind((address, int(port)))
        ready()
        while True:
            request, peer = server.recvfrom(600)
            kind, name = request[:2], request[2:].split(b"\0")[0]
            if kind == b"\0\1":
                threading.Thread(target=serve_file, args=(address, peer, int(name)), daemon=True).start()


def tftp_client(address, port, length):
    content, number, server = b"", 0, None
    with socket.socket(family(address), socket.SOCK_DGRAM) as client:
        client.settimeout(WAIT_S)
        client.sendto(b"\0\1" + length.encode() + b"\0octet\0", (address, int(port)))
        while len(content) == number * BLOCK_LEN:
            packet, sender = client.recvfrom(600)
            server = server or sender
            kind, block = struct.unpack_from(">HH", packet)
            if sender == server and kind == 3 and block == number + 1:
                content, number = content + packet[4:], number + 1
            client.sendto(struct.pack(">HH", 4, block), server)
    assert content == body(int(length))
    print(len(content))


# DNS (RFC 1035).


def dns_server(address, port):
    with socket.socket(family(address), socket.SOCK_DGRAM) as server:
        server.bind((address, int(port)))
        ready()
        while True:
            query, peer = server.recvfrom(512)
            answer = query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0) + query[12:]
            # The address is made from the number of the query.
            answer += struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + b"\n\0" + query[:2]
            server.sendto(answer, peer)


def dns_client(address, port, count):
    answered = 0
    for number in range(1, int(count) + 1):
        name = b"".join(bytes([len(label)]) + label for label in (b"host%d" % number, b"example", b"org", b""))
        query = struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + name + struct.pack(">HH", 1, 1)
        with socket.socket(family(address), socket.SOCK_DGRAM) as client:
            client.settimeout(WAIT_S)
            client.connect((address, int(port)))
            client.send(query)
            answered += client.recv(512)[-4:] == b"\n\0" + struct.pack(">H", number)
    print(answered)


# Datagrams.


def echo_server(address, port):
    with socket.socket(family(address), socket.SOCK_DGRAM) as server:
        server.bind((address, int(port)))
        ready()
        while True:
            server.sendto(*server.recvfrom(65536))


def echo_client(address, port, count, length):
    whole = 0
    with socket.socket(family(address), socket.SOCK_DGRAM) as client:
        client.settimeout(3)
        client.connect((address, int(port)))
        for number in range(int(count)):
            datagram = struct.pack(">I", number) + body(int(length) - 4)
            client.send(datagram)
            try:
                whole += client.recv(65536) == datagram
            except TimeoutError:
                pass
    print(whole)


# Resets and errors.


def resets(address, port):
    with socket.create_server((address, int(port)), family=family(address)) as server:
        ready()
        while True:
            connection, _ = server.accept()
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


def is_reset(address, port):
    with socket.create_connection((address, int(port)), timeout=WAIT_S) as connection:
        connection.send(b"x")
        try:
            print(connection.recv(1))
        except ConnectionResetError:
            print("reset")


def is_refused(address, port):
    with socket.socket(family(address), socket.SOCK_DGRAM) as client:
        client.connect((address, int(port)))
        client.settimeout(1)
        for _ in range(TRIES):
            try:
                client.send(b"x")
                client.recv(1)
            except TimeoutError:
                continue
            except ConnectionRefusedError:
                print("refused")
                return
    print("no error")


def internet_checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def complains(address, port, mtu):
    """The errors of a router: its kernel sends the addresses, it the rest."""
    six = family(address) == socket.AF_INET6
    # This socket keeps the kernel from refusing the datagrams.
    with socket.socket(family(address), socket.SOCK_DGRAM) as taken:
        taken.bind((address, int(port)))
        arrivals = socket.socket(family(address), socket.SOCK_RAW, socket.IPPROTO_UDP)
        errors = socket.socket(family(address), socket.SOCK_RAW, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP)
        ready()
        while True:
            packet, (source, *_) = arrivals.recvfrom(65535)
            # Raw sockets keep the header of IPv6 to themselves.
            if six:
                ends = [socket.inet_pton(socket.AF_INET6, end) for end in (source, address)]
                packet = struct.pack(">IHBB", 6 << 28, len(packet), socket.IPPROTO_UDP, 64) + b"".join(ends) + packet
            header = 40 if six else packet[0] % 16 * 4
            if packet[header + 2 : header + 4] != struct.pack(">H", int(port)):
                continue
            if six:
                # The kernel adds the checksum.
                error = struct.pack(">BBHI", 2, 0, 0, int(mtu)) + packet[:1000]
            else:
                error = struct.pack(">BBHHH", 3, 4, 0, 0, int(mtu)) + packet[: header + 8]
                error = error[:2] + struct.pack(">H", internet_checksum(error)) + error[4:]
            errors.sendto(error, (source, 0))


def learns_mtu(address, port):
    six = family(address) == socket.AF_INET6
    level, discover, path_mtu = (socket.IPPROTO_IPV6, 23, 24) if six else (socket.IPPROTO_IP, 10, 14)
    with socket.socket(family(address), socket.SOCK_DGRAM) as client:
        client.connect((address, int(port)))
        client.setsockopt(level, discover, PMTUDISC_DO)
        first = client.getsockopt(level, path_mtu)
        for _ in range(TRIES):
            try:
                client.send(bytes(1400))
            except OSError as error:
                assert error.errno == errno.EMSGSIZE, error
            if (mtu := client.getsockopt(level, path_mtu)) < first:
                print(mtu)
                return
            time.sleep(0.1)
    print("no error")


# SCTP.


def sctp_socket(address):
    return socket.socket(family(address), socket.SOCK_STREAM, socket.IPPROTO_SCTP)


def sctp_server(address, port):
    with sctp_socket(address) as server:
        server.bind((address, int(port)))
        server.listen()
        ready()
        association, _ = server.accept()
        while data := association.recv(65536):
            association.sendall(data)


def sctp_client(address, port):
    with sctp_socket(address) as association:
        association.settimeout(WAIT_S)
        association.connect((address, int(port)))
        association.sendall(b"over SCTP")
        print(association.recv(100).decode())


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
