"""An IPFIX collector (RFC 7011) over UDP. As a program, it writes the messages that it receives to a file, a line of
hex digits for each; as a module, it starts the program in a namespace and reads its messages."""

import socket
import struct
import subprocess
import sys
from pathlib import Path

from waiting import until

TEMPLATES, OPTIONS, SELF = 2, 3, 462
VARIABLE = 0xFFFF
FLOW_START, FLOW_END = 158, 159


def serve(path):
    """Receives until killed. The first line is the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, open(path, "w", encoding="ascii") as out:
        udp.bind(("127.0.0.1", 0))
        print(udp.getsockname()[1], file=out, flush=True)
        while True:
            print(udp.recv(65535).hex(), file=out, flush=True)


class Collector:
    """A collector in the namespace of a switch, which ends it."""

    def __init__(self, switch, name="collector"):
        self.path = switch.directory / name
        words = switch.inside([sys.executable, Path(__file__).resolve(), self.path])
        with open(switch.directory / f"{name}.log", "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self.path.exists() and self.path.read_text().endswith("\n"), "the collector's port")
        self.target = f"127.0.0.1:{self.path.read_text().split()[0]}"
        # The exporter sends its own statistics before their template.
        self.templates = {SELF: [(144, 4), (167, 8)]}
        self.seen = 1

    def messages(self, count):
        """Waits for `count` messages beyond those already requested."""
        lines = lambda: self.path.read_text().splitlines()
        until(lambda: len(lines()) >= self.seen + count, lambda: f"{count} messages, only {len(lines()) - self.seen}")
        new = lines()[self.seen : self.seen + count]
        self.seen += count
        return [bytes.fromhex(line) for line in new]

    def pending(self):
        """Messages received and not yet requested."""
        return len(self.path.read_text().splitlines()) - self.seen

    def read(self, count):
        """As `messages`, without times: length, sequence number, domain and sets of each message."""
        return [self.parse(message) for message in self.messages(count)]

    def parse(self, message):
        version, length, _, sequence, domain = struct.unpack_from("!HHIII", message)
        assert (version, length) == (10, len(message))
        rest, sets = message[16:], []
        while rest:
            number, size = struct.unpack_from("!HH", rest)
            sets.append((number, self.parse_set(number, rest[4:size])))
            rest = rest[size:]
        return length, sequence, domain, sets

    def parse_set(self, number, body):
        if number in (TEMPLATES, OPTIONS):
            return self.parse_templates(number, body)
        records = []
        while body:
            record = []
            for element, size in self.templates[number]:
                if size == VARIABLE:
                    size, body = body[0], body[1:]
                if element not in (FLOW_START, FLOW_END):
                    record.append((element, body[:size].hex()))
                body = body[size:]
            records.append(record)
        return records

    def parse_templates(self, number, body):
        told = []
        while body:
            template, fields = struct.unpack_from("!HH", body)
            body = body[6:] if number == OPTIONS else body[4:]
            elements = []
            for _ in range(fields):
                element, size = struct.unpack_from("!HH", body)
                body = body[4:]
                if element & 0x8000:
                    element, body = (struct.unpack_from("!I", body)[0], element & 0x7FFF), body[4:]
                elements.append((element, size))
            self.templates[template] = elements
            told.append((template, elements))
        return told


if __name__ == "__main__":
    serve(sys.argv[1])
