"""OpenFlow beside Open vSwitch: flow modifications a second, statistics, packets by way of a controller, and what all of
it does to forwarding and to other controllers.

Parts, by their names (`--parts`):

- `flowmods`: one at a time with a barrier each, streamed, in a bundle, replaced; by a client that costs nothing
  (`controller.c`, whose bytes were made before) and by Debian's ovs-ofctl. The switch has a core, the client the other.
- `stats`: flow statistics and aggregates: seconds to the last byte, and by how much resident memory peaks meanwhile.
- `packetins`: packets that a controller sends back, one at a time and many under way.
- `forwarding`: the longest pause of a steady stream of packets during each load, of known flows and of new ones.
- `flood`: a controller that never stops beside a good one: the good one's barriers, and forwarding.
"""

import contextlib
import json
import pathlib
import tempfile
import time

import common
import messages
from report import Report, Table, middle, ratio

PEER, OURS = "Open vSwitch", "flowstone"
OWN_CLIENT = "flowstone, its own client"
SWITCHES = {PEER: "peer", OURS: "ours", OWN_CLIENT: "ours"}
CLIENT_CORE, SWITCH_CORE = 0, 1
PARTS = ("flowmods", "stats", "packetins", "forwarding", "flood")
ONE_AT_A_TIME = 3_000
PROTOCOLS = "protocols=OpenFlow10,OpenFlow13,OpenFlow14"


def add_arguments(arguments):
    help_ = f"({' '.join(PARTS)})"
    arguments.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=help_)
    arguments.add_argument("--flows", type=int, default=100_000, metavar="N", help="flows in the tables (100000)")
    shapes = f"shapes of flow modifications ({' '.join(messages.SHAPES)})"
    arguments.add_argument("--shapes", nargs="+", choices=messages.SHAPES, default=messages.SHAPES, metavar="S", help=shapes)
    clients = ("raw", "ovs-ofctl")
    of_clients = f"clients that modify flows ({' '.join(clients)})"
    arguments.add_argument("--clients", nargs="+", choices=clients, default=clients, metavar="C", help=of_clients)
    counts = "instructions (in user mode) and cycles of the switch for each flow-mod, in place of rates: for a busy machine"
    arguments.add_argument("--counts", action="store_true", help=counts)


