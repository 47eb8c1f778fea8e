"""Flowstone and a virtual machine with Linux's bonding driver, joined by three cables, and both ends' view of their bonds.

The cables are tap devices of the switch's namespace: tap0 leads to eth0 of the machine, and so on. The last one has another
speed than the others, so that Linux does not aggregate it with them. A host is a port of the bridge, in VLAN 10; the machine
has its VLAN devices.
"""

import json
import re
from contextlib import contextmanager

from virtual import VirtualMachine
from waiting import until

SPEEDS_MBPS = {"tap0": 1000, "tap1": 1000, "tap2": 100}
PAIR = ["tap0", "tap1"]
VLAN = 10
HOST6, VM, VM6 = "fd00:10::1", "10.1.0.99", "fd00:10::99"
PORT = 6000
# The flags of a LACPDU's state, from the lowest bit, as `lacp/show` has them.
STATES = ["activity", "timeout", "aggregation", "synchronized", "collecting", "distributing", "defaulted", "expired"]
FORWARDING = {"aggregation", "synchronized", "collecting", "distributing"}


def device(tap):
    """The machine's device at the other end of a cable."""
    return tap.replace("tap", "eth")


class Ends:
    """The switch with its host, and the machine. Each test configures the bonds, and `reset` removes them."""

    def __init__(self, making, directory):
        self.switch = making.switch(start="kernel")
        self.host = making.host(self.switch, 1)
        self.host.run("ip", "addr", "add", f"{HOST6}/64", "dev", "e0", "nodad")
        bridge = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]
        self.switch.vsctl(*bridge, "--", "add-port", "br0", self.host.port, f"tag={VLAN}")
        self.vm = VirtualMachine(directory, self.switch.namespace, SPEEDS_MBPS)
        try:
            # An echo service. The module has made a bond already.
            self.vm.run(f"ip link del bond0; nc -ll -p {PORT} -e cat >/dev/null 2>&1 &")
        except BaseException:
            self.vm.end()
            raise

    def reset(self):
        self.switch.vsctl("--if-exists", "del-port", "bond0")
        self.vm.run("for name in bond0 bridge0; do ! [ -e /sys/class/net/$name ] || ip link del $name; done")

    def add_bond(self, mode, taps, *settings):
        """The bond of the switch."""
        words = ["add-bond", "br0", "bond0", *taps, f"bond_mode={mode}"]
        self.switch.vsctl(*words, "other_config:lacp-time=fast", *settings)

    def add_linux_bond(self, words, taps):
        """The machine's bond, and its VLAN device."""
        members = [f"link set {device(tap)} down master bond0" for tap in taps]
        lines = [f"link add bond0 type bond miimon 100 {words}", *members, "link set bond0 up"]
        self.vm.batch("ip", lines + vlan_device("bond0"))

    def members(self):
        """The members of the switch's bond, as `lacp/show` has them."""
        shown = json.loads(self.switch.ours.appctl("--format", "json", "lacp/show", "bond0"))
        return shown["bond0"]["members"]

    def may_enable(self):
        return [member["may_enable"] for _, member in sorted(self.members().items())]

    def bond(self):
        """The switch's bond, as `bond/show` has it."""
        return json.loads(self.switch.ours.appctl("--format", "json", "bond/show", "bond0"))["bond0"]

    def linux_bond(self):
        return LinuxBond(self.vm.run("cat /proc/net/bonding/bond0").out)

    def agree(self, taps):
        """Whether Linux knows of each of these members what the switch says of itself, and the reverse; and both send and
        receive by it, as by one aggregate."""
        linux, members = self.linux_bond(), self.members()
        for tap in taps:
            ours, theirs = members[tap], linux.members[device(tap)]
            if ours["actor"] != theirs["partner"] or ours["partner"] != theirs["actor"]:
                return False
            if not all(FORWARDING <= set(member["state"]) for member in (ours["actor"], ours["partner"])):
                return False
            if theirs["aggregator"] != linux.aggregator:
                return False
        partner = members[taps[0]]["actor"]
        return linux.ports == len(taps) and linux.partner == (partner["key"], partner["system_id"])

    def until(self, check, what):
        """Waits, and shows what both ends know if that takes too long."""
        until(check, lambda: f"{what}\n{self.explain()}")

    def explain(self):
        commands = (["lacp/show"], ["bond/show"], ["fdb/show", "br0"])
        ours = [self.switch.ours.appctl(*command, check=False) for command in commands]
        command = "cat /proc/net/bonding/bond0; ip addr; ip neigh; bridge fdb"
        return "\n".join([*ours, self.vm.run(command, check=False).out])

    @contextmanager
    def without_carrier(self, tap):
        self.vm.set_carrier(tap, "off")
        try:
            yield
        finally:
            self.vm.set_carrier(tap, "on")

    def ping(self):
        """Both ends reach each other, by IPv4 and IPv6."""
        for address in (VM, VM6):
            self.host.ping(address)
        self.vm.run(f"ping -c 1 -w 30 {self.host.address} && ping -c 1 -w 30 {HOST6}")

    def bytes(self, tap):
        """The bytes that the switch has received and sent by a member."""
        text = self.switch.ofctl("dump-ports", "br0", tap)
        return [int(count) for count in re.findall(r"bytes=(\d+)", text)]


class LinuxBond:
    """The text of /proc/net/bonding/, in mode 802.3ad."""

    def __init__(self, text):
        head, *parts = text.split("Slave Interface: ")
        # Of the active aggregator, which may be missing.
        known = fields(head)
        self.aggregator, self.ports = known.get("Aggregator ID"), int(known.get("Number of ports", 0))
        self.partner = (int(known.get("Partner Key", 0)), known.get("Partner Mac Address"))
        self.members = {}
        for part in parts:
            member, actor, partner = re.split("details (?:actor|partner) lacp pdu:", part)
            infos = {"actor": lacp_info(fields(actor)), "partner": lacp_info(fields(partner))}
            self.members[part.split()[0]] = {"aggregator": fields(member)["Aggregator ID"], **infos}


def fields(text):
    """The first words of values, by name."""
    return dict(re.findall(r"(\w[\w ]+): (\S+)", text))


def lacp_info(known):
    """What Linux knows of one end of a link, with the names of `lacp/show`."""
    state = int(known["port state"])
    return {
        "system_id": known["system mac address"],
        "system_priority": int(known["system priority"]),
        "port_id": int(known["port number"]),
        "port_priority": int(known["port priority"]),
        "key": int(known.get("port key") or known["oper key"]),
        "state": [name for bit, name in enumerate(STATES) if state >> bit & 1],
    }


def vlan_device(lower):
    """Commands of ip(8) for the machine's VLAN device, with the addresses that the host pings."""
    name = f"{lower}.{VLAN}"
    addresses = [f"addr add {VM}/24 dev {name}", f"addr add {VM6}/64 dev {name} nodad"]
    return [f"link add link {lower} name {name} type vlan id {VLAN}", *addresses, f"link set {name} up"]
