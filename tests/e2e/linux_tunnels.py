"""The tunnels between Flowstone and Linux that test_linux_tunnels.py tries: how each is configured at both ends, and which
fields of the tunnel are looked at there."""

from dataclasses import dataclass

# That of the cable leaves room for every outer header, options included.
MTU = 1500
CABLE_MTU = 2000
# OpenFlow ports of inner hosts are the numbers of their tunnels added to this.
INNER = 200
# The Ethernet address of the machine's devices that several tunnels share, and the commands of ip(8) that make them: they
# take outer fields from routes, and give them to filters.
SHARED_MAC = "02:00:00:00:aa:03"
SHARED = {
    "geneve": f"address {SHARED_MAC} type geneve dstport 6082 external",
    "gretap": f"address {SHARED_MAC} type gretap external",
    "erspan": f"address {SHARED_MAC} type erspan external",
    "gpe": "type vxlan dstport 4790 gpe external",
}
# UDP ports of encapsulations without a header of their own, and what the machine expects there. The first bits of a GUE
# header of variant 1 are the version of an IP packet, so that there is no header.
DIRECT = {6635: "gue", 6636: "ipproto 137"}


@dataclass
class Tunnel:
    """A tunnel with both ends. Texts may have {h} and {v}, the outer addresses of Flowstone and of the machine, {h6} and
    {v6} for IPv6, {last6} for that of the tunnel before, {n} for the number, {d} for the machine's device, {mtu} for its
    MTU.

    Fields that are not given by position have their defaults in most tunnels."""

    name: str
    # The interface of Flowstone.
    type: str
    options: str
    # Commands of ip(8) that make the machine's device, or the name of a shared one.
    linux: list | str
    # Words of the machine's routes to the inner host, for IPv4 and IPv6.
    routes: tuple = ()
    # More commands of the machine, of tc(8) and of its shell.
    tc: tuple = ()
    shell: tuple = ()
    # The fields that a flow matches in packets from the machine, beside the outer addresses.
    match: str = "tun_id={n}"
    # Actions before output to the tunnel.
    actions: str = ""
    # A filter of tc(8) that must match the packets that the machine receives.
    seen: str = ""
    outer6: bool = False
    # Whether inner packets are without Ethernet.
    l3: bool = False
    inner6: bool = True
    # That of the devices inside.
    mtu: int = MTU
    number: int = 0

    @property
    def shared(self):
        """The device that it shares with others, if it does."""
        return self.linux if isinstance(self.linux, str) else None

    @property
    def mpls(self):
        return "mpls" in self.name

    @property
    def static_neighbours(self):
        """Whether ARP and neighbour discovery do not pass: there is no Ethernet, or no route for them."""
        return self.l3 or self.shared is not None

    @property
    def families(self):
        """Inner addresses of the host and of the machine."""
        pairs = (self.text("{host}"), self.text("{vm}")), (self.text("{host6}"), self.text("{vm6}"))
        return pairs if self.inner6 else pairs[:1]

    def text(self, template):
        n = self.number
        outer = {"h": f"192.0.2.{n}", "v": f"192.0.2.{100 + n}"}
        outer6 = {"h6": f"2001:db8:1::1:{n}", "v6": f"2001:db8:1::2:{n}", "last6": f"2001:db8:1::2:{n - 1}"}
        inner = {"host": f"10.20.{n}.1", "vm": f"10.20.{n}.2", "host6": f"fd20:{n}::1", "vm6": f"fd20:{n}::2"}
        device = self.shared or f"t{n}"
        return template.format(n=n, d=device, mtu=self.mtu, mac=f"02:00:00:00:{n:02x}:01", **outer, **outer6, **inner)

    def ip_commands(self):
        """The commands of ip(8) that configure the machine, without that word."""
        lines = ["addr add {v}/24 dev eth0", "addr add {v6}/64 dev eth0 nodad"]
        # Devices without an outer address of their own take that of the route.
        lines += ["route add {h}/32 dev eth0 src {v}", "route add {h6}/128 dev eth0 src {v6}"]
        if self.shared:
            lines += ["addr add {vm}/32 dev dummy0", "addr add {vm6}/128 dev dummy0 nodad"]
        else:
            lines += [*self.linux, "link set {d} mtu {mtu} up", "addr add {vm}/24 dev {d}"]
            lines += ["addr add {vm6}/64 dev {d} nodad"] if self.inner6 else []
        for address, source, route in zip(("{host}/32", "{host6}/128"), ("{vm}", "{vm6}"), self.routes):
            lines += [f"route add {address} {route} mtu {{mtu}} src {source}"]
        if self.shared and not self.l3:
            lines += [f"neigh add {address} lladdr {{mac}} dev {{d}}" for address in ("{host}", "{host6}")]
        return [self.text(line) for line in lines]

    def tc_commands(self):
        """The commands of tc(8)."""
        lines = list(self.tc)
        if self.seen:
            lines += [f"filter add dev {{d}} ingress pref {{n}} protocol all {self.seen} action pass"]
        return [self.text(line) for line in lines]

    def port_words(self):
        """Words of ovs-vsctl that add the tunnel and the port of its inner host."""
        key = "" if "key=" in self.options or "tun_id" not in self.match else " key={n}"
        options = [f"options:{word}" for word in self.text(self.options + key).split()]
        words = ["add-port int t{n} -- set interface t{n} ofport_request={n} type=" + self.type, *options]
        words += [f"-- add-port int p{{n}} -- set interface p{{n}} ofport_request={INNER + self.number}"]
        return self.text(" ".join(words)).split()

    def flows(self):
        """The flows of the tunnel, with its number as their cookie."""
        n, inner = self.number, INNER + self.number
        # The machine's segment routing has one source address.
        source6 = "{last6}" if "remote_ip={last6}" in self.options else "{v6}"
        outer = f"tun_ipv6_src={source6},tun_ipv6_dst={{h6}}" if self.outer6 else "tun_src={v},tun_dst={h}"
        match = self.text(",".join(filter(None, [f"cookie={n},in_port={n}", outer, self.match])))
        come = self.text("set_field:{mac}->eth_dst," if self.l3 else "") + f"output:{inner}"
        go, back = self.text(self.actions) + f"output:{n}", f"cookie={n},in_port={inner}"
        if not self.mpls:
            return [f"{match},actions={come}", f"{back},actions={go}"]
        return [
            f"{match},mpls,mpls_label={n}04,actions=pop_mpls:0x0800,{come}",
            f"{match},mpls,mpls_label={n}06,actions=pop_mpls:0x86dd,{come}",
            f"{back},ip,actions={go}",
            f"{back},ipv6,actions={go}",
        ]


