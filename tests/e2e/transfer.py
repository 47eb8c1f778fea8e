"""Traffic whose every byte is checked: a program for the hosts' namespaces.

usage: transfer.py tcp-sink ADDRESS PORT        receives one connection, prints bytes and SHA-256
       transfer.py tcp-source ADDRESS PORT BYTES    sends that many, prints bytes and SHA-256
       transfer.py tcp-echo ADDRESS PORT        sends back what comes over one connection
       transfer.py tcp-steady ADDRESS PORT      sends a number every 20 ms and waits for it to come back, until its standard
                                                input ends; prints how many came back, and the longest wait in seconds
       transfer.py udp-sink ADDRESS PORT        receives until the end mark, prints whole, spoilt and doubled datagrams
       transfer.py udp-source ADDRESS PORT COUNT LENGTH    sends as fast as the sink acknowledges
       transfer.py udp-flood ADDRESS PORT COUNT LENGTH     sends without flow control
       transfer.py serve PORT                   sends back what comes over TCP connections and in datagrams, of IPv4 and IPv6,
                                                until its standard input ends
       transfer.py exchange ADDRESS PORT BYTES COUNT LENGTH...    that many bytes over TCP, then for each length that many
                                                datagrams, to there and back; fails unless all come back whole

A datagram is its number followed by bytes derived from the number. The sink acknowledges each by the number that it
expects next, and the source has only a few in flight: no queue overflows because a machine is slow.
"""

import hashlib
import random
import select
import socket
import struct
import sys
import threading
import time

CHUNK_LEN = 1 << 16
END = 0xFFFFFFFF
# Maximum number of datagrams in flight: far fewer than any queue on the path holds, fragments included.
WINDOW = 32
# After this time without an acknowledgement, datagrams in flight count as lost.
ANSWER_S = 5
END_S = 60
SO_RCVBUFFORCE = 33


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def ready():
    print("ready", flush=True)


def tcp_sink(address, port):
    with socket.create_server((address, int(port)), family=family(address)) as server:
        ready()
        connection, _ = server.accept()
        digest, total = hashlib.sha256(), 0
        while data := connection.recv(CHUNK_LEN):
            digest.update(data)
            total += len(data)
    print(total, digest.hexdigest())


def tcp_source(address, port, count):
    random_source = random.Random(1)
    digest, left = hashlib.sha256(), int(count)
    with socket.create_connection((address, int(port)), timeout=120) as connection:
        while left:
            # Lengths of all kinds: a few bytes, odd ones, and more than any segment.
            data = random_source.randbytes(min(left, random_source.choice((7, 1449, 3001, CHUNK_LEN))))
            connection.sendall(data)
            digest.update(data)
            left -= len(data)
        connection.shutdown(socket.SHUT_WR)
    print(int(count), digest.hexdigest())


def tcp_echo(address, port):
    with socket.create_server((address, int(port))) as server:
        ready()
        connection, _ = server.accept()
        while data := connection.recv(CHUNK_LEN):
            connection.sendall(data)


def tcp_steady(address, port):
    count, longest_s = 0, 0.0
    with socket.create_connection((address, int(port)), timeout=60) as connection:
        ready()
        while not select.select([sys.stdin], [], [], 0.02)[0]:
            begin = time.monotonic()
            count += 1
            connection.sendall(struct.pack("!I", count))
            data = b""
            while len(data) < 4:
                more = connection.recv(4 - len(data))
                assert more, "the connection ended"
                data += more
            assert struct.unpack("!I", data)[0] == count
            longest_s = max(longest_s, time.monotonic() - begin)
    print(count, f"{longest_s:.3f}")


def datagram(number, length):
    return struct.pack("!I", number) + random.Random(number).randbytes(length - 4)


def udp_sink(address, port):
    with socket.socket(family(address), socket.SOCK_DGRAM) as sink:
        sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
        sink.bind((address, int(port)))
        sink.settimeout(120)
        ready()
        whole, spoilt, doubled, expected = set(), 0, 0, 0
        while True:
            data, source = sink.recvfrom(CHUNK_LEN)
            number = struct.unpack_from("!I", data)[0] if len(data) >= 4 else None
            if number == END:
                # If this acknowledgement is lost, the next end mark finds no listener, which is an answer too.
                sink.sendto(data, source)
                break
            if number is not None and data == datagram(number, len(data)):
                doubled += number in whole
                whole.add(number)
                expected = max(expected, number + 1)
            else:
                spoilt += 1
            sink.sendto(struct.pack("!I", expected), source)
    print(len(whole), spoilt, doubled)


