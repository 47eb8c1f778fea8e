"""Tunnels to Linux's own tunnel devices: Debian's kernel in a virtual machine is the other end of each type.

The machine's interface is a port of the bridge under, which carries the outer packets. The bridge int has the tunnels, and
for each an inner host: a device in one namespace, with networks of its own. All tunnels exist at the same time, and
are told apart by their outer addresses, which no two have in common, or by their keys.
"""

import re
import subprocess
from dataclasses import dataclass, field

import pytest

from hosts import Host, Namespace, finish
from switch import run
from virtual import VirtualMachine

PORT = 6000
BYTES = 300_000
# Leaves room for every outer header in the 1500 bytes of the cable.
MTU = 1380


@dataclass
class Tunnel:
    """Tunnel number `number` of both ends. In command lines, {h} and {v} are the outer addresses of Flowstone and of the
    machine, {h6} and {v6} those of IPv6, {n} is the number and {d} the machine's device."""

    name: str
    type: str
    # Commands of the machine that make the device, if it is none that several tunnels share.
    linux: list
    options: str
    # Words for routes to the inner host, for devices that take outer fields from routes.
    encap: str = ""
    device: str = ""
    # What a flow matches in received packets, and does with sent ones.
    match: str = ""
    before_output: str = ""
    # Whether inner packets are without Ethernet.
    l3: bool = False
    outer6: bool = False
    inner6: bool = True
    key: bool = True
    # A filter of tc(8) for packets that the machine receives, and its device.
    seen: str = ""
    # Overrides routes to the inner host, for IPv4 and IPv6.
    routes: tuple = ()
    more: list = field(default_factory=list)
    number: int = 0

    def text(self, template):
        number = self.number
        return template.format(
            h=f"192.0.2.{number}",
            v=f"192.0.2.{100 + number}",
            h6=f"2001:db8:1::1:{number}",
            v6=f"2001:db8:1::2:{number}",
            last6=f"2001:db8:1::2:{number - 1}",
            n=number,
            d=self.device or f"t{number}",
            host=f"10.20.{number}.1",
            host6=f"fd20:{number}::1",
            vm=f"10.20.{number}.2",
            vm6=f"fd20:{number}::2",
            mac=f"02:00:00:00:{number:02x}:01",
        )


GRE_FLAGS = "key {n} seq csum"


