"""A flood of one protocol of the switch: 100,000 LLDP frames a second come in at a port with LLDP, while other ports set
up flows and send packets to a controller and back. The same is measured beside nothing, and beside as many frames that a
flow drops, which shows what receiving any frames takes of the processors. A round measures each of them on one switch.
"""

import contextlib
import json
import pathlib
import struct
import tempfile
import time

import common
import openflow
from report import Report, Table, middle, ratio

RATE = 100_000
FLOOD_PORT = 3
# More than a switch sets up, so that the number of packets that come out is the rate.
NEW_FLOWS = 50_000
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
SENDER = bytes.fromhex("020000000001")
ETH_TYPES = {"dropped frames": 0x88B5, "LLDP frames": 0x88CC}
MEANWHILE = ("nothing", *ETH_TYPES)


def add_arguments(arguments):
    arguments.add_argument("--frames", type=int, default=RATE, metavar="N", help=f"LLDP frames a second ({RATE})")


def measure(options):
    common.need_programs("cc", "ip", "taskset")
    found = {name: [] for name in MEANWHILE}
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        bench = openflow.Bench(pathlib.Path(directory), options)
        for round_number in range(options.rounds):
            one_round(bench, found)
            common.say(f"punted, round {round_number + 1}: {[rounds[-1] for rounds in found.values()]}")
    return report(found)


def report(found):
    """A table of medians, and of their ratios to those beside nothing."""
    rows, figures = [], {"rounds": found}
    for what in found["nothing"][0]:
        by_load = {name: middle(one[what] for one in rounds) for name, rounds in found.items()}
        ratios = [ratio(by_load[name], by_load["nothing"]) for name in ETH_TYPES]
        figures[what] = {**by_load, "ratios": dict(zip(ETH_TYPES, ratios))}
        rows.append([what, *by_load.values(), *ratios])
    header = ["a second", *(f"beside {name}" for name in MEANWHILE), *(f"ratio, {name}" for name in ETH_TYPES)]
    return Report([Table("other ports beside a flood of LLDP frames", header, rows)], figures)


def one_round(bench, found):
    """Appends the rates beside each load."""
    flows = [
        *openflow.STREAM_FLOWS,
        f"priority=2,in_port={FLOOD_PORT},actions=drop",
        "priority=1,in_port=2,actions=CONTROLLER:65535",
    ]
    with openflow.Ports("flowstone", flows, n_hosts=FLOOD_PORT) as ports:
        device = ports.devices[FLOOD_PORT - 1]
        ports.switch("ovs-vsctl", "--timeout=60", "set", "Interface", device, "lldp:enable=true")
        for name, rounds in found.items():
            before = received(ports, device)
            rounds.append(rates(bench, ports, name))
            if (received(ports, device) > before) != (name == "LLDP frames"):
                raise SystemExit(f"LLDP received frames at the wrong time: {name}\n{ports.switch.log_tail()}")


def rates(bench, ports, name):
    seconds, figures = bench.options.seconds, {}
    with bench.client("echo", openflow.management(ports.switch)):
        for size in openflow.WINDOWS[:2]:
            words = [bench.directory / "traffic", "window", "e0", size, seconds]
            with flood(bench, ports, name):
                done = json.loads(common.run(*openflow.beginning(ports.hosts[1]), *words))
            figures[f"packets to a controller and back, {size} in flight"] = done["pps"]
    with flood(bench, ports, name), openflow.stream(bench, ports, "new", NEW_FLOWS) as seen:
        time.sleep(seconds)
    figures["flow set-ups"] = seen["received"] / seconds
    return figures


@contextlib.contextmanager
def flood(bench, ports, name):
    """Sends frames of a load to the third port for a block, which has to end before they do."""
    if name not in ETH_TYPES:
        yield
        return
    pcap = bench.file(name, lambda: capture(ETH_TYPES[name]))
    words = [bench.directory / "traffic", "send", "e0", pcap, bench.options.frames, bench.options.seconds + 30]
    with common.started(*openflow.beginning(ports.hosts[FLOOD_PORT - 1]), *words):
        time.sleep(0.5)
        yield


def capture(eth_type):
    """A capture file with one LLDPDU, or the same bytes under another Ethernet type: chassis, port, time to live, end."""
    chassis, port = b"\x04" + SENDER, b"\x05e0"
    tlvs = [(1, chassis), (2, port), (3, struct.pack("!H", 120)), (0, b"")]
    body = b"".join(struct.pack("!H", kind << 9 | len(value)) + value for kind, value in tlvs)
    frame = (NEAREST_BRIDGE + SENDER + struct.pack("!H", eth_type) + body).ljust(60, b"\0")
    header = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return header + struct.pack("=IIII", 0, 0, len(frame), len(frame)) + frame


def received(ports, device):
    """The LLDPDUs that the switch has received at a port."""
    statistics = ports.switch("ovs-appctl", "-t", ports.switch.daemon, "--format", "json", "autoattach/statistics")
    return json.loads(statistics)[device]["rx"]
