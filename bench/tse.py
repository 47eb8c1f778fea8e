"""The tuple space explosion attack: each packet makes the switch cache a denial under another mask, so that a search
through masks slows down for all traffic.

In memory: cycles a packet without and with the attack, with and without microflow cache. On real ports: the highest
rate at which a victim's packets pass without loss, alone and while an attacker sends 10,000 packets a second.
"""

import contextlib
import json
import pathlib
import random
import subprocess
import tempfile
import time

import common
import rates
import workload
from replay import CONTROL_CORE, INVERSE_PROBABILITY, OURS, PACKET_CORE, PEER, in_turns
from report import Report, Table, middle, ratio

ATTACKERS = 4000
ATTACK_PPS = 10_000
VICTIM, ATTACK = f"victim-{ATTACKERS}", f"tse-{ATTACKERS}"


def add_arguments(arguments):
    arguments.add_argument("--no-memory", action="store_true", help="leave out the packets from memory")
    arguments.add_argument("--no-ports", action="store_true", help="leave out the real ports")
    arguments.add_argument("--trial-seconds", type=float, default=1.5, help="how long a rate is tried on real ports (1.5)")


def measure(options):
    tables, figures, notes = [], {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        directory = pathlib.Path(directory)
        if not options.no_memory:
            tables.append(from_memory(directory, options, figures, notes))
        if not options.no_ports:
            tables.append(on_ports(directory, options, figures, notes))
    return Report(tables, figures, notes)


# ---- From memory.


def from_memory(directory, options, figures, notes):
    rows = []
    for cache, inverse_probability in (("on", INVERSE_PROBABILITY), ("off", 0)):
        found = {name: in_turns(name, directory, options, inverse_probability) for name in (VICTIM, ATTACK)}
        figures[f"microflow_cache_{cache}"] = found
        for which in (PEER, OURS):
            alone, attacked = (found[name][which]["cycles_per_packet"] for name in (VICTIM, ATTACK))
            mpps = (found[name][which]["mpps"] for name in (VICTIM, ATTACK))
            rows.append([cache, which, alone, attacked, ratio(attacked, alone), *mpps])
            found[which] = {"slowdown": ratio(attacked, alone)}
    notes.append(f"{ATTACK} mixes the packets of {VICTIM} one to one with as many of the attacker's.")
    header = ["microflow cache", "switch", f"{VICTIM}, cycles", f"{ATTACK}, cycles", "times", "Mpps", "Mpps attacked"]
    return Table("cycles a packet, packets from memory", header, rows)


# ---- On real ports.

ALONE, LOAD, ATTACK_OTHER, ATTACK_SAME = CASES = (
    "alone",
    "as many known packets by another port",
    "attack by another port",
    "attack by the same port",
)


def on_ports(directory, options, figures, notes):
    common.need_programs("ip", "cc")
    traffic = directory / "traffic"
    common.run("cc", "-O2", "-o", traffic, common.ROOT / "bench/traffic.c")
    flows = write_packets(directory)
    turns = {which: {case: [] for case in CASES} for which in (PEER, OURS)}
    for round_number in range(options.rounds):
        for which, found in turns.items():
            with Ports("peer" if which == PEER else "ours", flows) as ports:
                for case in CASES:
                    with ports.attack(traffic, directory / ("victim.pcap" if case == LOAD else "attack.pcap"), case):
                        rate = ports.loss_free_pps(traffic, directory / "victim.pcap", options.trial_seconds)
                    common.say(f"real ports, round {round_number + 1}, {which}, {case}: {rate:,.0f} packets a second")
                    found[case].append(rate)
    rows = []
    figures["real_ports"] = {"pps": turns, "kept": {}}
    for which, found in turns.items():
        alone, *attacked = (middle(found[case]) for case in CASES)
        kept = [ratio(rate, alone) for rate in attacked]
        figures["real_ports"]["kept"][which] = dict(zip(CASES[1:], kept))
        rows.append([which, alone, *(part for pair in zip(attacked, kept) for part in pair)])
    notes.append(
        f"Real ports: veth pairs into namespaces, both switches over packet sockets; loss below {rates.LOSS_MAX:.1%}, rates to"
        f" {rates.PRECISION:.0%}; the attacker sends {ATTACK_PPS:,} packets a second. What he takes of the senders' core is shown by"
        " as many packets that are none of an attack."
    )
    header = ["switch", *(word for case in CASES for word in (case, "kept"))]
    del header[2]
    return Table("the victim's highest rate without loss, packets a second", header, rows)


def write_packets(directory):
    """Writes the victim's and the attacker's packets of the attack's workload separately, and its flows: returns the
    path of these."""
    made = workload.tuple_space_explosion(ATTACKERS, random.Random(1))
    for name, packets in (("victim", made.packets[:ATTACKERS]), ("attack", made.packets[ATTACKERS:])):
        (directory / f"{name}.pcap").write_bytes(workload.pcap(packets, random.Random(1)))
    path = directory / "ports.flows"
    path.write_text("".join(f"{flow}\n" for flow in made.flows))
    return path


class Ports:
    """A switch over kernel devices: the victim sends to port 1, forwarded packets leave by port 2, and port 3
    belongs to another sender."""

    def __init__(self, which, flows):
        with contextlib.ExitStack() as made:
            names, devices = made.enter_context(common.hosts(3))
            common.receive_on(PACKET_CORE, devices)
            self.sender, self.receiver, self.other = names
            self.switch = common.Switch(which)
            made.callback(self.switch.stop)
            self.switch.start(core=PACKET_CORE)
            words = ["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev", "fail-mode=secure"]
            for number, device in enumerate(devices, 1):
                words += ["--", "add-port", "br0", device, "--", "set", "Interface", device, f"ofport_request={number}"]
            self.switch("ovs-vsctl", "--timeout=60", *words)
            self.switch("ovs-ofctl", "-O", "OpenFlow13", "add-flows", "br0", flows)
            self.made = made.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.made.close()

    @contextlib.contextmanager
    def attack(self, traffic, pcap, case):
        """Runs the attacker, long enough that all of its packets are known; for "alone", no attacker."""
        if case == ALONE:
            yield
            return
        name = self.sender if case == ATTACK_SAME else self.other
        with inside(name, traffic, "send", "e0", pcap, ATTACK_PPS, 3600) as attacker:
            time.sleep(2 + ATTACKERS / ATTACK_PPS)
            yield
            if attacker.poll() is not None:
                raise SystemExit(f"the attacker ended: {attacker.communicate()}")

    def loss_free_pps(self, traffic, pcap, seconds):
        """The highest rate without loss."""
        return rates.loss_free_pps(lambda rate: self.trial(traffic, pcap, rate, seconds))

    def trial(self, traffic, pcap, rate, seconds):
        """Sends at `rate`; returns the rate reached, and the lost share of the packets."""
        with inside(self.receiver, traffic, "count", "e0") as counter:
            counter.stdout.readline()  # ready
            sender = common.run(*beginning(self.sender), traffic, "send", "e0", pcap, rate, seconds)
            sent = json.loads(sender)
            time.sleep(0.2)  # what is on its way
            received = json.loads(counter.communicate(timeout=30)[0])["received"]
        if not sent["sent"]:
            raise SystemExit("nothing could be sent")
        return sent["pps"], max(0.0, 1 - received / sent["sent"])


def beginning(namespace):
    """The prefix of a command in a namespace; senders stay off the core of the switch."""
    return ["ip", "netns", "exec", namespace, "taskset", "-c", str(CONTROL_CORE)]


@contextlib.contextmanager
def inside(namespace, *words):
    """A program in a namespace, with pipes; it ends with the block."""
    words = [*beginning(namespace), *map(str, words)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