def measure(options):
    common.need_programs("cc", "ip", "taskset")
    common.need_peer()
    tables, figures, notes = [], {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        bench = Bench(pathlib.Path(directory), options)
        for name, part in zip(PARTS, (flowmods, stats, packetins, forwarding, flood)):
            if name in options.parts:
                found, table, note = part(bench)
                figures[name] = found
                tables += table
                notes += note
    return Report(tables, figures, notes)


class Bench:
    """The programs, the options, and files of messages, each made once."""

    def __init__(self, directory, options):
        self.directory, self.options, self.n = directory, options, options.flows
        for name in ("controller", "traffic"):
            common.run("cc", "-O2", "-pthread", "-o", directory / name, common.ROOT / f"bench/{name}.c")
        self.files = {}

    def file(self, name, make):
        """The path of a file, which `make` gives the contents of."""
        if name not in self.files:
            path = self.directory / name
            content = make()
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            self.files[name] = path
        return self.files[name]

    def adds(self, shape, n=None, change=0, every=1):
        """Flow-mods as bytes. With `change` those of other actions, and every so many of them only."""
        return [messages.add(shape, i, change) for i in range(0, n or self.n, every)]

    def controller(self, *words):
        """Runs the client to its end."""
        return json.loads(common.run("taskset", "-c", CLIENT_CORE, self.directory / "controller", *words))

    def counted(self, switch, *words):
        """The same, with what the switch has done meanwhile, if that is asked for."""
        if not self.options.counts:
            return self.controller(*words), {}
        common.need_programs("perf")
        counts = self.directory / "counts"
        perf = ["perf", "stat", "-x,", "-e", "instructions:u,cycles", "-o", counts, "-p", switch.pid(), "--"]
        done = json.loads(common.run(*perf, "taskset", "-c", CLIENT_CORE, self.directory / "controller", *words))
        lines = [line.split(",") for line in counts.read_text().splitlines() if "," in line]
        return done, {line[2].removesuffix(":u"): int(line[0]) for line in lines}

    def client(self, *words):
        """The OpenFlow client at work for a block."""
        return common.beside("taskset", "-c", CLIENT_CORE, self.directory / "controller", *words)

    def turns(self, one, what, switches=(PEER, OURS)):
        """`one(switch name)` for the switches in turns; lists of what it gives."""
        found = {which: [] for which in switches}
        for round_number in range(self.options.rounds):
            for which, list_ in found.items():
                list_.append(one(which))
                common.say(f"{what}, round {round_number + 1}, {which}: {list_[-1]}")
        return found


@contextlib.contextmanager
def switch_without_packets(which, core=SWITCH_CORE):
    """A switch with a bridge without real ports, on a core of its own."""
    switch = common.Switch(SWITCHES[which])
    try:
        switch.start("--enable-dummy", "--disable-system", core=core)
        words = ["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=dummy", "fail-mode=secure"]
        for number in (1, 2):
            words += ["--", "add-port", "br0", f"p{number}", "--", "set", "Interface", f"p{number}", "type=dummy"]
            words += [f"ofport_request={number}"]
        switch("ovs-vsctl", "--timeout=60", *words)
        switch("ovs-vsctl", "--timeout=60", "set", "Bridge", "br0", PROTOCOLS)
        yield switch
    finally:
        switch.stop()


REST_S = 0.04


def settle(switch):
    """Waits until the switch has nothing left to do of what it was asked for, as both put some off behind the answer: since
    when that is so. It is so when all of its threads together ran for a millisecond at most in REST_S."""
    begin, before = time.monotonic(), processor_ns(switch)
    quiet_since = begin
    while time.monotonic() - begin < 30:
        time.sleep(REST_S / 8)
        now = processor_ns(switch)
        if abs(now - before) > 1_000_000:
            quiet_since, before = time.monotonic(), now
        elif time.monotonic() - quiet_since > REST_S:
            return quiet_since
    raise SystemExit(f"{switch.which} does not come to rest\n{switch.log_tail()}")


def processor_ns(switch):
    """Nanoseconds that all threads of the switch have run for."""
    ran = 0
    for task in pathlib.Path(f"/proc/{switch.pid()}/task").glob("*/schedstat"):
        # One may have ended meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            ran += int(task.read_text().split()[0])
    return ran


def management(switch):
    return switch.dir / "br0.mgmt"


def need_flows(switch, n):
    """The switch has to have so many flows."""
    text = common.run(peer_ofctl(), "dump-aggregate", "br0", env=switch.env)
    if f"flow_count={n}\n" not in text:
        raise SystemExit(f"{switch.which}: {n} flows were expected: {text}\n{switch.log_tail()}")


def peer_ofctl():
    return common.programs("peer") / "ovs-ofctl"


def summary(title, unit, turns, more_is_better=True):
    """A table of medians with ratios, a row for each key of the figures."""
    figures, rows = {"rounds": turns}, []
    for key in turns[PEER][0]:
        peer, ours = (middle(one[key] for one in turns[which]) for which in (PEER, OURS))
        by = ratio(ours, peer) if more_is_better else ratio(peer, ours)
        figures[key] = {PEER: peer, OURS: ours, "ratio": by}
        rows.append([key, peer, ours, by])
    kind = "ratio" if more_is_better else "ratio (peer's by ours)"
    return figures, Table(f"{title}, {unit}", ["", PEER, OURS, kind], rows)


# ---- Flow modifications.


def flowmods(bench):
    figures, tables = {}, []
    if "raw" in bench.options.clients:
        found = bench.turns(lambda which: raw_flow_mods(bench, which), "flow-mods")
        title = f"a client that costs nothing, {bench.n:,} flows"
        if bench.options.counts:
            figures["raw"], table = summary(title, "for each flow-mod", found, more_is_better=False)
        else:
            figures["raw"], table = summary(title, "flow-mods a second", found)
        tables.append(table)
    if "ovs-ofctl" in bench.options.clients:
        figures["ovs-ofctl"], table = by_ofctl(bench)
        tables.append(table)
    return figures, tables, []


def by_ofctl(bench):
    clients = {PEER: "peer", OURS: "peer", OWN_CLIENT: "ours"}
    for_ofctl = bench.turns(lambda which: ofctl_flow_mods(bench, which, clients[which]), "ovs-ofctl", clients)
    user, table = summary(f"Debian's ovs-ofctl, {bench.n:,} flows", "seconds", for_ofctl, more_is_better=False)
    own = [middle(one[key] for one in for_ofctl[OWN_CLIENT]) for key in for_ofctl[PEER][0]]
    table.header.append(OWN_CLIENT)
    for row, figure in zip(table.rows, own):
        row.append(figure)
    return user, table


def raw_flow_mods(bench, which):
    found = {}
    n = bench.n
    for shape in bench.options.shapes:
        one_by_one = bench.file(f"{shape}.few", lambda: b"".join(bench.adds(shape, ONE_AT_A_TIME)))
        streamed = bench.file(f"{shape}.stream", lambda: b"".join(bench.adds(shape)))
        bundled = bench.file(f"{shape}.bundle", lambda: messages.bundle(bench.adds(shape)))
        changed = bench.file(f"{shape}.changed", lambda: messages.bundle(bench.adds(shape, change=1, every=2)))
        replaced = bench.file(
            f"{shape}.replaced", lambda: messages.bundle([messages.flow_mod(messages.DELETE, 0xFF), *bench.adds(shape)])
        )
        delete = bench.file("delete", lambda: messages.flow_mod(messages.DELETE, 0xFF))
        with switch_without_packets(which) as switch:

            def rate(name, path, messages_in_it, flows, mode="stream"):
                settle(switch)
                began = time.monotonic()
                done, counts = bench.counted(switch, mode, management(switch), path)
                all_done = settle(switch) - began
                if done["errors"]:
                    raise SystemExit(f"{which}, {shape}, {name}: {done['errors']} errors\n{switch.log_tail()}")
                need_flows(switch, flows)
                for what, count in counts.items():
                    found[f"{shape}, {name}: {what}"] = round(count / messages_in_it)
                if not counts:
                    found[f"{shape}, {name}"] = round(messages_in_it / done["seconds"])
                    if name == "deleted":
                        found[f"{shape}, deleted, with the work behind the answer"] = round(messages_in_it / all_done)

            rate("a barrier each", one_by_one, ONE_AT_A_TIME, ONE_AT_A_TIME, "barriers")
            bench.controller("stream", management(switch), delete)
            rate("streamed", streamed, n, n)
            rate("streamed again", streamed, n, n)
            rate("half changed, in a bundle", changed, n // 2, n)
            rate("all deleted and added, in a bundle", replaced, n, n)
            rate("deleted", delete, n, 0)
            rate("in a bundle", bundled, n, n)
    return found


def ofctl_flow_mods(bench, which, client):
    found = {}
    ofctl = common.programs(client) / "ovs-ofctl"
    n = bench.n
    shape = "acl"
    flows = bench.file(f"{shape}.flows", lambda: "".join(f"{messages.text(shape, i)}\n" for i in range(n)))
    half = lambda: "".join(f"{messages.text(shape, i, i % 2)}\n" for i in range(n))
    changed = bench.file(f"{shape}.changed-flows", half)
    with switch_without_packets(which) as switch:

        def seconds(name, *words, left):
            start = time.monotonic()
            common.run("taskset", "-c", CLIENT_CORE, ofctl, "-O", "OpenFlow14", *words, env=switch.env)
            found[name] = round(time.monotonic() - start, 3)
            need_flows(switch, left)

        seconds("add-flows", "add-flows", "br0", flows, left=n)
        seconds("replace-flows, half of them changed", "replace-flows", "br0", changed, left=n)
        seconds("replace-flows --bundle, half of them changed", "--bundle", "replace-flows", "br0", flows, left=n)
        seconds("del-flows", "del-flows", "br0", left=0)
        seconds("add-flows --bundle", "--bundle", "add-flows", "br0", flows, left=n)
        seconds("dump-flows", "dump-flows", "br0", left=n)
        seconds("del-flows again", "del-flows", "br0", left=0)
        seconds("replace-flows, empty before", "replace-flows", "br0", flows, left=n)
    return found


# ---- Statistics.


def stats(bench):
    found = bench.turns(lambda which: statistics(bench, which), "statistics")
    figures, table = summary(f"statistics of {bench.n:,} flows", "seconds and MiB", found, more_is_better=False)
    return figures, [table], []


def statistics(bench, which):
    found = {}
    streamed = bench.file("acl.stream", lambda: b"".join(bench.adds("acl")))
    with switch_without_packets(which) as switch:
        bench.controller("stream", management(switch), streamed)
        need_flows(switch, bench.n)
        time.sleep(1)
        for kind in ("flow", "aggregate"):
            pathlib.Path(f"/proc/{switch.pid()}/clear_refs").write_text("5")
            before = memory_mib(switch, "VmRSS")
            done = bench.controller("stats", management(switch), kind)
            found[f"{kind}, seconds"] = done["seconds"]
            found[f"{kind}, MiB more at the peak"] = round(memory_mib(switch, "VmHWM") - before, 2)
    return found


def memory_mib(switch, field):
    for line in pathlib.Path(f"/proc/{switch.pid()}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"no {field}")


# ---- On real ports.


class Ports:
    """A switch over kernel devices, port 1 and 2, each with a host: both over packet sockets. Packet threads have a core,
    where a switch has some; nothing else is bound to one."""

    def __init__(self, which, flows):
        with contextlib.ExitStack() as made:
            self.hosts, devices = made.enter_context(common.hosts(2))
            common.receive_on(SWITCH_CORE, devices)
            self.switch = common.Switch(SWITCHES[which])
            made.callback(self.switch.stop)
            core = f"other_config:pmd-cpu-mask={1 << SWITCH_CORE:#x}"
            # The rest of the daemon needs a core, too.
            sleep = "other_config:pmd-sleep-max=10000"
            self.switch("ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", core, sleep)
            self.switch.start()
            words = ["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev", "fail-mode=secure"]
            for number, device in enumerate(devices, 1):
                words += ["--", "add-port", "br0", device, "--", "set", "Interface", device, f"ofport_request={number}"]
            self.switch("ovs-vsctl", "--timeout=60", *words)
            self.switch("ovs-vsctl", "--timeout=60", "set", "Bridge", "br0", PROTOCOLS)
            for flow in flows:
                self.switch("ovs-ofctl", "add-flow", "br0", flow)
            self.made = made.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.made.close()


def beginning(namespace):
    """How a command in a namespace starts; whoever sends stays off the core of the switch."""
    return ["ip", "netns", "exec", namespace, "taskset", "-c", str(CLIENT_CORE)]


# ---- Packets to a controller and back.

WINDOWS = (1, 16, 256)


def packetins(bench):
    found = bench.turns(lambda which: to_controller_and_back(bench, which), "to a controller and back")
    figures, table = summary("packets to a controller and back by their port", "a second", found)
    return figures, [table], []


def to_controller_and_back(bench, which):
    found = {}
    with Ports(which, ["priority=0,actions=CONTROLLER:65535"]) as ports, bench.client("echo", management(ports.switch)):
        for size in WINDOWS:
            words = [bench.directory / "traffic", "window", "e0", size, bench.options.seconds]
            done = json.loads(common.run(*beginning(ports.hosts[0]), *words))
            found[f"{size} under way"] = done["pps"]
            if done["lost"]:
                common.say(f"{which}, {size} under way: {done['lost']} of {done['back']} lost")
    return found


# ---- Forwarding meanwhile.

# The stream's packets are of one flow, or each of a flow of its own, whose rule asks for addresses and ports whole.
STREAM_FLOWS = [
    "table=0,priority=65535,in_port=1,udp,nw_src=10.99.0.1,actions=output:2",
    "table=0,priority=65534,in_port=1,udp,nw_src=10.100.0.0/16,actions=resubmit(,200)",
    "table=200,udp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_UDP_SRC[]->NXM_NX_REG1[0..15],output:2",
]
STREAMS = {"known": 10_000, "new": 2_000}
QUIET_S = 3


def forwarding(bench):
    figures, tables = {}, []
    for kind in STREAMS:
        found = bench.turns(lambda which, kind=kind: pauses(bench, which, kind), f"forwarding of {kind} flows")
        flows = {"known": "one known flow", "new": "new flows"}[kind]
        title = f"longest pause of forwarding, {STREAMS[kind]:,} packets a second of {flows}"
        figures[kind], table = summary(title, "ms (lost: packets)", found, more_is_better=False)
        tables.append(table)
    return figures, tables, []


def pauses(bench, which, kind):
    """The longest pause of the stream during each load, each load once, with half a second of peace before and behind."""
    found = {}
    streamed = bench.file("acl.stream", lambda: b"".join(bench.adds("acl")))
    bundled = bench.file("acl.bundle", lambda: messages.bundle(bench.adds("acl")))
    changed = bench.file("acl.changed", lambda: messages.bundle(bench.adds("acl", change=1, every=2)))
    tcp = (messages.oxm(messages.ETH_TYPE, 0x0800), messages.oxm(messages.IP_PROTO, 6))
    delete = bench.file("delete-acl", lambda: messages.flow_mod(messages.DELETE, 0, fields=tcp))
    few = bench.file("acl.few", lambda: b"".join(bench.adds("acl", ONE_AT_A_TIME)))
    with Ports(which, STREAM_FLOWS) as ports:
        socket = management(ports.switch)
        loads = {
            "nothing": lambda: time.sleep(QUIET_S),
            "a barrier each": lambda: bench.controller("barriers", socket, few),
            "streamed": lambda: bench.controller("stream", socket, streamed),
            "half changed, in a bundle": lambda: bench.controller("stream", socket, changed),
            "flow statistics": lambda: bench.controller("stats", socket, "flow"),
            "aggregate": lambda: bench.controller("stats", socket, "aggregate"),
            "deleted": lambda: bench.controller("stream", socket, delete),
            "in a bundle": lambda: bench.controller("stream", socket, bundled),
            "packets to a controller": lambda: packets_to_controller(bench, ports),
        }
        for name, load in loads.items():
            with stream(bench, ports, kind) as seen:
                time.sleep(0.5)
                load()
                time.sleep(0.5)
            found[name] = seen["gap_ms"]
            found[f"{name}: lost"] = seen["lost"]
    return found


def stream(bench, ports, kind):
    """Numbered packets from one host to the other, and when they come in."""
    a, b = ports.hosts
    words = ["taskset", "-c", CLIENT_CORE, bench.directory / "traffic", "gaps", STREAMS[kind], kind]
    return common.beside(*words, a, "e0", b, "e0")


def packets_to_controller(bench, ports):
    """The other host's packets go to a controller and back."""
    ports.switch("ovs-ofctl", "add-flow", "br0", "priority=65535,in_port=2,actions=CONTROLLER:65535")
    with bench.client("echo", management(ports.switch)):
        common.run(*beginning(ports.hosts[1]), bench.directory / "traffic", "window", "e0", 64, QUIET_S)


# ---- A controller that never stops.

PROBE_US = 1000


def flood(bench):
    found = bench.turns(lambda which: beside_a_flood(bench, which), "beside a flood")
    unit = "microseconds of a good one's barriers; packets lost of 10,000 a second"
    figures, table = summary("beside a controller that never stops", unit, found, more_is_better=False)
    return figures, [table], []


def beside_a_flood(bench, which):
    found = {}
    few = bench.file("l2.some", lambda: b"".join(bench.adds("l2", 10_000)))
    packet = bytes.fromhex("020000000009020000000008") + b"\x88\xb5" + bytes(50)
    floods = {
        "nobody": None,
        "statistics requests": [bench.file("requests", lambda: 100 * messages.flow_stats_request())],
        "statistics requests, answers not read": [bench.file("requests", lambda: b""), "deaf"],
        "packet-outs": [bench.file("packet-outs", lambda: 1000 * messages.packet_out(packet, 2))],
        "garbage": [bench.file("garbage", lambda: messages.garbage(1000))],
        "flow-mods": [few],
        "bundles": [bench.file("bundles", lambda: messages.bundle(bench.adds("l2", 10_000)))],
    }
    with Ports(which, STREAM_FLOWS) as ports:
        socket = management(ports.switch)
        bench.controller("stream", socket, few)
        for name, words in floods.items():
            with contextlib.ExitStack() as going_on:
                if words:
                    going_on.enter_context(bench.client("flood", socket, *words))
                    time.sleep(0.5)
                seen = going_on.enter_context(stream(bench, ports, "known"))
                with bench.client("probe", socket, PROBE_US) as probed:
                    time.sleep(bench.options.seconds)
            found |= {f"{name}: {key}": probed[f"{key}_us"] for key in ("median", "p99", "longest")}
            found |= {f"{name}: lost": seen["lost"], f"{name}: longest pause, ms": seen["gap_ms"]}
    return found