def tunnels():
    both = "remote_ip={v} local_ip={h}"
    both6 = "remote_ip={v6} local_ip={h6}"
    ends = "local {v} remote {h}"
    ends6 = "local {v6} remote {h6}"
    fou = "encap fou encap-sport auto encap-dport"
    options = "csum=true seq=true"
    geneve_sent = "set_field:0x1a2b3c4d->tun_metadata0,set_field:0x5e->tun_metadata1,"
    geneve_came = "tun_metadata0=0xdeadbeef,tun_metadata1=0x0102030405060708,tun_metadata2=0x" + "7f" * 124
    geneve_opts = "geneve_opts 259:1:deadbeef,259:130:0102030405060708,65535:7:" + "7f" * 124
    geneve_seen = "geneve_opts 0103:01:1a2b3c4d,0103:82:000000000000005e"
    made = [
        Tunnel("geneve", "geneve", ["ip link add {d} type geneve id {n} remote {h}"], both),
        Tunnel("geneve-csum", "geneve", ["ip link add {d} type geneve id {n} remote {h} udpcsum"], both + " csum=true"),
        Tunnel("geneve-ipv6", "geneve", ["ip link add {d} type geneve id {n} remote {h6}"], both6, outer6=True),
        Tunnel(
            "geneve-options", "geneve", [], both + " dst_port=6082", device="geneve", match=geneve_came,
            before_output=geneve_sent, encap="encap ip id {n} src {v} dst {h} " + geneve_opts,
            seen="enc_key_id {n} " + geneve_seen,
        ),
        Tunnel(
            "geneve-options-ipv6", "geneve", [], both6 + " dst_port=6082", device="geneve", match=geneve_came, outer6=True,
            before_output=geneve_sent, encap="encap ip6 id {n} src {v6} dst {h6} " + geneve_opts,
            seen="enc_key_id {n} " + geneve_seen,
        ),
        Tunnel("vxlan", "vxlan", ["ip link add {d} type vxlan id {n} dstport 4789 " + ends], both),
        Tunnel("vxlan-ipv6", "vxlan", ["ip link add {d} type vxlan id {n} dstport 4789 " + ends6], both6, outer6=True),
        Tunnel(
            "vxlan-gbp", "vxlan", ["ip link add {d} type vxlan id {n} dstport 4791 gbp " + ends],
            both + " dst_port=4791 exts=gbp", match="tun_gbp_id=0x1234", before_output="set_field:0x4321->tun_gbp_id,",
            more=["tc filter add dev {d} egress matchall action skbedit mark 0x1234"],
            seen="mark 0x4321",
        ),
        Tunnel(
            "vxlan-gpe", "vxlan", [], both + " dst_port=4790 exts=gpe packet_type=legacy_l3", device="gpe", l3=True,
            encap="encap ip id {n} src {v} dst {h}",
        ),
        Tunnel(
            "vxlan-gpe-ipv6", "vxlan", [], both6 + " dst_port=4790 exts=gpe packet_type=legacy_l3", device="gpe", l3=True,
            outer6=True, encap="encap ip6 id {n} src {v6} dst {h6}",
        ),
        Tunnel(
            "gre", "gre", ["ip link add {d} type gre " + ends], both + " packet_type=legacy_l3", l3=True, key=False,
        ),
        Tunnel(
            "gre-flags", "gre", ["ip link add {d} type gre " + ends + " " + GRE_FLAGS],
            both + " packet_type=legacy_l3 " + options, l3=True,
        ),
        Tunnel("gretap", "gre", ["ip link add {d} type gretap " + ends], both, key=False),
        Tunnel("gretap-flags", "gre", [f"ip link add {{d}} type gretap {ends} {GRE_FLAGS}"], f"{both} {options}"),
        Tunnel(
            "ip6gre", "gre", ["ip link add {d} type ip6gre " + ends6], both6 + " packet_type=legacy_l3", l3=True,
            outer6=True, key=False,
        ),
        Tunnel(
            "ip6gre-flags", "gre", [f"ip link add {{d}} type ip6gre {ends6} {GRE_FLAGS} encaplimit none"],
            f"{both6} packet_type=legacy_l3 {options}", l3=True, outer6=True,
        ),
        Tunnel(
            "ip6gretap", "gre", ["ip link add {d} type ip6gretap " + ends6 + " encaplimit none"], both6, outer6=True,
            key=False,
        ),
        Tunnel(
            "ip6gretap-flags", "ip6gre", [f"ip link add {{d}} type ip6gretap {ends6} {GRE_FLAGS} encaplimit none"],
            f"{both6} {options}", outer6=True,
        ),
    ]
    for suffix, kind, addresses, here, outer6 in (("", "erspan", ends, both, False), ("-ipv6", "ip6erspan", ends6, both6, True)):
        limit = " encaplimit none" if outer6 else ""
        made += [
            Tunnel(
                f"erspan-1{suffix}", "erspan",
                [f"ip link add {{d}} type {kind} {addresses} seq key {{n}} erspan_ver 1 erspan 123{limit}"],
                here + " erspan_ver=1 erspan_idx=0x55", match="tun_erspan_ver=1,tun_erspan_idx=123", outer6=outer6,
            ),
            Tunnel(
                f"erspan-2{suffix}", kind if outer6 else "erspan",
                [f"ip link add {{d}} type {kind} {addresses} seq key {{n}} erspan_ver 2 erspan_dir egress erspan_hwid 5{limit}"],
                here + " erspan_ver=2 erspan_dir=1 erspan_hwid=0x4",
                match="tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=5", outer6=outer6,
            ),
        ]
    made += [
        Tunnel(
            "erspan-1-fields", "erspan", [], both + " erspan_ver=flow", device="erspan", match="tun_erspan_ver=1,tun_erspan_idx=1023",
            before_output="set_field:1->tun_erspan_ver,set_field:0x77->tun_erspan_idx,",
            encap="encap ip id {n} src {v} dst {h} key seq erspan_opts 1:1023:0:0", seen="enc_key_id {n} erspan_opts 1:119:0:0",
        ),
        Tunnel(
            "erspan-2-fields", "erspan", [], both + " erspan_ver=flow", device="erspan",
            match="tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=33",
            before_output="set_field:2->tun_erspan_ver,set_field:1->tun_erspan_dir,set_field:0x2a->tun_erspan_hwid,",
            encap="encap ip id {n} src {v} dst {h} key seq erspan_opts 2:0:1:33", seen="enc_key_id {n} erspan_opts 2:0:1:42",
        ),
        Tunnel(
            "bareudp", "bareudp",
            [f"ip link add {{d}} type ipip {ends} {fou} 6635", f"ip link add s{{n}} type sit {ends} {fou} 6635",
             "ip link set s{n} mtu 1400 up"],
            both + " dst_port=6635 payload_type=ip", l3=True, key=False, routes=("dev {d}", "dev s{n}"),
        ),
        Tunnel(
            "bareudp-ipv6", "bareudp", [f"ip link add {{d}} type ip6tnl mode any {ends6} encaplimit none {fou} 6635"],
            both6 + " dst_port=6635 payload_type=ip", l3=True, key=False, outer6=True,
        ),
        Tunnel(
            "bareudp-mpls", "bareudp", [f"ip link add {{d}} type ipip mode mplsip {ends} {fou} 6636"],
            both + " dst_port=6636 payload_type=mpls", l3=True, key=False, routes=("encap mpls {n}04 dev {d}", "encap mpls {n}06 dev {d}"),
            more=["echo 1 >/proc/sys/net/mpls/conf/{d}/input"],
        ),
        Tunnel(
            "bareudp-mpls-ipv6", "bareudp", [f"ip link add {{d}} type ip6tnl mode any {ends6} encaplimit none {fou} 6636"],
            both6 + " dst_port=6636 payload_type=mpls", l3=True, key=False, outer6=True,
            routes=("encap mpls {n}04 dev {d}", "encap mpls {n}06 dev {d}"),
            more=["echo 1 >/proc/sys/net/mpls/conf/{d}/input"],
        ),
        Tunnel(
            "gtpu", "gtpu", ["ip link add {d} type gtp role ggsn"], both + " in_key=0x1{n} out_key=0x2{n}", l3=True, inner6=False,
            match="tun_gtpu_msgtype=255,tun_gtpu_flags=0x30", more=["gtp-session {d} {h} {host} 0x2{n} 0x1{n}"],
        ),
        Tunnel(
            "srv6", "srv6", ["ip link add {d} type dummy", "ip sr tunsrc set {v6}"], both6, l3=True, outer6=True, key=False,
            routes=("encap seg6 mode encap segs {h6} dev eth0",) * 2,
        ),
        Tunnel(
            "srv6-segments", "srv6", ["ip link add {d} type dummy"],
            "remote_ip={last6} local_ip={h6} srv6_segs={last6},{v6}", l3=True, outer6=True, key=False,
            routes=("encap seg6 mode encap segs {h6} dev eth0",) * 2,
        ),
    ]
    for number, tunnel in enumerate(made, 1):
        tunnel.number = number
    return made