BOTH = "remote_ip={v} local_ip={h} "
BOTH6 = "remote_ip={v6} local_ip={h6} "
ENDS = "local {v} remote {h} "
ENDS6 = "local {v6} remote {h6} "
ROUTE = "encap ip id {n} src {v} dst {h} "
ROUTE6 = "encap ip6 id {n} src {v6} dst {h6} "

# 248 bytes of options from the machine: 259 is class 0x103, and 130 is type 0x82, which is critical.
TLV_MAP = (
    "{class=0x103,type=1,len=4}->tun_metadata0,{class=0x103,type=0x82,len=8}->tun_metadata1,"
    "{class=0xffff,type=7,len=124}->tun_metadata2,{class=0xffff,type=6,len=96}->tun_metadata3"
)
OPTIONS = f"geneve_opts 259:1:deadbeef,259:130:0102030405060708,65535:7:{'7f' * 124},65535:6:{'6e' * 96}"
OPTIONS_MATCH = (
    f"tun_metadata0=0xdeadbeef,tun_metadata1=0x0102030405060708,tun_metadata2=0x{'7f' * 124},tun_metadata3=0x{'6e' * 96}"
)
OPTIONS_SET = (
    "set_field:0x1a2b3c4d->tun_metadata0,set_field:0x5e->tun_metadata1,"
    f"set_field:0x{'a1' * 124}->tun_metadata2,set_field:0x{'b2' * 96}->tun_metadata3,"
)
OPTIONS_SEEN = f"geneve_opts 0103:01:1a2b3c4d,0103:82:000000000000005e,ffff:07:{'a1' * 124},ffff:06:{'b2' * 96}"


def geneve():
    with_options = {
        "linux": "geneve",
        "match": "tun_id={n}," + OPTIONS_MATCH,
        "actions": OPTIONS_SET,
        "seen": "flower enc_key_id {n} " + OPTIONS_SEEN,
    }
    # One that no flow and no map mentions comes along.
    unknown = ",260:5:00000000"
    few = "geneve_opts 259:1:deadbeef" + unknown
    return [
        Tunnel("geneve", "geneve", BOTH, ["link add {d} type geneve id {n} remote {h}"]),
        Tunnel("geneve-csum", "geneve", BOTH + "csum=true", ["link add {d} type geneve id {n} remote {h} udpcsum"]),
        Tunnel("geneve-6", "geneve", BOTH6, ["link add {d} type geneve id {n} remote {h6}"], outer6=True),
        Tunnel("geneve-options", "geneve", BOTH + "dst_port=6082", routes=(ROUTE + OPTIONS + " dev {d}",) * 2, **with_options),
        Tunnel(
            "geneve-options-6", "geneve", BOTH6 + "dst_port=6082",
            routes=(ROUTE6 + OPTIONS + " dev {d}",) * 2, outer6=True, **with_options,
        ),
        # Everything comes from flows and routes.
        Tunnel(
            "geneve-flow", "geneve", "remote_ip=flow local_ip=flow key=flow dst_port=6082 tos=0x40 ttl=88", "geneve",
            routes=(ROUTE + few + " dev {d}",) * 2,
            match="tun_id={n},tun_metadata0=0xdeadbeef",
            actions="set_field:{n}->tun_id,set_field:{h}->tun_src,set_field:{v}->tun_dst,set_field:0x1a2b3c4d->tun_metadata0,",
            seen="flower enc_key_id {n} enc_src_ip {h} enc_dst_ip {v} enc_tos 0x40 enc_ttl 88 geneve_opts 0103:01:1a2b3c4d",
        ),
    ]


