"""Hosts that emulate VTEPs: a switch with both databases and an underlay bridge, ovs-vtep beside it, and what they show.

Switches have dummy datapaths. The uplinks of two hosts are joined by a socket; further tunnel endpoints exist only as
neighbours of the underlay, whose frames tests capture and inject at an uplink.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN

import pcap
from databases import plain
from switch import run
from waiting import until

NAME = "ps"
VXLAN_PORT = 4789
# How long to wait for a frame before it is sent again, as the configuration may not be in effect yet.
FRAME_S = 1.5

_payloads = itertools.count(1)


def address(number):
    """The tunnel endpoint of a host. Some hosts are no more than neighbours of the others."""
    return f"192.168.0.{number}"


def underlay_mac(number):
    return f"aa:bb:cc:00:00:{number:02x}"


def vtep_schema(peers):
    """Open vSwitch's file of the schema."""
    return peers.parent / "usr/share/openvswitch/vtep.ovsschema"


class Emulator:
    """ovs-vtep beside a switch: ours in the folder `programs`, or with `maker` Open vSwitch's script."""

    def __init__(self, switch, programs, peers, maker=None):
        self.switch = switch
        self.pidfile = switch.directory / "ovs-vtep.pid"
        self.log_file = switch.directory / "ovs-vtep.log"
        self.environment = dict(switch.environment)
        if maker:
            share = peers.parent / "usr/share/openvswitch/scripts"
            self.environment["PYTHONPATH"] = str(peers.parent / "usr/lib/python3/dist-packages")
            self.environment["PATH"] = f"{peers}:{os.environ['PATH']}"
            self.program = [sys.executable, share / "ovs-vtep"]
        else:
            self.program = [programs / "ovs-vtep"]

    def run(self, *words):
        """Runs the program in the foreground, to its end."""
        return run(self.switch.inside([*self.program, *words]), env=self.environment, check=False, timeout=60)

    def start(self, *words, name=NAME):
        options = ["--detach", "--pidfile", f"--log-file={self.log_file}", "-vconsole:off", *words]
        command = self.switch.inside([*self.program, *options, name])
        with open(self.switch.directory / "ovs-vtep.start", "wb+") as log:
            done = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=120)
            log.seek(0)
            assert done.returncode == 0, f"ovs-vtep did not start: {log.read().decode(errors='replace')}"

    def pid(self):
        return int(self.pidfile.read_text()) if self.pidfile.exists() else None

    def lives(self):
        try:
            with open(f"/proc/{self.pid()}/stat", encoding="ascii") as stat:
                return stat.read().rsplit(") ", 1)[1][0] != "Z"
        except OSError:
            return False

    def stop(self, number=signal.SIGTERM):
        """Ends the process, and waits until it is gone."""
        if (pid := self.pid()) is not None and self.lives():
            os.kill(pid, number)
            until(lambda: not self.lives(), "the end of ovs-vtep")
        if number == signal.SIGKILL:
            self.pidfile.unlink(missing_ok=True)

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


