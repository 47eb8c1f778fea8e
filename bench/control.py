"""The control plane beside Open vSwitch, with dummy devices, so that the kernel takes no time: nothing here uses its devices.

Parts, by their names (`--control-parts`):

- `bridges`: from the start of a switch whose database has many bridges until all of them are configured; then one port more
  in one of them.
- `ports`: a port that is added to a bridge with many, or removed, by a transaction over a connection that stays open: until
  Interface:ofport is written (or the configuration confirmed), and the processor time of the control thread for it.
- `deletions`: a group deleted that a few flows name, and 1,000 flows deleted by cookie, in tables of several sizes.
- `gaps`: the longest time in which the control thread serves nobody, as the longest round trip of an echo request on a
  connection of its own, under several loads and all of them together.

The switch has a core, the clients the other. What a figure of the gaps has in it of waiting for the core that the threads of the
switch share is beside it: the time for which the control thread was ready to run and did not.
"""

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time

import common
import messages
import openflow
from openflow import CLIENT_CORE, OURS, PEER, SWITCH_CORE, SWITCHES
from report import Report, Table, middle, ratio

PARTS = ("bridges", "ports", "deletions", "gaps")
PORTS_A_BRIDGE = 10
CHANGES, CHANGES_LEAST, CHANGES_S = 20, 3, 10
PATIENCE_S = 300
GROUPS, FLOWS_A_GROUP = 20, 5
COOKIES, FLOWS_A_COOKIE = 20, 1000
ASKERS = 100
PROBE_US = 500
FLAP_S = 0.02
# How long a bundle may take beside everything else.
STREAM_S = 20
STAT_PORTS = 100
NICENESS = -20