def vxlan():
    device = "link add {d} type vxlan id {n} dstport "
    gpe = "dst_port=4790 exts=gpe packet_type=legacy_l3"
    return [
        Tunnel("vxlan", "vxlan", BOTH, [device + "4789 " + ENDS]),
        Tunnel("vxlan-6", "vxlan", BOTH6, [device + "4789 " + ENDS6], outer6=True),
        # Linux keeps the group policy in the mark.
        Tunnel(
            "vxlan-gbp", "vxlan", BOTH + "dst_port=4791 exts=gbp", [device + "4791 gbp " + ENDS],
            tc=("qdisc add dev {d} clsact", "filter add dev {d} egress matchall action skbedit mark 0x1234"),
            match="tun_id={n},tun_gbp_id=0x1234", actions="set_field:0x4321->tun_gbp_id,",
            seen="u32 match mark 0x4321 0xffffffff",
        ),
        Tunnel("vxlan-gpe", "vxlan", BOTH + gpe, "gpe", routes=(ROUTE + "dev {d}",) * 2, l3=True),
        Tunnel("vxlan-gpe-6", "vxlan", BOTH6 + gpe, "gpe", routes=(ROUTE6 + "dev {d}",) * 2, l3=True, outer6=True),
    ]


def gre():
    flags, ours = "key {n} seq csum ", "csum=true seq=true "
    l3 = "packet_type=legacy_l3 "
    without = "encaplimit none"
    return [
        Tunnel("gre", "gre", BOTH + l3, ["link add {d} type gre " + ENDS], match="", l3=True),
        Tunnel("gre-flags", "gre", BOTH + l3 + ours, ["link add {d} type gre " + ENDS + flags], l3=True),
        Tunnel("gretap", "gre", BOTH, ["link add {d} type gretap " + ENDS], match=""),
        Tunnel("gretap-flags", "gre", BOTH + ours, ["link add {d} type gretap " + ENDS + flags]),
        # Linux refuses checksums at a device without fixed ends.
        Tunnel(
            "gretap-flow", "gre", "remote_ip=flow local_ip=flow key=flow seq=true", "gretap",
            routes=(ROUTE + "key seq dev {d}",) * 2, seen="flower enc_key_id {n} enc_src_ip {h} enc_dst_ip {v}",
            actions="set_field:{n}->tun_id,set_field:{h}->tun_src,set_field:{v}->tun_dst,",
        ),
        # The machine cuts what it sends into fragments, and has its peer send less.
        Tunnel(
            "gretap-fragments", "gre", BOTH, ["link add {d} type gretap nopmtudisc ignore-df " + ENDS],
            routes=("dev {d} advmss 1400",) * 2, match="", mtu=5000,
        ),
        # By default, the machine adds a header of destination options, for its limit of encapsulations.
        Tunnel("ip6gre", "gre", BOTH6 + l3, ["link add {d} type ip6gre " + ENDS6], match="", l3=True, outer6=True),
        Tunnel(
            "ip6gre-flags", "gre", BOTH6 + l3 + ours, ["link add {d} type ip6gre " + ENDS6 + flags + without],
            l3=True, outer6=True,
        ),
        Tunnel("ip6gretap", "gre", BOTH6, ["link add {d} type ip6gretap " + ENDS6], match="", outer6=True),
        Tunnel(
            "ip6gretap-flags", "ip6gre", BOTH6 + ours, ["link add {d} type ip6gretap " + ENDS6 + flags + without], outer6=True
        ),
    ]