TUNNELS = tunnels()

SHARED_MAC = "02:00:00:00:aa:03"
SHARED = {
    "geneve": "type geneve dstport 6082 external",
    "gpe": "type vxlan dstport 4790 gpe external",
    "erspan": "type erspan external",
}
# TLVs of the options in `tunnels`: 0x103 is 259, 0x82 is 130.
TLV_MAP = (
    "{class=0x103,type=1,len=4}->tun_metadata0,{class=0x103,type=0x82,len=8}->tun_metadata1,"
    "{class=0xffff,type=7,len=124}->tun_metadata2"
)


class Network:
    """The switch, the inner hosts and the machine, with all tunnels."""

    def __init__(self, making, directory):
        self.switch = making.switch(start="kernel")
        # Methods of hosts are wanted, but other devices.
        self.host = Host.__new__(Host)
        Namespace.__init__(self.host, "inner")
        making.namespaces.append(self.host)
        self.vm = VirtualMachine(directory, self.switch.namespace, "tap0")
        try:
            self.add_bridges()
            self.configure_vm()
            for tunnel in TUNNELS:
                self.add(tunnel)
        except BaseException:
            self.vm.end()
            raise

    def add_bridges(self):
        words = []
        for bridge in ("under", "int"):
            words += ["--", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
        self.switch.vsctl(*words[1:], "--", "set", "bridge", "int", "fail_mode=secure", "--", "add-port", "under", "tap0")
        inside = ["ip", "-n", self.switch.namespace]
        for tunnel in TUNNELS:
            run([*inside, "addr", "add", tunnel.text("{h}/24"), "dev", "under"])
            run([*inside, "addr", "add", tunnel.text("{h6}/64"), "dev", "under", "nodad"])
        run([*inside, "link", "set", "under", "up"])
        self.switch.ofctl("add-tlv-map", "int", TLV_MAP)

    def configure_vm(self):
        self.vm.run("echo 1048575 >/proc/sys/net/mpls/platform_labels")
        self.vm.run("cd /proc/sys/net/ipv6/conf; for i in all eth0; do echo 1 >$i/seg6_enabled; done")
        self.vm.run("ip link set eth0 up; ip link set dummy0 up")
        for port, protocol in ((6635, "gue"), (6636, "ipproto 137")):
            self.vm.run(f"ip fou add port {port} {protocol} && ip -6 fou add port {port} {protocol}")
        for device, words in SHARED.items():
            address = "" if device == "gpe" else f"address {SHARED_MAC}"
            self.vm.run(f"ip link add {device} {words} && ip link set {device} mtu {MTU} {address} up")
            self.vm.run(f"tc qdisc add dev {device} clsact")
        self.vm.run("(nc -ll -p 6000 -e cat >/dev/null 2>&1 &)")
        self.vm.run(f"head -c {BYTES} /dev/urandom >/tmp/data")
        self.digest = self.vm.run("sha256sum </tmp/data").out.split()[0]

    def add(self, tunnel):
        import time; t0=time.time()
        self.add_to_vm(tunnel)
        t1=time.time()
        self.add_to_switch(tunnel)
        print(tunnel.name, t1-t0, time.time()-t1)

    def add_to_vm(self, tunnel):
        device = tunnel.text("{d}")
        commands = [
            "ip addr add {v}/24 dev eth0",
            "ip addr add {v6}/64 dev eth0 nodad",
            # Devices without an address of their own take that of the route.
            "ip route add {h}/32 dev eth0 src {v}",
            "ip -6 route add {h6}/128 dev eth0 src {v6}",
            *tunnel.linux,
        ]
        if tunnel.device:
            commands += ["ip addr add {vm}/32 dev dummy0", "ip addr add {vm6}/128 dev dummy0 nodad"]
        else:
            commands += [f"ip link set {{d}} mtu {MTU} up", "ip addr add {vm}/24 dev {d}", "tc qdisc add dev {d} clsact"]
            if tunnel.inner6:
                commands += ["ip addr add {vm6}/64 dev {d} nodad"]
        routes = tunnel.routes or ((f"{tunnel.encap} dev {device}",) * 2 if tunnel.encap else ())
        for family, address, source, route in zip(("-4", "-6"), ("{host}/32", "{host6}/128"), ("{vm}", "{vm6}"), routes):
            commands += [f"ip {family} route add {address} {route} mtu {MTU} src {source}"]
        if tunnel.device and not tunnel.l3:
            commands += [f"ip neigh add {address} lladdr {{mac}} dev {{d}}" for address in ("{host}", "{host6}")]
        if "mpls" in tunnel.name:
            commands += ["ip -f mpls route add 90{n} dev lo"]
        if tunnel.seen:
            kind = "u32 match" if "mark" in tunnel.seen else "flower"
            words = f"{tunnel.seen} 0xffffffff" if "mark" in tunnel.seen else tunnel.seen
            commands += [f"tc filter add dev {{d}} ingress pref {{n}} protocol all {kind} {words} action pass"]
        commands += tunnel.more
        self.vm.run(" && ".join(tunnel.text(command) for command in commands))

    def add_to_switch(self, tunnel):
        text = tunnel.text
        port, device, inner = text("t{n}"), text("e{n}"), text("p{n}")
        run(
            ["ip", "link", "add", inner, "netns", self.switch.namespace, "mtu", MTU, "up", "type", "veth"]
            + ["peer", "name", device, "netns", self.host.name, "mtu", MTU, "address", text("{mac}")]
        )
        inside = ["ip", "-n", self.host.name]
        run([*inside, "link", "set", device, "up"])
        run([*inside, "addr", "add", text("{host}/24"), "dev", device])
        run([*inside, "addr", "add", text("{host6}/64"), "dev", device, "nodad"])
        if tunnel.l3 or tunnel.device:
            for address in ("{vm}", "{vm6}"):
                run([*inside, "neigh", "add", text(address), "lladdr", SHARED_MAC, "dev", device])
        key = text("options:key={n}") if tunnel.key and "key=" not in tunnel.options else ""
        options = [f"options:{word}" for word in text(tunnel.options).split()]
        words = ["add-port", "int", port, "--", "set", "interface", port, f"type={tunnel.type}", *options, key]
        words = [word for word in words if word]
        words += [text("ofport_request={n}"), "--", "add-port", "int", inner]
        words += ["--", "set", "interface", inner, f"ofport_request={200 + tunnel.number}"]
        self.switch.vsctl(*words)
        assert self.switch.vsctl("get", "interface", port, "error") == "[]", self.switch.vsctl("list", "interface", port)
        self.switch.ofctl("add-flows", "int", "-", input="\n".join(self.flows(tunnel)))

    def flows(self, tunnel):
        """The flows of a tunnel, with its number as their cookie: the first are for packets from it."""
        text = tunnel.text
        match = text("cookie={n},in_port={n}")
        if tunnel.key:
            match += f",tun_id={self.key_in(tunnel)}"
        match += text(",tun_ipv6_src={v6},tun_ipv6_dst={h6}" if tunnel.outer6 else ",tun_src={v},tun_dst={h}")
        if "srv6-segments" in tunnel.name:
            match = match.replace(text("{v6}"), text("{last6}"))
        match += f",{tunnel.match}" if tunnel.match else ""
        output = f"output:{200 + tunnel.number}"
        if tunnel.l3:
            output = text("set_field:{mac}->eth_dst,") + output
        back = text(f"cookie={{n}},in_port={200 + tunnel.number}")
        if "mpls" in tunnel.name:
            pushed = text("push_mpls:0x8847,set_field:90{n}->mpls_label,output:{n}")
            return [
                text(f"{match},mpls,mpls_label={{n}}04,actions=pop_mpls:0x0800,{output}"),
                text(f"{match},mpls,mpls_label={{n}}06,actions=pop_mpls:0x86dd,{output}"),
                f"{back},ip,actions={pushed}",
                f"{back},ipv6,actions={pushed}",
            ]
        return [f"{match},actions={output}", text(f"{back},actions={tunnel.before_output}output:{{n}}")]

    def key_in(self, tunnel):
        return tunnel.text("0x1{n}") if tunnel.type == "gtpu" else tunnel.number

    def counts(self, tunnel):
        """Packets from and to the machine that the flows of a tunnel counted."""
        text = self.switch.ofctl("--no-names", "dump-flows", "int", f"cookie={tunnel.number}/-1")
        counts = [0, 0]
        for packets, port in re.findall(r"n_packets=(\d+),.*in_port=(\d+)", text):
            counts[int(port) > 200] += int(packets)
        return counts

    def explain(self, tunnel):
        """What is known when a test fails."""
        device = tunnel.text("{d}")
        return "\n".join(
            [
                self.switch.ofctl("dump-flows", "int", f"cookie={tunnel.number}/-1"),
                self.switch.appctl("dpctl/dump-flows"),
                self.vm.run(f"ip -s -d link show dev {device}; ip neigh", check=False).out,
                self.vm.console.read_text(errors="replace"),
            ]
        )

    def end(self):
        self.vm.end()


@pytest.fixture(scope="module")
def network(module_making, tmp_path_factory):
    made = Network(module_making, tmp_path_factory.mktemp("vm"))
    yield made
    made.end()


@pytest.mark.parametrize("tunnel", TUNNELS, ids=lambda tunnel: tunnel.name)
def test_linux_exchanges_packets_with_us(network, tunnel):
    try:
        exchange(network, tunnel)
    except BaseException:
        print(network.explain(tunnel))
        raise


def exchange(network, tunnel):
    host, vm = network.host, network.vm
    families = [("{host}", "{vm}"), ("{host6}", "{vm6}")][: 1 + tunnel.inner6]
    for _, there in families:
        host.ping(tunnel.text(there))
    # Commands for the machine take little time together.
    vm.run(" && ".join(tunnel.text(f"ping -c 2 -i 0.2 -w 30 {here}") for here, _ in families))

    server = host.start_python("transfer.py", "serve", PORT, stdin=subprocess.PIPE)
    try:
        for here, there in families:
            host.python("transfer.py", "exchange", tunnel.text(there), PORT, BYTES, 0)
            output = vm.run(tunnel.text(f"nc {here} {PORT} </tmp/data | sha256sum"), seconds=120).out
            assert output.split()[0] == network.digest, output
    finally:
        finish(server)
    came, sent = network.counts(tunnel)
    assert came > 100 and sent > 100, f"{came} packets came, {sent} went"
    if tunnel.seen:
        text = vm.run(tunnel.text("tc -s filter show dev {d} ingress pref {n}")).out
        assert sum(map(int, re.findall(r"bytes (\d+) pkt", text))) >= 100, text
