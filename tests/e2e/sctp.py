"""An association of SCTP (RFC 9260) without the kernel's help, over raw sockets: for machines whose kernel has no SCTP. Both
ends check the CRC32c of what arrives.

usage: sctp.py sctp-server ADDRESS PORT    answers each chunk by itself, and sends data back; prints `ready`
       sctp.py sctp-client ADDRESS PORT    sets an association up, prints the data that came back, and shuts down
"""

import socket
import struct
import sys

PORT_OF_CLIENT = 5000
WAIT_S = 1
TRIES = 20
DATA, INIT, INIT_ACK, SACK, SHUTDOWN, SHUTDOWN_ACK, COOKIE_ECHO, COOKIE_ACK, SHUTDOWN_COMPLETE = 0, 1, 2, 3, 7, 8, 10, 11, 14
TAG_OF_CLIENT, TAG_OF_SERVER = 0x01020304, 0x05060708
FIRST_TSN = 1000
COOKIE = b"a state cookie.."
WINDOW = 65536


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def chunk(kind, content=b"", flags=0):
    return struct.pack(">BBH", kind, flags, 4 + len(content)) + content + bytes(-len(content) % 4)


def data(payload):
    """A whole message of stream 0."""
    return chunk(DATA, struct.pack(">IHHI", FIRST_TSN, 0, 0, 0) + payload, flags=3)


SACK_OF_FIRST = chunk(SACK, struct.pack(">IIHH", FIRST_TSN, WINDOW, 0, 0))


class End:
    """A raw socket that sends and takes packets of one port."""

    def __init__(self, address, port):
        self.six = ":" in address
        self.port = port
        self.socket = socket.socket(socket.AF_INET6 if self.six else socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)

    def send(self, address, port, tag, *chunks):
        packet = struct.pack(">HHII", self.port, port, tag, 0) + b"".join(chunks)
        packet = packet[:8] + struct.pack("<I", crc32c(packet)) + packet[12:]
        self.socket.sendto(packet, (address, 0))

    def receive(self):
        """The sender's address and port, the tag, and the chunks as kinds with their contents, of the next packet for the port."""
        while True:
            packet, (address, *_) = self.socket.recvfrom(65536)
            packet = packet[0 if self.six else packet[0] % 16 * 4 :]
            source, destination, tag = struct.unpack_from(">HHI", packet)
            if destination != self.port:
                continue
            if struct.pack("<I", crc32c(packet[:8] + bytes(4) + packet[12:])) != packet[8:12]:
                print("a checksum is wrong", file=sys.stderr, flush=True)
                continue
            chunks, rest = [], packet[12:]
            while rest:
                kind, _, length = struct.unpack_from(">BBH", rest)
                chunks.append((kind, rest[4:length]))
                rest = rest[(length + 3) // 4 * 4 :]
            return address, source, tag, chunks


def sctp_server(address, port):
    end = End(address, int(port))
    print("ready", flush=True)
    while True:
        peer, source, tag, chunks = end.receive()
        for kind, content in chunks:
            if kind == INIT:
                cookie = struct.pack(">HH", 7, 4 + len(COOKIE)) + COOKIE
                answers = [chunk(INIT_ACK, struct.pack(">IIHHI", TAG_OF_SERVER, WINDOW, 1, 1, FIRST_TSN) + cookie)]
            elif tag != TAG_OF_SERVER:
                continue
            elif kind == COOKIE_ECHO and content == COOKIE:
                answers = [chunk(COOKIE_ACK)]
            elif kind == DATA:
                answers = [SACK_OF_FIRST, data(content[12:])]
            elif kind == SHUTDOWN:
                answers = [chunk(SHUTDOWN_ACK)]
            else:
                continue
            end.send(peer, source, TAG_OF_CLIENT, *answers)


def sctp_client(address, port):
    end = End(address, PORT_OF_CLIENT)
    end.socket.settimeout(WAIT_S)

    def ask(sent, wanted, tag=TAG_OF_SERVER):
        """Sends a chunk until one of the wanted kind comes, and returns its contents."""
        for _ in range(TRIES):
            end.send(address, int(port), tag, sent)
            try:
                while True:
                    _, _, tag_of_answer, chunks = end.receive()
                    if wanted in dict(chunks) and tag_of_answer == TAG_OF_CLIENT:
                        return dict(chunks)[wanted]
            except TimeoutError:
                pass
        sys.exit(f"no chunk of type {wanted} came")

    answer = ask(chunk(INIT, struct.pack(">IIHHI", TAG_OF_CLIENT, WINDOW, 1, 1, FIRST_TSN)), INIT_ACK, tag=0)
    ask(chunk(COOKIE_ECHO, answer[20:]), COOKIE_ACK)
    returned = ask(data(b"over SCTP"), DATA)[12:]
    end.send(address, int(port), TAG_OF_SERVER, SACK_OF_FIRST)
    ask(chunk(SHUTDOWN, struct.pack(">I", FIRST_TSN)), SHUTDOWN_ACK)
    end.send(address, int(port), TAG_OF_SERVER, chunk(SHUTDOWN_COMPLETE))
    print(returned.decode())


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
