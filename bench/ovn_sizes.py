"""OVN's southbound database with many chassis: ovn-northd makes a network of many ports, simulated chassis monitor what their
ovn-controller would (`clients.c`), by the conditions on the datapaths that each one has ports of, and confirm each change.

Measured are the time until all chassis have everything, changes of the northbound database until all have confirmed them
(`ovn-nbctl --wait=hv`), what they cost the server, its memory, and all chassis that come back when the server was restarted.
Of the changes' time, northd has the greater part, which is the same on both servers.
"""

import json
import pathlib
import signal
import tempfile
import time

import common
from between import compiled
from ovn_network import Central
from report import Table, middle, ratio

PEER, OURS = "peer", "ours"
# Chassis, switches, ports of each, and switches of each router. A chassis has the ports of one switch.
SIZES = {"100 chassis, 1,000 ports, 100 routers": (100, 100, 10, 1), "500 chassis, 10,000 ports, 100 routers": (500, 500, 20, 5)}
CHANGES = 10
# Tables that each chassis monitors whole, those with a column for the datapath, and the ones without a condition that it needs.
WHOLE = ("SB_Global", "Chassis", "Encap", "Address_Set", "Port_Group", "Logical_DP_Group", "DHCP_Options", "HA_Chassis_Group", "Meter")
BY_DATAPATH = {"Logical_Flow": "logical_datapath", "Port_Binding": "datapath", "MAC_Binding": "datapath", "Multicast_Group": "datapath"}
ZERO = "00000000-0000-0000-0000-000000000000"


def measure(options, notes):
    """The tables and the figures."""
    tables, figures = [], {}
    with compiled("clients") as programs:
        for size in options.ovn_sizes:
            turns = {which: [] for which in (PEER, OURS)}
            for number in range(options.rounds):
                for which, found in turns.items():
                    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
                        found.append(Turn(which, pathlib.Path(directory), programs / "clients", size).figures())
                    common.say(f"{size}, round {number + 1}, {which}: {found[-1]}")
            medians = {which: {key: middle(one[key] for one in found) for key in found[0]} for which, found in turns.items()}
            figures[size] = {"rounds": turns, **medians}
            rows = [[text, medians[PEER][text], medians[OURS][text], ratio(medians[PEER][text], medians[OURS][text])] for text in medians[PEER]]
            tables.append(Table(f"OVN: {size}", ["", "Open vSwitch", "Flowstone", "times"], rows))
            worse = [text for text in medians[PEER] if medians[OURS][text] > medians[PEER][text]]
            if worse:
                notes.append(f"{size}: not better in: {', '.join(worse)}.")
    return tables, figures


