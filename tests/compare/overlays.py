"""Draws tunnel ports, flow tables and packets for tunnelled.py: a case's configuration."""

import dataclasses

import frames
import tunnel_frames

PORTS = {1: "p1", 2: "v2", 3: "v3", 4: "v4"}
NEIGHBOURS = {"1.1.2.92": "f8bc124434b2", "1.1.2.93": "f8bc124434b3", "2001:cafe::92": "f8bc124434b2", "2001:cafe::93": "f8bc124434b3"}
NOWHERE = {4: "9.9.9.9", 6: "fd99::1"}
KEYS = [0, 1, 5, 77, 0xFFFFFF]
# In the peer, a packet of GRE belongs to the first port of the datapath for any of these.
OF_GRE = ["gre", "ip6gre", "erspan", "ip6erspan"]
OPTION_CLASSES = [("ffff", "0", 4), ("ffff", "81", 8), ("1", "2", 124), ("2", "3", 0), ("102", "7", 16)]
CRITICAL = ("ffff", "84", 4)
TUNNEL_FIELDS = ["tun_id", "tun_src", "tun_dst", "tun_ipv6_src", "tun_ipv6_dst", "tun_flags", "tun_metadata"]


@dataclasses.dataclass
class Tunnel:
    """A tunnel port of br1."""

    name: str
    number: int
    type: str
    options: dict

    @property
    def is_l3(self):
        return self.type in ("gtpu", "srv6") or self.options.get("packet_type") == "legacy_l3"

    def words(self):
        words = ["add-port", "br1", self.name, "--", "set", "interface", self.name, f"type={self.type}", f"ofport_request={self.number}"]
        return words + [f'options:{name}="{value}"' for name, value in self.options.items()]


def tunnel(rng, name, number, of_gre):
    kind = rng.choice(["vxlan", "vxlan", "geneve", "geneve", of_gre, of_gre, "gtpu", "srv6", "gpe"])
    options = {}
    is_v6 = kind in ("ip6gre", "ip6erspan", "srv6") or kind not in ("gre", "erspan") and rng.random() < 0.35
    remotes = [address for address in NEIGHBOURS if (":" in address) == is_v6]
    options["remote_ip"] = rng.choice(remotes) if rng.random() < 0.6 else "flow"
    if rng.random() < 0.05:
        options["remote_ip"] = NOWHERE[6 if is_v6 else 4]
    if kind == "srv6":
        # A segment list begins with the remote address.
        options["remote_ip"] = rng.choice(remotes)
        # Longer lists are those of scenarios: the peer sometimes sends their first segment only.
        if rng.random() < 0.4:
            options["srv6_segs"] = options["remote_ip"]
        if rng.random() < 0.4:
            options["srv6_flowlabel"] = rng.choice(["zero", "copy"])
    if rng.random() < 0.3:
        local = tunnel_frames.ADDRESS[6 if is_v6 else 4]
        options["local_ip"] = rng.choice([local, "flow"]) if options["remote_ip"] == "flow" else local
    keys(rng, kind, options)
    if "erspan" in kind and options.get("key") == "16777215":
        options["key"] = "1023"
    for option, values, chance in (
        ("tos", ["inherit", "0x28", "4"], 0.3), ("ttl", ["inherit", "3", "255"], 0.3), ("csum", ["true", "false"], 0.3),
        ("df_default", ["false", "true"], 0.2),
    ):
        if rng.random() < chance:
            options[option] = rng.choice(values)
    if kind == "gre":
        if rng.random() < 0.4:
            options["packet_type"] = rng.choice(["legacy_l2", "legacy_l3", "ptap"])
        # The peer's checksum of a header with a sequence number is that of the number 0.
        if rng.random() < 0.2 and options.get("csum") != "true":
            options["seq"] = "true"
    if kind == "gpe":
        kind = "vxlan"
        options |= {"exts": "gpe", "dst_port": "4790"}
        if rng.random() < 0.7:
            options["packet_type"] = rng.choice(["legacy_l2", "legacy_l3", "ptap"])
    elif kind in ("vxlan", "geneve") and rng.random() < 0.15:
        options["dst_port"] = "8472" if kind == "vxlan" else "6082"
    if "erspan" in kind:
        options["erspan_ver"] = rng.choice(["1", "2", "flow"])
        if options["erspan_ver"] == "1":
            options["erspan_idx"] = rng.choice(["0", "7", "fffff"])
        elif options["erspan_ver"] == "2":
            options |= {"erspan_dir": rng.choice("01"), "erspan_hwid": rng.choice(["0", "3", "f"])}
    return Tunnel(name, number, kind, options)