def answer(source, wait_s):
    """The number that the sink expects next, or None without a reply within `wait_s`."""
    source.settimeout(wait_s)
    try:
        return struct.unpack("!I", source.recv(CHUNK_LEN))[0]
    except TimeoutError:
        return None


def udp_source(address, port, count, length):
    count, done = int(count), 0
    with socket.socket(family(address), socket.SOCK_DGRAM) as source:
        source.connect((address, int(port)))
        for number in range(count):
            done = wait_in_flight(source, number, done, WINDOW - 1)
            source.settimeout(None)
            source.send(datagram(number, int(length)))
        # The end mark must not overtake datagrams in fragments.
        wait_in_flight(source, count, done, 0)
        deadline = time.monotonic() + END_S
        try:
            while time.monotonic() < deadline:
                source.send(struct.pack("!I", END))
                while (heard := answer(source, 0.2)) is not None:
                    if heard == END:
                        return print(count)
        except ConnectionRefusedError:
            return print(count)
    sys.exit("no answer to the end mark")


def wait_in_flight(source, sent, done, most):
    """Waits until at most `most` of the datagrams sent are in flight; all before `done`, which is returned, have
    arrived or are lost."""
    while sent - done > most:
        heard = answer(source, ANSWER_S)
        done = sent if heard is None else max(done, heard)
    return done


def echo(connection):
    with connection:
        while data := connection.recv(CHUNK_LEN):
            connection.sendall(data)


def serve(port):
    with (
        socket.create_server(("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
        datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        datagrams.bind(("", int(port)))
        ready()
        while True:
            able = select.select([sys.stdin, server, datagrams], [], [])[0]
            if server in able:
                threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()
            if datagrams in able:
                data, source = datagrams.recvfrom(CHUNK_LEN)
                datagrams.sendto(data, source)
            if sys.stdin in able:
                break


def send_all(connection, count, digest):
    random_source, left = random.Random(1), count
    while left:
        data = random_source.randbytes(min(left, random_source.choice((7, 1449, 3001, CHUNK_LEN))))
        digest.update(data)
        connection.sendall(data)
        left -= len(data)
    connection.shutdown(socket.SHUT_WR)


def exchange(address, port, count, datagrams, *lengths):
    sent, come, left = hashlib.sha256(), hashlib.sha256(), int(count)
    with socket.create_connection((address, int(port)), timeout=120) as connection:
        sender = threading.Thread(target=send_all, args=(connection, left, sent))
        sender.start()
        while data := connection.recv(CHUNK_LEN):
            come.update(data)
            left -= len(data)
        sender.join()
    assert left == 0 and come.digest() == sent.digest(), f"{left} of {count} bytes have not come back, or others came"
    for length in map(int, lengths):
        missing = exchange_datagrams(address, port, int(datagrams), length)
        assert missing <= int(datagrams) // 100, f"{missing} of {datagrams} datagrams of {length} bytes have not come back"


def exchange_datagrams(address, port, count, length):
    """Sends datagrams to an echo, a few at a time; returns the number of those that did not return."""
    wait_in_flight, there = set(), set()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as source:
        source.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
        source.connect((address, int(port)))
        source.settimeout(ANSWER_S)
        for number in range(count + 1):
            while len(wait_in_flight) >= (WINDOW if number < count else 1):
                try:
                    data = source.recv(CHUNK_LEN)
                except TimeoutError:
                    wait_in_flight.clear()
                    break
                came = struct.unpack_from("!I", data)[0] if len(data) >= 4 else None
                # A datagram that was given up may still return; each returns whole, and once.
                assert came is not None and data == datagram(came, length), f"{len(data)} bytes of {length} came back spoilt"
                assert came not in there, f"datagram {came} came twice"
                there.add(came)
                wait_in_flight.discard(came)
            if number < count:
                wait_in_flight.add(number)
                source.send(datagram(number, length))
    return count - len(there)


def udp_flood(address, port, count, length):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
        for number in range(int(count)):
            source.sendto(datagram(number, int(length)), (address, int(port)))
    print(int(count))


if __name__ == "__main__":
    PROGRAMS = {
        "tcp-sink": tcp_sink,
        "tcp-source": tcp_source,
        "tcp-echo": tcp_echo,
        "tcp-steady": tcp_steady,
        "udp-sink": udp_sink,
        "udp-source": udp_source,
        "udp-flood": udp_flood,
        "serve": serve,
        "exchange": exchange,
    }
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