class Turn:
    """One server with one network."""

    def __init__(self, which, directory, clients, size):
        self.directory, self.clients = directory, clients
        self.chassis, self.switches, self.ports, self.of_router = SIZES[size]
        self.central = Central(which, directory)

    def figures(self):
        try:
            return self._figures()
        finally:
            self.central.stop()

    def _figures(self):
        central = self.central
        self.make_chassis()
        started_s = time.monotonic()
        for first in range(1, self.switches + 1, 10):
            central.nbctl(*self.commands(range(first, min(first + 10, self.switches + 1))))
        central.nbctl("--wait=sb", "sync")
        made_s, made_cpu_s = time.monotonic() - started_s, cpu_s(central.server.pid)
        requests = self.requests()
        words = [self.clients, self.directory / "central.sock", self.chassis, requests, "chassis"]
        before_s = cpu_s(central.server.pid)
        with common.beside(*words) as heard:
            joined_cpu_s = cpu_s(central.server.pid) - before_s
            central.nbctl("--wait=hv", "sync")
            before_s, times = cpu_s(central.server.pid), []
            for number in range(CHANGES):
                began_s = time.monotonic()
                central.nbctl("--wait=hv", *self.one_more_port(number))
                times.append(time.monotonic() - began_s)
            changes_cpu_s = cpu_s(central.server.pid) - before_s
            memory = memory_mib(central.server.pid, "VmRSS")
        back_s, peak = self.come_back(requests)
        return {
            "the network until it is in the southbound database, s": round(made_s, 2),
            "processor time of the server for that, s": round(made_cpu_s, 2),
            "all chassis come, until they have everything, s": round(heard["seconds"], 3),
            "processor time of the server for that, of all chassis, s": round(joined_cpu_s, 3),
            "a port more, until all chassis have confirmed it, ms": round(1000 * middle(times), 1),
            "processor time of the server for that, a port, ms": round(1000 * changes_cpu_s / CHANGES, 2),
            "memory of the server, MiB": round(memory, 1),
            "the server is restarted, until all chassis have everything, s": round(back_s, 3),
            "its greatest memory meanwhile, MiB": round(peak, 1),
        }

    def make_chassis(self):
        numbers = range(1, self.chassis + 1)
        # A request is one argument of a command.
        for some in (numbers[at : at + 50] for at in range(0, len(numbers), 50)):
            self.transact([operation for number in some for operation in self.one_chassis(number)])

    def one_chassis(self, number):
        name = f"hv{number}"
        encap = {"type": "geneve", "ip": f"172.16.{number // 250}.{number % 250 + 1}", "chassis_name": name}
        yield {"op": "insert", "table": "Encap", "row": encap, "uuid-name": f"e{number}"}
        row = {"name": name, "hostname": name, "encaps": ["named-uuid", f"e{number}"]}
        yield {"op": "insert", "table": "Chassis", "row": row, "uuid-name": f"c{number}"}
        row = {"name": name, "chassis": ["named-uuid", f"c{number}"]}
        yield {"op": "insert", "table": "Chassis_Private", "row": row}

    def transact(self, operations):
        words = [common.PEERS / "bin/ovsdb-client", "--timeout=600", "transact", self.central.remote]
        answer = common.run(*words, json.dumps(["OVN_Southbound", *operations]), env=self.central.environment)
        if '"error"' in answer:
            raise SystemExit(f"a transaction failed: {answer[:2000]}")
        return json.loads(answer)

    def commands(self, numbers):
        """The commands that make some switches with their routers and ports."""
        words = []
        for number in numbers:
            router, switch = f"r{(number - 1) // self.of_router + 1}", f"s{number}"
            net = f"10.{number // 250}.{number % 250}"
            words += ["--", "--may-exist", "lr-add", router, "--", "ls-add", switch]
            words += ["--", "lrp-add", router, f"{router}-{switch}", f"00:00:01:00:{number >> 8:02x}:{number & 255:02x}", f"{net}.254/24"]
            own = f"{switch}-{router}"
            words += ["--", "lsp-add", switch, own, "--", "lsp-set-type", own, "router", "--", "lsp-set-addresses", own, "router"]
            words += ["--", "lsp-set-options", own, f"router-port={router}-{switch}"]
            for port in range(1, self.ports + 1):
                words += self.port(number, port)
            words += ["--", "acl-add", switch, "to-lport", "1000", "ip4 && udp.dst == 53", "allow-related"]
            words += ["--", "acl-add", switch, "to-lport", "900", "ip4 && tcp", "allow-related"]
        return words[1:]

    def port(self, number, port):
        name = f"p{number}-{port}"
        address = f"00:00:02:{port:02x}:{number >> 8:02x}:{number & 255:02x} 10.{number // 250}.{number % 250}.{port}"
        return ["--", "lsp-add", f"s{number}", name, "--", "lsp-set-addresses", name, address, "--", "lsp-set-port-security", name, address]

    def one_more_port(self, number):
        return self.port(1 + 7 * number % self.switches, self.ports + 1)[1:]

    def requests(self):
        """A file with a line for each chassis: its request to monitor."""
        (answer,) = self.transact([{"op": "select", "table": "Datapath_Binding", "where": [], "columns": ["_uuid", "external_ids"]}])
        by_name = {dict(row["external_ids"][1])["name"]: row["_uuid"] for row in answer["rows"]}
        schema = json.loads((common.PEERS / "usr/share/ovn/ovn-sb.ovsschema").read_text())["tables"]
        columns = {table: list(schema[table]["columns"]) for table in (*WHOLE, *BY_DATAPATH, "Datapath_Binding")}
        lines = []
        for number in range(1, self.chassis + 1):
            router = (number - 1) // self.of_router
            names = [f"r{router + 1}", *(f"s{router * self.of_router + at + 1}" for at in range(self.of_router))]
            datapaths = [by_name[name] for name in names]
            wanted = {table: [{"columns": columns[table]}] for table in WHOLE}
            # A chassis does not hear of what it writes itself, in this simulation.
            wanted["Chassis"][0]["columns"] = [column for column in columns["Chassis"] if column != "nb_cfg"]
            for table, column in BY_DATAPATH.items():
                wanted[table] = [{"columns": columns[table], "where": [[column, "==", datapath] for datapath in datapaths]}]
            wanted["Datapath_Binding"] = [{"columns": columns["Datapath_Binding"], "where": [["_uuid", "==", datapath] for datapath in datapaths]}]
            request = {"id": 1, "method": "monitor_cond_since", "params": ["OVN_Southbound", number, wanted, ZERO]}
            lines.append(json.dumps(request, separators=(",", ":")))
        path = self.directory / "requests"
        path.write_text("\n".join(lines) + "\n")
        return path

    def come_back(self, requests):
        """The time from the start of a new server until all chassis have everything, and the server's greatest memory."""
        central = self.central
        central.restart_server(signal.SIGKILL)
        began_s = central.restarted_s
        common.run(self.clients, self.directory / "central.sock", self.chassis, requests, "answers")
        return time.monotonic() - began_s, memory_mib(central.server.pid, "VmHWM")


def cpu_s(pid):
    """Processor time of a process, in seconds."""
    ticks = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / 100


def memory_mib(pid, which):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"no {which}")