def erspan():
    made = []
    for suffix, kind, ends, both in (("", "erspan", ENDS, BOTH), ("-6", "ip6erspan", ENDS6, BOTH6)):
        limit, outer6 = (" encaplimit none", True) if suffix else ("", False)
        device = f"link add {{d}} type {kind} {ends} seq key {{n}}{limit}"
        made += [
            Tunnel(
                "erspan-1" + suffix, "erspan", both + "erspan_ver=1 erspan_idx=0x55",
                [device + " erspan_ver 1 erspan 123"], match="tun_id={n},tun_erspan_ver=1,tun_erspan_idx=123", outer6=outer6,
            ),
            Tunnel(
                "erspan-2" + suffix, kind, both + "erspan_ver=2 erspan_dir=1 erspan_hwid=0x4",
                [device + " erspan_ver 2 erspan_dir egress erspan_hwid 5"],
                match="tun_id={n},tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=5", outer6=outer6,
            ),
        ]
    route, seen = ROUTE + "key seq erspan_opts ", "flower enc_key_id {n} erspan_opts "
    return made + [
        Tunnel(
            "erspan-1-flow", "erspan", BOTH + "erspan_ver=flow", "erspan", routes=(route + "1:1023:0:0 dev {d}",) * 2,
            match="tun_id={n},tun_erspan_ver=1,tun_erspan_idx=1023",
            actions="set_field:1->tun_erspan_ver,set_field:0x77->tun_erspan_idx,", seen=seen + "1:119:0:0",
        ),
        Tunnel(
            "erspan-2-flow", "erspan", BOTH + "erspan_ver=flow", "erspan", routes=(route + "2:0:1:33 dev {d}",) * 2,
            match="tun_id={n},tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=33",
            actions="set_field:2->tun_erspan_ver,set_field:1->tun_erspan_dir,set_field:0x2a->tun_erspan_hwid,",
            seen=seen + "2:0:1:42",
        ),
    ]


def bareudp():
    """Debian's kernel has no bareudp. Foo-over-UDP sends and takes the same packets; an IPv4 tunnel has one device for each
    family inside."""
    fou = "encap fou encap-sport auto encap-dport "
    any6 = "link add {d} type ip6tnl mode any " + ENDS6 + "encaplimit none " + fou
    ip, mpls = "dst_port=6635 payload_type=ip", "dst_port=6636 payload_type=mpls"
    other = "link add s{n} type sit " + ENDS + fou + "6635"
    of_mpls = {
        "routes": ("encap mpls {n}04 dev {d}", "encap mpls {n}06 dev {d}"),
        "shell": ("echo 1 >/proc/sys/net/mpls/conf/{d}/input", "ip -f mpls route add 90{n} dev lo"),
        "actions": "push_mpls:0x8847,set_field:90{n}->mpls_label,",
    }
    return [
        Tunnel(
            "bareudp", "bareudp", BOTH + ip,
            ["link add {d} type ipip " + ENDS + fou + "6635", other, "link set s{n} mtu {mtu} up"],
            routes=("dev {d}", "dev s{n}"), match="", l3=True,
        ),
        Tunnel("bareudp-6", "bareudp", BOTH6 + ip, [any6 + "6635"], match="", l3=True, outer6=True),
        Tunnel(
            "bareudp-mpls", "bareudp", BOTH + mpls, ["link add {d} type ipip mode mplsip " + ENDS + fou + "6636"],
            match="", l3=True, **of_mpls,
        ),
        Tunnel("bareudp-mpls-6", "bareudp", BOTH6 + mpls, [any6 + "6636"], match="", l3=True, outer6=True, **of_mpls),
    ]


def gtpu():
    return [
        Tunnel(
            "gtpu", "gtpu", BOTH + "in_key=0x1{n} out_key=0x2{n}", ["link add {d} type gtp role ggsn"],
            shell=("gtp-session {d} {h} {host} 0x2{n} 0x1{n}",), match="tun_id=0x1{n},tun_gtpu_msgtype=255,tun_gtpu_flags=0x30",
            l3=True, inner6=False,
        ),
    ]


def srv6():
    """The second goes by the address of the first to its own."""
    routes = ("encap seg6 mode encap segs {h6} dev eth0",) * 2
    here = "link add {d} type dummy"
    return [
        Tunnel("srv6", "srv6", BOTH6, [here, "sr tunsrc set {v6}"], routes=routes, match="", l3=True, outer6=True),
        Tunnel(
            "srv6-segments", "srv6", "remote_ip={last6} local_ip={h6} srv6_segs={last6},{v6}", [here], routes=routes,
            match="", l3=True, outer6=True,
        ),
    ]


TUNNELS = [*geneve(), *vxlan(), *gre(), *erspan(), *bareudp(), *gtpu(), *srv6()]
for number, tunnel in enumerate(TUNNELS, 1):
    tunnel.number = number