class VtepHost:
    """A physical switch `ps` with the ports p1 and p2, the bridge `br-phys` with the uplink, and ovs-vtep."""

    def __init__(self, making, number, maker=None):
        self.number = number
        self.address = address(number)
        self.switch = making.switch(start=False, maker=maker)
        self.database = self.switch.directory / "vtep.db"
        self.emulator = Emulator(self.switch, making.programs, making.peers, maker)
        self.ports = {}
        words = [self.switch.programs / "ovsdb-tool", "create", self.database, vtep_schema(making.peers)]
        run(words, env=self.switch.environment)
        self.switch.create_database()

    def start(self):
        """Starts the daemons but for ovs-vtep, and adds the bridges."""
        self.start_database()
        self.switch.vsctl("--no-wait", "init")
        self.start_switch()
        words = ["add-br", "br-phys", "--", "set", "bridge", "br-phys", f"other_config:hwaddr={underlay_mac(self.number)}"]
        words += ["fail-mode=standalone", "--", "add-br", NAME, "--", "set", "bridge", NAME, "fail-mode=secure"]
        self.switch.vsctl(*words)
        self.add_port("p1")
        self.add_port("p2")
        self.vtep("add-ps", NAME, "--", "set", "Physical_Switch", NAME, f"tunnel_ips={self.address}")

    def start_database(self):
        self.switch.start_database(self.database)

    def start_switch(self):
        self.switch.start_switch("--enable-dummy=system", "--disable-system")

    def settle_underlay(self, *others):
        """Gives the underlay bridge its address, and introduces other endpoints."""
        self.switch.appctl("netdev-dummy/ip4addr", "br-phys", f"{self.address}/24")
        self.switch.appctl("ovs/route/add", f"{self.address}/24", "br-phys")
        for other in others:
            self.switch.appctl("tnl/neigh/set", "br-phys", address(other), underlay_mac(other))

    def add_uplink(self, option):
        words = ["add-port", "br-phys", "uplink", "--", "set", "interface", "uplink", option]
        self.switch.vsctl(*words, f"options:tx_pcap={self.capture('uplink')}")

    def add_port(self, name):
        """Adds a port to the physical switch."""
        words = ["add-port", NAME, name, "--", "set", "interface", name, f"options:tx_pcap={self.capture(name)}"]
        self.switch.vsctl(*words)
        self.ports[name] = self.capture(name)

    def capture(self, name):
        return self.switch.directory / f"{name}-tx.pcap"

    def vtep(self, *words, **options):
        """Runs Debian's vtep-ctl."""
        return self.switch.peers.run("vtep-ctl", "--timeout=30", *words, **options).out.rstrip("\n")

    def receive(self, port, frame):
        self.switch.appctl("netdev-dummy/receive", port, bytes(frame).hex())

    def receive_tunnelled(self, source, key, frame):
        """The uplink receives a frame over VXLAN from another endpoint."""
        outer = Ether(src=underlay_mac(source), dst=underlay_mac(self.number)) / IP(src=address(source), dst=self.address)
        self.receive("uplink", outer / UDP(sport=40000, dport=VXLAN_PORT, chksum=0) / VXLAN(vni=key, flags="Instance") / frame)

    def tunnelled(self):
        """The frames that left over VXLAN: [(endpoint, key, frame)]."""
        found = []
        for frame in pcap.packets(self.capture("uplink")):
            packet = Ether(frame)
            if UDP in packet and packet[UDP].dport == VXLAN_PORT:
                header = VXLAN(bytes(packet[UDP].payload))
                found.append((packet[IP].dst, header.vni, bytes(header.payload)))
        return found

    # What a host shows. Equal hosts show equal values: UUIDs and numbers in names are left out.

    def tables(self, database, *tables):
        """{table: {uuid: {column: value}}}."""
        operations = [{"op": "select", "table": table, "where": []} for table in tables]
        text = self.switch.peers.ovsdb_client("transact", f"unix:{self.switch.socket}", json.dumps([database, *operations]))
        found = {}
        for table, result in zip(tables, json.loads(text)):
            found[table] = {row["_uuid"][1]: {name: plain(value) for name, value in row.items()} for row in result["rows"]}
        return found

    def rows(self):
        """The rows of the VTEP database, with names in the place of references."""
        tables = ["Physical_Switch", "Physical_Port", "Logical_Switch", "Physical_Locator", "Physical_Locator_Set", "Tunnel"]
        tables += [f"{kind}_Macs_{side}" for kind in ("Ucast", "Mcast") for side in ("Local", "Remote")]
        found = self.tables("hardware_vtep", *tables)
        port = lambda uuid: found["Physical_Port"][uuid]["name"]
        logical = lambda uuid: found["Logical_Switch"][uuid]["name"]
        locator = lambda uuid: found["Physical_Locator"][uuid]["dst_ip"]
        locators = lambda uuid: sorted(map(locator, references(found["Physical_Locator_Set"][uuid]["locators"])))
        shown = {
            "switches": [
                (row["name"], row["description"], sorted(map(port, references(row["ports"]))), len(references(row["tunnels"])))
                for row in found["Physical_Switch"].values()
            ],
            "ports": sorted(
                (
                    row["name"],
                    {vlan: logical(uuid) for vlan, (_, uuid) in row["vlan_bindings"][1]},
                    [vlan for vlan, _ in row["vlan_stats"][1]],
                )
                for row in found["Physical_Port"].values()
            ),
            "tunnels": sorted(
                (locator(row["local"][1]), locator(row["remote"][1]), dict(row["bfd_config_local"][1]), dict(row["bfd_status"][1]))
                for row in found["Tunnel"].values()
            ),
        }
        for side in ("Local", "Remote"):
            shown[f"unicast {side}"] = sorted(
                (logical(row["logical_switch"][1]), row["MAC"], locator(row["locator"][1]))
                for row in found[f"Ucast_Macs_{side}"].values()
            )
            shown[f"multicast {side}"] = sorted(
                (logical(row["logical_switch"][1]), row["MAC"], locators(row["locator_set"][1]))
                for row in found[f"Mcast_Macs_{side}"].values()
            )
        return shown

    def local_macs(self):
        """The learned addresses: [(logical switch, MAC)]."""
        return [row[:2] for row in self.rows()["unicast Local"]]

    def bridges(self):
        """Bridges by role, with their ports: names with numbers in them are left out."""
        found = self.tables("Open_vSwitch", "Bridge", "Port", "Interface")
        shown = {}
        for bridge in found["Bridge"].values():
            ids = dict(bridge["external_ids"][1])
            ports = []
            for uuid in references(bridge["ports"]):
                port = found["Port"][uuid]
                interface = found["Interface"][references(port["interfaces"])[0]]
                options = {key: value for key, value in interface["options"][1] if not key.endswith(("pcap", "stream"))}
                name = "" if port["name"] == bridge["name"] or port["name"].startswith("vx") else port["name"]
                ports.append((interface["type"], name, options, dict(interface["bfd"][1])))
            name = ids.get("logical_switch_name", bridge["name"])
            shown[name] = (ids, bridge["datapath_type"], sorted(ports, key=json.dumps))
        return shown

    def shown(self):
        return {"rows": self.rows(), "bridges": self.bridges()}

    def bridge_of(self, logical):
        """The name of the bridge of a logical switch."""
        bridges = self.tables("Open_vSwitch", "Bridge")["Bridge"].values()
        return next((row["name"] for row in bridges if ["logical_switch_name", logical] in row["external_ids"][1]), None)


