"""Tunnels to Linux's own tunnel devices: Debian's kernel in a virtual machine is the other end of each type.

The machine's interface is a port of the bridge `under`, which carries the outer packets. The bridge `int` has the tunnels,
and for each an inner host: a device in one namespace, with networks of its own. All tunnels exist at the same time. A
flow for each matches the fields that the machine sent, and counts its packets; the machine's filters count those with the
fields that Flowstone sent.
"""

import re
import subprocess

import pytest

from hosts import Host, Namespace, finish
from linux_tunnels import CABLE_MTU, DIRECT, INNER, MTU, SHARED, SHARED_MAC, TLV_MAP, TUNNELS
from switch import run
from virtual import VirtualMachine

PORT = 6000
BYTES = 150_000
# Far fewer than bytes and acknowledgements of at least two connections need each way, even in segments of 64 kB.
PACKETS_MIN = 20


def each(templates, tunnels=TUNNELS):
    """The templates filled in for each tunnel."""
    return [tunnel.text(template) for tunnel in tunnels for template in templates]


def batch(namespace, lines):
    """Runs commands of ip(8) in a network namespace."""
    run(["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines))


class Network:
    """The switch, the inner hosts and the machine, with all tunnels."""

    def __init__(self, making, directory):
        self.switch = making.switch(start="kernel")
        # A host with other devices.
        self.host = Host.__new__(Host)
        Namespace.__init__(self.host, "inner")
        making.namespaces.append(self.host)
        self.vm = VirtualMachine(directory, self.switch.namespace, {"tap0": 1000}, CABLE_MTU)
        try:
            self.add_bridges()
            self.add_inner_hosts()
            self.add_tunnels()
            self.configure_vm()
            self.server = self.host.start_python("transfer.py", "serve", PORT, stdin=subprocess.PIPE)
        except BaseException:
            self.vm.end()
            raise

    def add_bridges(self):
        words = []
        for bridge in ("under", "int"):
            words += ["--", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
        self.switch.vsctl(*words[1:], "--", "set", "bridge", "int", "fail_mode=secure", "--", "add-port", "under", "tap0")
        self.switch.vsctl("set", "interface", "under", f"mtu_request={CABLE_MTU}")
        # By default, the kernel answers for the bridge's addresses at the tap device too, with that device's own.
        run(self.switch.inside(["sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore"]))
        lines = each(["addr add {h}/24 dev under", "addr add {h6}/64 dev under nodad"])
        batch(self.switch.namespace, ["link set under up", *lines])
        self.switch.ofctl("add-tlv-map", "int", TLV_MAP)

    def add_inner_hosts(self):
        inner = self.host.name
        veth = f"link add p{{n}} mtu {{mtu}} up type veth peer name e{{n}} netns {inner} mtu {{mtu}} address {{mac}}"
        batch(self.switch.namespace, each([veth]))
        lines = each(["link set e{n} up", "addr add {host}/24 dev e{n}", "addr add {host6}/64 dev e{n} nodad"])
        neighbours = [f"neigh add {address} lladdr {SHARED_MAC} dev e{{n}}" for address in ("{vm}", "{vm6}")]
        batch(inner, lines + each(neighbours, [tunnel for tunnel in TUNNELS if tunnel.static_neighbours]))

    def add_tunnels(self):
        words, flows = [], []
        for tunnel in TUNNELS:
            words += ["--", *tunnel.port_words()]
            flows += tunnel.flows()
        self.switch.vsctl(*words[1:])
        errors = self.switch.vsctl("--columns=name,error", "find", "interface", "error!=[]")
        assert not errors, errors
        self.switch.ofctl("add-flows", "int", "-", input="\n".join(flows))

    def configure_vm(self):
        vm = self.vm
        vm.run("echo 1048575 >/proc/sys/net/mpls/platform_labels")
        vm.run("for device in all eth0; do echo 1 >/proc/sys/net/ipv6/conf/$device/seg6_enabled; done")
        ip, tc = [f"link set eth0 mtu {CABLE_MTU} up", "link set dummy0 up"], []
        for device, words in SHARED.items():
            ip += [f"link add {device} {words}", f"link set {device} mtu {MTU} up"]
            tc += [f"qdisc add dev {device} clsact"]
        for tunnel in TUNNELS:
            ip += tunnel.ip_commands()
            tc += tunnel.tc_commands()
        vm.batch("ip", ip)
        vm.batch("tc", tc)
        for port, protocol in DIRECT.items():
            vm.run(f"ip fou add port {port} {protocol} && ip -6 fou add port {port} {protocol}")
        for tunnel in TUNNELS:
            for command in tunnel.shell:
                vm.run(tunnel.text(command))
        # An echo service, and data to send.
        vm.run(f"nc -ll -p {PORT} -e cat >/dev/null 2>&1 &")
        self.digest = vm.run(f"head -c {BYTES} /dev/urandom >/tmp/data; sha256sum </tmp/data").out.split()[0]

    def counts(self, tunnel):
        """Packets from and to the machine that the flows of a tunnel counted."""
        text = self.switch.ofctl("--no-names", "dump-flows", "int", f"cookie={tunnel.number}/-1")
        counts = [0, 0]
        for packets, port in re.findall(r"n_packets=(\d+),.*in_port=(\d+)", text):
            counts[int(port) > INNER] += int(packets)
        return counts

    def seen(self, tunnel):
        """Packets that the machine's filter for a tunnel counted."""
        text = self.vm.run(tunnel.text("tc -s filter show dev {d} ingress pref {n}")).out
        return sum(map(int, re.findall(r"bytes (\d+) pkt", text)))

    def fragments(self):
        """IPv4 fragments that the machine has sent."""
        names, values = self.vm.run("grep ^Ip: /proc/net/snmp").out.splitlines()[:2]
        return int(dict(zip(names.split(), values.split()))["FragCreates"])

    def explain(self, tunnel):
        """What is known when a test fails."""
        flows = self.switch.ofctl("dump-flows", "int", f"cookie={tunnel.number}/-1")
        megaflows = self.switch.appctl("dpctl/dump-flows")
        linux = self.vm.run(tunnel.text("ip -s -s -d link show dev {d}; ip neigh show dev {d}; ip neigh show dev eth0; ip -s link show dev eth0"), check=False).out
        return "\n".join([flows, megaflows, linux, self.vm.console.read_text(errors="replace")])

    def end(self):
        self.vm.end()
        finish(self.server)


@pytest.fixture(scope="module")
def network(module_making, tmp_path_factory):
    made = Network(module_making, tmp_path_factory.mktemp("vm"))
    yield made
    made.end()


@pytest.mark.parametrize("tunnel", TUNNELS, ids=lambda tunnel: tunnel.name)
def test_packets_pass_a_tunnel_to_linux_both_ways(network, tunnel):
    try:
        exchange(network, tunnel)
    except BaseException:
        print(network.explain(tunnel))
        raise


def exchange(network, tunnel):
    host, vm = network.host, network.vm
    fragments = network.fragments()
    for _, there in tunnel.families:
        host.ping(there)
    # One command, because the emulated machine starts programs slowly.
    vm.run(" && ".join(f"ping -c 2 -i 0.1 -w 30 {here}" for here, _ in tunnel.families))

    # Each connection has the same bytes there and back.
    for here, there in tunnel.families:
        host.python("transfer.py", "exchange", there, PORT, BYTES, 0)
        output = vm.run(f"nc {here} {PORT} </tmp/data | sha256sum", seconds=120).out
        assert output.split()[0] == network.digest, output

    came, sent = network.counts(tunnel)
    assert min(came, sent) >= PACKETS_MIN, f"the flows counted {came} packets from the machine, and {sent} to it"
    assert not tunnel.seen or network.seen(tunnel) >= PACKETS_MIN, "the machine saw other fields"
    assert network.fragments() - fragments >= PACKETS_MIN or tunnel.mtu < CABLE_MTU
    # Wrong checksums and sequence numbers count here.
    errors = vm.run(tunnel.text("cat /sys/class/net/{d}/statistics/rx_*errors")).out.split()
    assert set(errors) == {"0"}, errors