def keys(rng, kind, options):
    if kind == "srv6":
        return
    choice = rng.random()
    if choice < 0.4:
        options["key"] = "flow"
    elif choice < 0.8:
        options["key"] = str(rng.choice(KEYS))
    elif choice < 0.9:
        options |= {"in_key": rng.choice(["flow", "5"]), "out_key": rng.choice(["flow", "77"])}


class Overlay:
    """The ports and flows of a case, and its packets."""

    def __init__(self, rng):
        self.rng = rng
        of_gre = rng.choice(OF_GRE)
        self.tunnels = [tunnel(rng, f"t{n}", 10 + n, of_gre) for n in range(rng.randint(1, 5))]
        self.options = rng.sample(OPTION_CLASSES, rng.randint(1, 4)) if self.of_type("geneve") and rng.random() < 0.6 else []
        self.has_critical = rng.random() < 0.05
        self.received = []
        self.flows = [self.flow() for _ in range(rng.randint(4, 14))]
        self.kind = " ".join(sorted({t.type for t in self.tunnels}))

    def of_type(self, *types):
        return [t for t in self.tunnels if t.type in types]

    def map(self):
        """The words of the command that maps options to fields."""
        return ",".join(f"{{class=0x{c},type=0x{t},len={n}}}->tun_metadata{i}" for i, (c, t, n) in enumerate(self.options))

    # Flows.

    def flow(self):
        rng = self.rng
        table = rng.choice([0, 0, 0, 1])
        match = []
        port = rng.choice([2, 3, 4, *(2 * [t.number for t in self.tunnels])])
        if table == 0 or rng.random() < 0.5:
            match.append(f"in_port={port}")
        received = port >= 10
        for _ in range(rng.choice([0, 1, 1, 2])):
            match += self.match(received)
        match = list(dict.fromkeys(match))
        names = [each.split("=")[0].split("/")[0] for each in match]
        match = [each for n, each in enumerate(match) if names.index(names[n]) == n]
        # Prerequisites come first, and only one of them.
        shorthands = [each for each in match if "=" not in each and not each.startswith("tun_")]
        match = shorthands[:1] + [each for each in match if each not in shorthands]
        actions = self.actions(table, received)
        targets = {str(t.number): t for t in self.tunnels if t.is_l3}
        if any(each in targets for each in actions):
            # The peer crashes if something follows an output to such a tunnel, and puts tags into the IP header.
            last = [n for n, each in enumerate(actions) if each in targets][0]
            actions = [each for each in actions[:last] if not each.startswith(("mod_vlan", "resubmit"))] + [actions[last]]
            match = [each for each in match if "vlan" not in each] + ["vlan_tci=0"]
        return f"table={table},priority={rng.randint(1, 9)},{','.join([*match, 'actions=' + ','.join(actions)])}"

    def match(self, received):
        rng = self.rng
        if not received or rng.random() < 0.3:
            return [rng.choice(["ip", "ipv6", "udp", "tcp", "arp", "dl_vlan=7", "vlan_tci=0", "reg0=5"])]
        field = rng.choice(TUNNEL_FIELDS)
        if field == "tun_metadata":
            if not self.options:
                return ["tun_flags=" + rng.choice(["+oam", "-oam"])]
            number = rng.randrange(len(self.options))
            size = self.options[number][2]
            if not size or rng.random() < 0.3:
                return [f"tun_metadata{number}"]
            return [f"tun_metadata{number}={rng.choice(['0', '5', '0x11/0xff', '1/1'])}"]
        values = {
            "tun_id": [*map(str, KEYS), "5/0xf", "0/1"],
            "tun_src": ["1.1.2.92", "1.1.2.93", "1.1.2.0/24", "0.0.0.0", "1.1.2.92/0.0.0.1"],
            "tun_dst": ["1.1.2.88", "1.1.0.0/16", "0.0.0.0"],
            "tun_ipv6_src": ["2001:cafe::92", "2001:cafe::/64", "::"],
            "tun_ipv6_dst": ["2001:cafe::88", "::"],
            "tun_flags": ["+oam", "-oam"],
        }[field]
        return [f"{field}={rng.choice(values)}"]

    def actions(self, table, received):
        rng = self.rng
        actions = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            chance = rng.random()
            if chance < 0.2:
                actions.append(rng.choice(["load:5->reg0", "dec_ttl", "mod_vlan_vid:7", "mod_nw_tos:32"]))
            elif chance < 0.3 and received:
                actions.append(rng.choice(["move:tun_id[0..15]->reg0[0..15]", "move:tun_src->reg1", "move:tun_ipv6_src[0..31]->reg2", "move:tun_id[0..31]->tun_id[32..63]"]))
            if table == 0 and rng.random() < 0.15 and not any(t.is_l3 for t in self.tunnels):
                actions.append("resubmit(,1)")
            choice = rng.random()
            if choice < 0.3:
                actions.append(rng.choice(["2", "3", "4", "in_port"]))
            else:
                target = rng.choice(self.tunnels)
                actions += self.settings(target)
                actions.append(str(target.number))
        if rng.random() < 0.1 and not any(t.is_l3 for t in self.tunnels):
            actions = [f"clone({','.join(actions)})", rng.choice("234")]
        return actions

    def settings(self, target):
        """What a flow sets before it sends to a tunnel; some of it may be missing."""
        rng, options, found = self.rng, target.options, []
        if options["remote_ip"] == "flow" and rng.random() < 0.92:
            # The peer sends packets to :: if the addresses are of different families.
            is_v6 = target.type in ("ip6gre", "ip6erspan") or target.type not in ("gre", "erspan") and rng.random() < 0.35
            if (local := options.get("local_ip", "flow")) != "flow":
                is_v6 = ":" in local
            known = [each for each in NEIGHBOURS if (":" in each) == is_v6]
            found += [f"set_field:{rng.choice(known)}->{'tun_ipv6_dst' if is_v6 else 'tun_dst'}"]
            found += [f"set_field:{'0.0.0.0->tun_dst' if is_v6 else '::->tun_ipv6_dst'}"]
            if options.get("local_ip") == "flow":
                own = tunnel_frames.ADDRESS[6 if is_v6 else 4] if rng.random() < 0.5 else ["0.0.0.0", "::"][is_v6]
                found += [f"set_field:{own}->{'tun_ipv6_src' if is_v6 else 'tun_src'}"]
                found += [f"set_field:{'0.0.0.0->tun_src' if is_v6 else '::->tun_ipv6_src'}"]
        if "flow" in (options.get("key"), options.get("out_key")) and rng.random() < 0.8:
            values = ["set_tunnel:5", "set_field:77->tun_id", "set_tunnel:1023"]
            found += [rng.choice(values if "erspan" in target.type else [*values, "set_tunnel64:0x123456789abcdef0", "load:3->tun_id[4..9]"])]
        if rng.random() < 0.15:
            found += [rng.choice(["load:0->tun_flags[0]", "load:1->tun_flags[0]"])]
        if target.type == "geneve":
            if rng.random() < 0.1:
                found.append("set_field:oam->tun_flags")
            for number, (_, _, size) in enumerate(self.options):
                # The peer completes a part of an option that a packet does not have with bytes of others.
                if size and rng.random() < 0.25:
                    found.append(f"set_field:0x11->tun_metadata{number}")
        if options.get("erspan_ver") == "flow" and rng.random() < 0.8:
            found += rng.choice([
                ["set_field:1->tun_erspan_ver", "set_field:7->tun_erspan_idx"], ["set_field:2->tun_erspan_ver", "set_field:1->tun_erspan_dir", "set_field:3->tun_erspan_hwid"],
            ])
        return found

    # Packets.

    def inner(self):
        """A packet of a host, and what it is."""
        rng = self.rng
        v6 = rng.random() < 0.3
        src, dst = ("fd00::1", "fd00::2") if v6 else ("10.0.0.1", "10.0.0.2")
        tos, ttl = rng.choice([0, 0, 0, 1, 2, 3, 0x28, 0xB9]), rng.choice([64, 64, 2, 1, 255])
        payload = b"x" * rng.choice([0, 1, 5, 18, 100, 1000])
        header = {"tos": tos, "ttl": ttl}
        kind = rng.choice(["udp", "udp", "tcp", "echo", "raw", "arp", "vlan"])
        if kind == "arp":
            return bytes.fromhex("ffffffffffff020000000002080600010800060400010200000000020a0000010000000000000a000002") + b"\0" * 18
        if kind == "raw":
            return bytes.fromhex("0200000000aa0200000000021234") + payload.ljust(46, b"\0")
        if kind == "tcp":
            packet = frames.ip(src, dst, frames.TCP, frames.tcp(src, dst, 1000, 80, "A", 1, 1, payload), **header)
        elif kind == "echo":
            packet = frames.ip(src, dst, frames.ICMP6 if v6 else frames.ICMP, frames.echo(src, dst, 7, 1), **header)
        else:
            packet = frames.ip(src, dst, frames.UDP, frames.udp(src, dst, rng.randint(1, 3), 53, payload), **header)
        return frames.ethernet(packet, 2, vlan=7 if kind == "vlan" else None)

    def flow_of_packet(self):
        """The match of a packet of a host."""
        rng = self.rng
        kind = rng.choice(["udp", "tcp", "udp6", "icmp", "arp", "dl_type=0x1234", "udp,dl_vlan=7"])
        is_ip = kind not in ("arp", "dl_type=0x1234")
        return kind + (f",nw_tos={rng.choice([0, 40])},nw_ecn={rng.randint(0, 3)},nw_ttl={rng.choice([64, 2, 1])}" if is_ip else "")

    def outer(self):
        """The settings of a packet of a tunnel, for tunnel_frames.built: one that a port receives, or nearly."""
        rng, target = self.rng, self.rng.choice(self.tunnels)
        options = target.options
        kind = {"ip6gre": "gre", "ip6erspan": "erspan"}.get(target.type, target.type)
        if options.get("exts") == "gpe":
            kind = "gpe"
        remote = options["remote_ip"]
        if remote not in NEIGHBOURS or rng.random() < 0.1:
            remote = rng.choice([a for a in NEIGHBOURS if (":" in a) == (":" in remote)] if remote != "flow" else list(NEIGHBOURS))
        v = 6 if ":" in remote else 4
        if kind == "srv6" and v == 4:
            remote, v = "2001:cafe::92", 6
        wanted = options.get("in_key", options.get("key", "0"))
        key = int(wanted) if wanted != "flow" and rng.random() < 0.85 else rng.choice(KEYS)
        settings = {"v": v, "src": remote, "dst": tunnel_frames.ADDRESS[v], "host": NEIGHBOURS[remote], "key": key}
        if "dst_port" in options:
            settings["dst_port"] = int(options["dst_port"])
        for name, values, chance in (
            ("tos", [1, 2, 3, 4, 5, 0x28], 0.25), ("ttl", [1, 9, 255], 0.2), ("df", [1], 0.3), ("bad", ["ip"], 0.02),
            ("dst", ["1.1.2.87" if v == 4 else "2001:cafe::87"], 0.03), ("mac", ["aa55aa550007"], 0.03), ("cut", [30, 40, 45, 50, 60, 70], 0.04),
        ):
            if rng.random() < chance:
                settings[name] = rng.choice(values)
        inner = self.inner()
        if kind in tunnel_frames.UDP and rng.random() < 0.3:
            settings["csum"] = rng.choice([1, 1, 0])
        getattr(self, f"of_{kind}")(target, settings, inner)
        # Such a tunnel carries packets of IP; the peer looks for their version in their TTL in GTP-U.
        is_ip = inner[12:14] in (b"\x08\0", b"\x86\xdd")
        if kind == "gtpu" or (settings.get("l3") or kind == "srv6") and not is_ip:
            payload = frames.udp("10.0.0.1", "10.0.0.2", 1, 2, b"x" * rng.choice([0, 5, 100]))
            inner = frames.ethernet(frames.ip("10.0.0.1", "10.0.0.2", frames.UDP, payload, ttl=64), 2)
        self.received.append((target, kind, inner, settings))
        return kind, inner, settings

    def variant(self):
        """As `outer`, but a packet before with another outer field: one that a cached flow passes on as it did the other, if it
        does not match that field."""
        rng = self.rng
        target, kind, inner, settings = rng.choice(self.received)
        settings = dict(settings)
        field = rng.choice(["key", "src", "tos", "ttl", "df", "of_type", "of_type"])
        if field == "key":
            settings["key"] = rng.choice(KEYS) & (0x3FF if kind == "erspan" else 0xFFFFFF)
        elif field == "src":
            settings["src"] = rng.choice([a for a in NEIGHBOURS if (":" in a) == (settings["v"] == 6)])
            settings["host"] = NEIGHBOURS[settings["src"]]
        elif field == "of_type":
            # Flags, options and the like, around the same inner packet.
            l3 = settings.get("l3")
            getattr(self, f"of_{kind}")(target, settings, inner)
            settings |= {} if l3 is None else {"l3": l3}
        else:
            settings[field] = rng.choice({"tos": [0, 1, 2, 3, 4, 0x28], "ttl": [1, 9, 64, 255], "df": [0, 1]}[field])
        return kind, inner, settings

    def of_vxlan(self, _target, settings, _inner):
        if self.rng.random() < 0.1:
            settings |= self.rng.choice([{"flags": 0}, {"low": 1}, {"flags": 0x08000001}, {"flags": 0x0C000000}])

    def of_gpe(self, target, settings, inner):
        rng = self.rng
        settings["l3"] = int(target.is_l3 != (rng.random() < 0.15) or target.options.get("packet_type") == "ptap" and rng.random() < 0.5)
        if rng.random() < 0.1:
            settings |= rng.choice([{"flags": 8}, {"flags": 0x0D}, {"protocol": 9}])

    def of_geneve(self, _target, settings, _inner):
        rng = self.rng
        known = [*(self.options or OPTION_CLASSES[:1]), ("77", "5", 4)]
        chosen = [rng.choice(known) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
        # The peer does not match options without a field: the first packet's critical ones decide for other packets.
        chosen += [CRITICAL] * self.has_critical
        values = lambda n: rng.choice([b"\0" * n, (b"\0" * n + b"\x05")[-n:] if n else b"", bytes(range(n))])
        settings.pop("options", None)
        if chosen:
            settings["options"] = ",".join(f"{c}:{t}:{values(n).hex()}" for c, t, n in chosen)
        if rng.random() < 0.15:
            settings |= rng.choice([{"flags": 0x80}, {"flags": 0x40}, {"ver": 1}, {"protocol": 0x0800}])

    def of_gre(self, target, settings, _inner):
        rng = self.rng
        packet_type = target.options.get("packet_type")
        settings["l3"] = int(target.is_l3 != (rng.random() < 0.15) or packet_type == "ptap" and rng.random() < 0.5)
        if settings["key"] == 0 and rng.random() < 0.5:
            settings["key"] = None
        if rng.random() < 0.2:
            settings["csum"] = rng.choice([1, 1, 0])
        if rng.random() < 0.2:
            settings["seq"] = rng.randrange(1000)
        if rng.random() < 0.06:
            settings |= rng.choice([{"flags": 0x4000}, {"flags": 1}, {"protocol": 0x8847}])

    def of_erspan(self, target, settings, _inner):
        rng = self.rng
        settings["key"] &= 0x3FF
        settings["ver"] = rng.choice([1, 2])
        settings["idx"] = int(target.options.get("erspan_idx", "7"), 16)
        settings |= {"dir": rng.randint(0, 1), "hwid": rng.choice([0, 3, 15])}
        if rng.random() < 0.1:
            settings |= rng.choice([{"ver": 3}, {"ver": 0}, {"flags": 0x3000}, {"flags": 0}])

    def of_gtpu(self, _target, settings, _inner):
        rng = self.rng
        if rng.random() < 0.25:
            # The flags of a header with a number are left to scenarios: the peer sends them on with a number of its own.
            settings |= rng.choice([{"msgtype": 1}, {"msgtype": 254}])

    def of_srv6(self, _target, settings, _inner):
        rng = self.rng
        if rng.random() < 0.5:
            segs = [settings["dst"], *rng.sample(["fc00::1", "fc00::2"], rng.randint(0, 2))]
            settings["segs"] = ",".join(segs)
        if rng.random() < 0.15:
            settings |= rng.choice([{"left": 1}, {"routing": 0}, {"next": 59}])