def references(value):
    """The UUIDs in a column of references, as `plain` has it."""
    return [value[1]] if value[0] == "uuid" else [uuid for _, uuid in value[1]]


class Vteps:
    """One VTEP, or two whose uplinks are joined."""

    # Endpoints that exist only as neighbours.
    PHANTOMS = (8, 9)

    def __init__(self, making, maker=None, count=2):
        self.hosts = [VtepHost(making, number + 1, maker) for number in range(count)]
        self.one, self.two = self.hosts[0], self.hosts[-1]

    def start(self):
        """Starts all daemons but the emulators."""
        socket = self.one.switch.directory / "cable"
        for host in self.hosts:
            host.start()
            host.add_uplink(f"options:pstream=punix:{socket}" if host is self.one else f"options:stream=unix:{socket}")
        self.settle_underlay()
        return self

    def start_emulators(self):
        for host in self.hosts:
            host.emulator.start()

    def settle_underlay(self):
        for host in self.hosts:
            host.settle_underlay(*(n for n in (1, 2, *self.PHANTOMS) if n != host.number))

    def places(self, payload):
        """Where frames with this payload left: ports as "h1.p1", and phantom endpoints as "192.168.0.9/KEY"."""
        found = []
        for host in self.hosts:
            for port, file in host.ports.items():
                found += [(f"h{host.number}.{port}", frame) for frame in pcap.packets(file) if payload in frame]
            phantoms = [address(number) for number in self.PHANTOMS]
            for endpoint, key, frame in host.tunnelled():
                if endpoint in phantoms and payload in frame:
                    found.append((f"{endpoint}/{key}", frame))
        return sorted(found)

    def goes(self, send, header, *expected):
        """Sends frames with this header and a new payload by `send` until one leaves at the expected places only, and
        returns the frames there, in the order of their places."""
        places = lambda found: [place for place, _ in found]
        expected, last = sorted(expected), []

        def attempt():
            nonlocal last
            payload = b"frame%08d" % next(_payloads)
            send(header / (payload + bytes(40)))
            # A frame to nowhere must have the time to go somewhere.
            end = time.monotonic() + FRAME_S
            while time.monotonic() < end and (not expected or places(self.places(payload)) != expected):
                time.sleep(0.05)
            last = self.places(payload)
            return places(last) == expected

        until(attempt, lambda: f"a frame at {expected}; the last one was at {places(last)}")
        return [frame for _, frame in last]

    def stop(self):
        """Ends the emulators, and returns what was wrong."""
        wrong = []
        for host in self.hosts:
            log = host.emulator.log()
            wrong += [line for line in log.splitlines() if "panicked" in line or "|EMER|" in line or "Traceback" in line]
            host.emulator.stop()
        return wrong