def add_arguments(arguments):
    help_ = f"({' '.join(PARTS)})"
    arguments.add_argument("--control-parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=help_)
    arguments.add_argument("--bridges", type=int, default=1000, metavar="N", help="bridges in the database (1000)")
    arguments.add_argument("--bridge-ports", type=int, default=10_000, metavar="N", help="ports on one bridge (10000)")
    sizes = [10_000, 100_000, 1_000_000]
    arguments.add_argument("--table-sizes", type=int, nargs="+", default=sizes, metavar="N", help="flows beside those deleted")
    arguments.add_argument("--gap-flows", type=int, default=100_000, metavar="N", help="flows in a bundle and a dump (100000)")
    arguments.add_argument("--askers", type=int, default=ASKERS, metavar="N", help="controllers that ask for statistics (100)")


def measure(options):
    common.need_programs("cc", "ip", "taskset")
    common.need_peer()
    tables, figures = [], {}
    favour(os.getpid(), NICENESS)
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        bench = Bench(pathlib.Path(directory), options)
        for name, part in zip(PARTS, (bridges, ports, deletions, gaps)):
            if name not in options.control_parts:
                continue
            turns = {PEER: [], OURS: []}
            for round_number in range(options.rounds):
                for which, found in turns.items():
                    found.append(part(bench, which))
                    common.say(f"control, {name}, round {round_number + 1}, {which}: {found[-1]}")
            figures[name], table = summary(name, turns)
            tables.append(table)
    favour(os.getpid(), 0)
    return Report(tables, figures, [f"The switch has core {SWITCH_CORE}, the clients core {CLIENT_CORE}; dummy devices."])


def summary(name, turns):
    """A table of medians, of maxima where a key says "longest", with the ratio of the switches."""
    figures, rows = {"rounds": turns}, []
    for key in turns[PEER][0]:
        of = (lambda values: max(values)) if "longest" in key else middle
        peer, ours = (of([one[key] for one in turns[which]]) for which in (PEER, OURS))
        figures[key] = {PEER: peer, OURS: ours, "ratio": ratio(peer, ours)}
        rows.append([key, peer, ours, ratio(peer, ours)])
    return figures, Table(f"{name}, medians and the longest of all rounds", ["", PEER, OURS, "ratio (peer's by ours)"], rows)


def favour(pid, niceness=NICENESS):
    """Has other programs of the machine hardly count beside a program: what it starts has its niceness, and the scheduler
    weighs sessions (autogroup(7)) before it weighs processes."""
    os.setpriority(os.PRIO_PROCESS, pid, niceness)
    with contextlib.suppress(OSError):
        pathlib.Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


class Bench:
    """The options, the OpenFlow client, and files of messages, each made once."""

    def __init__(self, directory, options):
        self.directory, self.options = directory, options
        common.run("cc", "-O2", "-pthread", "-o", directory / "controller", common.ROOT / "bench/controller.c")

    def file(self, name, make):
        """The path of a file, whose messages `make` gives."""
        path = self.directory / name
        if not path.exists():
            with path.open("wb") as file:
                file.writelines(make())
        return path

    def controller(self, *words):
        """Runs the client to its end."""
        return json.loads(common.run("taskset", "-c", CLIENT_CORE, self.directory / "controller", *words))

    def streams(self, path, file):
        """Whether a file of messages is carried out in time; a switch that serves others first does not come to it."""
        words = ["taskset", "-c", CLIENT_CORE, self.directory / "controller", "stream", path, file]
        try:
            subprocess.run([str(word) for word in words], stdout=subprocess.DEVNULL, timeout=STREAM_S, check=True)
        except subprocess.TimeoutExpired:
            return False
        return True

    def beside(self, *words):
        """The client at work for a block."""
        return common.beside("taskset", "-c", CLIENT_CORE, self.directory / "controller", *words)


# ---- The database.


class Database:
    """A connection to a database server that stays open, which hears of what the switch writes."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.text, self.decoder, self.updates = "", json.JSONDecoder(), collections.deque()
        self.number = 0
        self.cur_cfg, self.ofports = 0, {}

    def close(self):
        self.socket.close()

    def next(self, deadline):
        """The next message."""
        while True:
            # A text that is not whole is not looked at for each of its pieces.
            if "}" in self.text[-1:]:
                with contextlib.suppress(ValueError):
                    message, end = self.decoder.raw_decode(self.text)
                    self.text = self.text[end:].lstrip()
                    return message
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            part = self.socket.recv(1 << 20)
            if not part:
                raise SystemExit("the database server closed the connection")
            self.text += part.decode()

    def ask(self, method, params):
        """The result of a request."""
        self.number += 1
        self.socket.sendall(json.dumps({"id": self.number, "method": method, "params": params}).encode())
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = self.next(deadline)
            if message.get("id") == self.number and "method" not in message:
                if message["error"] is not None:
                    raise SystemExit(f"{method}: {message['error']}")
                return message["result"]
            self.hear(message)

    def hear(self, message):
        """Takes note of an update; answers an echo request."""
        if message.get("method") == "echo":
            self.socket.sendall(json.dumps({"id": message["id"], "error": None, "result": message["params"]}).encode())
        if message.get("method") != "update":
            return
        tables = message["params"][1]
        for row in tables.get("Open_vSwitch", {}).values():
            self.cur_cfg = row.get("new", {}).get("cur_cfg", self.cur_cfg)
        for row in tables.get("Interface", {}).values():
            new = row.get("new", {})
            if isinstance(new.get("ofport"), int):
                self.ofports[new["name"]] = new["ofport"]

    def transact(self, *operations):
        results = self.ask("transact", ["Open_vSwitch", *operations])
        if any(result and "error" in result for result in results):
            raise SystemExit(f"transact: {[result for result in results if result and 'error' in result]}")
        return results

    def watch(self):
        """Has it hear of what the switch writes from now on."""
        later = {"initial": False, "insert": False, "delete": False, "modify": True}
        of_interfaces = {"columns": ["name", "ofport"], "select": later}
        found = self.ask("monitor", ["Open_vSwitch", None, {"Open_vSwitch": [{"columns": ["cur_cfg"]}], "Interface": [of_interfaces]}])
        self.hear({"method": "update", "params": [None, found]})

    def wait(self, condition, what):
        """Hears of updates until `condition` holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            try:
                self.hear(self.next(deadline))
            except TimeoutError:
                raise SystemExit(f"waited {PATIENCE_S} s in vain for {what}") from None


def next_cfg():
    return {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}


def rows_of_port(name, kind="dummy", **columns):
    """The operations that insert a port with its interface, which may have more columns; its name as a reference."""
    row = {"name": name, "type": kind, **columns}
    interface = {"op": "insert", "table": "Interface", "row": row, "uuid-name": f"i_{name}"}
    row = {"name": name, "interfaces": ["named-uuid", f"i_{name}"]}
    return [interface, {"op": "insert", "table": "Port", "row": row, "uuid-name": f"p_{name}"}], ["named-uuid", f"p_{name}"]


def rows_of_ports(bridge, ports):
    """The operations that insert ports, each with its name, type and more columns of its interface, into a bridge."""
    operations, references = [], []
    for name, kind, columns in ports:
        rows, reference = rows_of_port(name, kind, **columns)
        operations += rows
        references.append(reference)
    mutations = [["ports", "insert", ["set", references]]]
    return [*operations, {"op": "mutate", "table": "Bridge", "where": [["name", "==", bridge]], "mutations": mutations}]


def rows_of_bridge(name, n):
    """The operations that insert a bridge with its local port and `n` others."""
    operations, references = rows_of_port(name, "internal")
    references = [references]
    for number in range(n):
        of_port, reference = rows_of_port(f"{name}x{number}")
        operations += of_port
        references.append(reference)
    row = {"name": name, "datapath_type": "dummy", "fail_mode": "secure", "ports": ["set", references]}
    operations.append({"op": "insert", "table": "Bridge", "row": row, "uuid-name": f"b_{name}"})
    add = {"op": "mutate", "table": "Open_vSwitch", "where": []}
    operations.append(add | {"mutations": [["bridges", "insert", ["set", [["named-uuid", f"b_{name}"]]]]]})
    return operations


def add_port(bridge, name):
    operations, reference = rows_of_port(name)
    where = [["name", "==", bridge]]
    return [*operations, {"op": "mutate", "table": "Bridge", "where": where, "mutations": [["ports", "insert", ["set", [reference]]]]}]


def delete_port(bridge, uuid):
    where = [["name", "==", bridge]]
    return [{"op": "mutate", "table": "Bridge", "where": where, "mutations": [["ports", "delete", ["set", [uuid]]]]}]


@contextlib.contextmanager
def switch_of(which, bridges_, ports_):
    """A switch with its database filled before its daemon starts, and a connection to that; the seconds until all is
    configured."""
    switch = common.Switch(SWITCHES[which])
    try:
        database = Database(switch.dir / "db.sock")
        favour(switch.pid("ovsdb-server"))
        for number in range(bridges_):
            database.transact(*rows_of_bridge(f"br{number}", ports_))
        database.transact(next_cfg())
        database.watch()
        begin = time.monotonic()
        # It does not detach: a session of its own would not be weighed as this one.
        words = ["taskset", "-c", SWITCH_CORE, switch.bin / "ovs-vswitchd", "--enable-dummy", "--disable-system", "--pidfile", "--log-file"]
        daemon = subprocess.Popen([str(word) for word in words], env=switch.env, stderr=subprocess.DEVNULL)
        try:
            settled(database)
            yield switch, database, time.monotonic() - begin
        finally:
            daemon.terminate()
            daemon.wait()
        database.close()
    finally:
        switch.stop()


def control_ns(switch):
    """Nanoseconds for which the control thread has run, and has waited for a processor."""
    ran, waited, _ = pathlib.Path(f"/proc/{switch.pid()}/task/{switch.pid()}/schedstat").read_text().split()
    return int(ran), int(waited)


def changes_of_ports(switch, database, bridge, n=CHANGES):
    """Ports added one by one and then removed: medians of milliseconds until that is written, and of the control thread."""
    added, removed = collections.defaultdict(list), collections.defaultdict(list)

    def change(found, operations, is_done, what):
        before, begin = control_ns(switch)[0], time.monotonic()
        results = database.transact(*operations, next_cfg())
        database.wait(is_done, what)
        found["until written"].append(1000 * (time.monotonic() - begin))
        # What it does behind that is its work, too.
        openflow.settle(switch)
        found["control thread"].append((control_ns(switch)[0] - before) / 1e6)
        return results

    uuids, begin = [], time.monotonic()
    for number in range(n):
        # A few have to do where one takes seconds.
        if number >= CHANGES_LEAST and time.monotonic() - begin > CHANGES_S:
            break
        name = f"new{number}"
        results = change(added, add_port(bridge, name), lambda name=name: name in database.ofports, f"Interface:ofport of {name}")
        uuids.append(results[1]["uuid"])
        settled(database)
    for uuid in uuids:
        settled(database)
        wanted = database.cur_cfg + 1
        change(removed, delete_port(bridge, uuid), lambda wanted=wanted: database.cur_cfg >= wanted, "cur_cfg")
    found = {}
    for what, times in (("port added", added), ("port removed", removed)):
        found |= {f"{what}, ms until written": middle(times["until written"])}
        found |= {f"{what}, ms of the control thread": middle(times["control thread"])}
    return found


def settled(database):
    """Hears of all that the switch has confirmed so far."""
    row = database.transact({"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]})[0]["rows"][0]
    database.wait(lambda: database.cur_cfg >= row["next_cfg"], "cur_cfg")


def bridges(bench, which):
    n = bench.options.bridges
    with switch_of(which, n, PORTS_A_BRIDGE) as (switch, database, seconds):
        found = {f"{n:,} bridges of {PORTS_A_BRIDGE} ports configured, s": seconds}
        found["MiB of memory then"] = switch.rss_bytes() / (1 << 20)
        common.say(f"control, bridges, {which}: {seconds:.1f} s")
        changed = changes_of_ports(switch, database, f"br{n // 2}", 5)
        return found | {f"one bridge's {what}": figure for what, figure in changed.items()}


def ports(bench, which):
    n = bench.options.bridge_ports
    with switch_of(which, 1, n) as (switch, database, seconds):
        found = {f"a bridge of {n:,} ports configured, s": seconds}
        common.say(f"control, ports, {which}: {seconds:.1f} s")
        return found | changes_of_ports(switch, database, "br0")


# ---- Deletions.


def flow_of(i, cookie, actions):
    """One flow of many, of one shape."""
    field = messages.oxm(messages.ETH_DST, 0x020000000000 | i)
    return messages.flow_mod(messages.ADD, 0, fields=(field,), actions=actions, cookie=cookie)


def deletions(bench, which):
    found = {}
    for n in bench.options.table_sizes:
        beside = bench.file(f"flows.{n}", lambda n=n: (flow_of(i, 0, messages.output(1)) for i in range(n)))
        for what, (add, delete) in {
            f"a group of {FLOWS_A_GROUP} flows deleted": (with_groups, without_groups),
            f"{FLOWS_A_COOKIE:,} flows deleted by cookie": (with_cookies, without_cookies),
        }.items():
            with openflow.switch_without_packets(which) as switch:
                favour(switch.pid())
                path = openflow.management(switch)
                bench.controller("stream", path, beside)
                bench.controller("stream", path, bench.file(add.__name__, add))
                openflow.settle(switch)
                before = control_ns(switch)[0]
                done = bench.controller("barriers", path, bench.file(delete.__name__, delete))
                openflow.settle(switch)
                if done["errors"]:
                    raise SystemExit(f"{which}: {what}: errors")
                openflow.need_flows(switch, n)
                found[f"{what}, of {n:,}, us until the barrier"] = done["seconds"] / done["messages"] * 1e6
                found[f"{what}, of {n:,}, us of the control thread"] = (control_ns(switch)[0] - before) / done["messages"] / 1e3
    return found


def with_groups():
    for number in range(1, 1 + GROUPS):
        yield messages.group_mod(messages.GROUP_ADD, number, 1)
        for i in range(FLOWS_A_GROUP):
            actions = messages.to_group(number)
            yield flow_of(1 << 32 | number << 8 | i, 0, actions)


def without_groups():
    return (messages.group_mod(messages.GROUP_DELETE, number) for number in range(1, 1 + GROUPS))


def with_cookies():
    for cookie in range(1, 1 + COOKIES):
        for i in range(FLOWS_A_COOKIE):
            yield flow_of(1 << 32 | cookie << 16 | i, cookie, messages.output(1))


def without_cookies():
    whole = (1 << 64) - 1
    return (messages.flow_mod(messages.DELETE, 0, cookie=cookie, cookie_mask=whole) for cookie in range(1, 1 + COOKIES))


# ---- The longest gap.


class Control:
    """A connection to a daemon's control socket that stays open."""

    def __init__(self, switch):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(switch.dir / f"ovs-vswitchd.{switch.pid()}.ctl"))

    def ask(self, method, *params):
        self.socket.sendall(json.dumps({"id": 0, "method": method, "params": params}).encode())
        data = b""
        while part := self.socket.recv(1 << 16):
            data += part
            with contextlib.suppress(ValueError):
                return json.loads(data)
        raise SystemExit(f"{method}: the daemon closed the connection")


def flap(switch, is_over):
    """A port's link goes down and up until it is over."""
    control, state = Control(switch), "up"
    while not is_over() or state == "down":
        state = "down" if state == "up" else "up"
        answer = control.ask("netdev-dummy/set-admin-state", "p1", state)
        if answer["error"] is not None:
            raise SystemExit(f"set-admin-state: {answer['error']}")
        time.sleep(FLAP_S)


def gaps(bench, which):
    n, seconds = bench.options.gap_flows, bench.options.seconds
    bundles = [bench.file(f"bundle.{change}", lambda change=change: [bundle_of(n, change)]) for change in (0, 1)]
    asked = [messages.flow_stats_request(), messages.port_stats_request(), messages.table_stats_request()]
    requests = bench.file("asked", lambda: asked)
    deletion = bench.file("deletion", lambda: [messages.flow_mod(messages.DELETE, 0)])
    found = {}
    with openflow.switch_without_packets(which) as switch:
        favour(switch.pid())
        words = []
        for number in range(3, STAT_PORTS + 1):
            words += ["--", "add-port", "br0", f"p{number}", "--", "set", "Interface", f"p{number}", "type=dummy"]
        switch("ovs-vsctl", "--timeout=60", *words[1:])
        path = openflow.management(switch)
        bench.controller("stream", path, bundles[0])
        openflow.need_flows(switch, n)

        def replaced():
            end, change = time.monotonic() + seconds, 1
            while time.monotonic() < end and bench.streams(path, bundles[change]):
                change = 1 - change

        def deleted():
            end = time.monotonic() + seconds
            while time.monotonic() < end and bench.streams(path, deletion) and bench.streams(path, bundles[0]):
                pass

        def flapped():
            with flapping(switch):
                time.sleep(seconds)

        def all_together():
            with flapping(switch):
                replaced()

        loads = {
            "nothing": (False, lambda: time.sleep(seconds)),
            f"bundles of {n:,} flows": (False, replaced),
            f"all {n:,} flows deleted and added again": (False, deleted),
            "a link flaps": (False, flapped),
            f"{bench.options.askers} controllers ask": (True, lambda: time.sleep(seconds)),
            "all of these": (True, all_together),
        }
        for name, (asks, load) in loads.items():
            openflow.settle(switch)
            with contextlib.ExitStack() as going_on:
                asking = going_on.enter_context(bench.beside("ask", path, bench.options.askers, requests)) if asks else {}
                with bench.beside("gaps", path, PROBE_US) as probed:
                    begin, (_, before) = time.monotonic(), control_ns(switch)
                    load()
                    took, (_, after) = time.monotonic() - begin, control_ns(switch)
            for key in ("median", "p99", "longest"):
                found[f"{name}: {key}, ms"] = probed[f"{key}_us"] / 1000
            found[f"{name}: % of time waiting for the core"] = (after - before) / took / 1e7
            if asks:
                found[f"{name}: seconds an answer"] = asking["seconds"] / max(asking["answers"], 1)
    return found


@contextlib.contextmanager
def flapping(switch):
    """A port's link goes down and up during the block."""
    over = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        done = pool.submit(flap, switch, over.is_set)
        try:
            yield
        finally:
            over.set()
            done.result()


def bundle_of(n, change):
    return messages.bundle(flow_of(i, 0, messages.output(1 + (i + change) % 2)) for i in range(n))
