"""Random flow tables that track connections, for sequences.py.

Port 1 is the inside of a network, port 2 its outside. A packet that a pipeline is done with goes to table 20, which reports
what is known of its connection by copies that leave by port 3 and port 4, and then sends it to the other side; table 30
reports it only. NAT always has one possible result, because the choice among several is each program's own.
"""

import re

INSIDE = {4: ["10.0.0.1", "10.0.0.2"], 6: ["fd00::1", "fd00::2"]}
OUTSIDE = {4: ["192.168.0.1", "192.168.0.2"], 6: ["fd01::1", "fd01::2"]}
# An address of a service inside, and the one that connections from inside have outside.
SERVICE = {4: "10.0.0.100", 6: "fd00::100"}
GATEWAY = {4: "192.168.0.100", 6: "fd01::100"}
FAMILIES = {4: "ip", 6: "ipv6"}
ZONES = [0, 1, 5, 77, 65535]


def bracketed(address, port=None):
    address = f"[{address}]" if ":" in address and port is not None else address
    return address if port is None else f"{address}:{port}"


class Pipeline:
    """Flows, the zones that they use, and for NAT, where connections are to."""

    def __init__(self, rng):
        self.rng = rng
        self.zones = rng.sample(ZONES, 3)
        self.flows = []
        self.source_nat = self.destination_nat = self.helper = False
        # Whether translation gives connections a fixed port.
        self.port_nat = False
        self.kind = rng.choice([name for name in dir(self) if name.startswith("of_")])
        # Whether there is a limit of connections, so that each one that is over matters for the next packet.
        self.limited = rng.random() < 0.35 and self.kind != "of_fragments"
        # Whether no two actions track a packet in the same zone.
        self.tracks_once = self.kind in ("of_commit_at_once", "of_resubmitted", "of_source_nat", "of_cleared")
        # Whether the action for one fragment of a datagram may differ from that for the next, so that their order matters.
        self.parts_fragments = self.kind == "of_fragments"
        getattr(self, self.kind)()
        self.report()
        self.nat_used = self.source_nat or self.destination_nat
        self.flows += ["table=22,in_port=1,actions=output:2", "table=22,in_port=2,actions=output:1"]

    def add(self, table, match, *actions, priority=10):
        """A flow. If it tracks connections, it is for IP only."""
        if any(action.startswith("ct(") for action in actions) and not re.search(r"\b(ip|ipv6|tcp6?|udp6?)\b", match):
            return self.both(table, match, *actions, priority=priority)
        return self.flows.append(f"table={table},priority={priority},{match},actions={','.join(actions) or 'drop'}")

    def both(self, table, match, *actions, priority=10):
        """A flow for each version of IP."""
        for family in FAMILIES.values():
            self.add(table, f"{family},{match}", *actions, priority=priority)

    def ct(self, *words):
        return f"ct({','.join(str(word) for word in words if word)})"

    def zone(self, number=0):
        zone = self.zones[number]
        return f"zone={zone}" if zone or self.rng.random() < 0.5 else ""

    def execution(self, chance=0.6):
        """Marks and labels that a commit sets."""
        if self.rng.random() > chance:
            return ""
        fields = [
            "set_field:0x5->ct_mark",
            "set_field:0x30/0xf0->ct_mark",
            "load:0x1->NXM_NX_CT_MARK[31]",
            "set_field:0x77->ct_label",
            "set_field:0x8000000000000000000000000000a000/0x8000000000000000000000000000f000->ct_label",
            "move:NXM_NX_REG0[0..15]->NXM_NX_CT_MARK[8..23]",
            "move:NXM_NX_REG0[]->NXM_NX_CT_LABEL[64..95]",
        ]
        return f"exec({','.join(self.rng.sample(fields, self.rng.randint(1, 3)))})"

    def nat(self, kind, family):
        """An action that translates to one address, at times with a port."""
        if kind == "src":
            self.source_nat = True
            # Never a port: when NAT runs out of ports, the peer spoils its memory, and aborts now and then.
            address, port = GATEWAY[family], None
        else:
            self.destination_nat = True
            address, port = OUTSIDE[family][0], self.rng.choice([None, 80])
        self.port_nat = self.port_nat or port is not None
        flags = self.rng.choice(["", "", ",persistent", ",hash"]) if port else ""
        return f"nat({kind}={bracketed(address, port)}{flags})"

    # The pipelines.

    def of_one_zone(self):
        zone = self.zone()
        self.both(0, "in_port=1", self.ct("table=1", zone))
        self.both(0, "in_port=2", self.ct("table=1", zone))
        commit = self.ct("commit", zone, self.execution())
        if self.rng.random() < 0.5:
            self.add(1, "ct_state=+trk+new,in_port=1", "load:0xabcd1234->NXM_NX_REG0[]", commit, "resubmit(,20)")
        else:
            self.add(1, "ct_state=+trk+new,in_port=1", self.ct("commit", zone, self.execution(), "table=20"))
        self.add(1, "ct_state=+trk+new,in_port=2", "resubmit(,30)")
        self.add(1, "ct_state=+trk+est", "resubmit(,20)")
        self.add(1, "ct_state=+trk+rel-new", "resubmit(,20)", priority=9)
        self.add(1, "ct_state=+trk+inv", "resubmit(,30)", priority=20)

    def of_commit_at_once(self):
        zone = self.zone()
        self.both(0, "in_port=1", self.ct("commit", zone, "table=20", self.execution()))
        back = "commit" if self.rng.random() < 0.3 else ""
        self.both(0, "in_port=2", self.ct(back, zone, "table=20"))

    def of_resubmitted(self):
        """A table is looked up with the original tuple in the place of the packet's addresses and ports."""
        zone = self.zone()
        nat = {family: self.nat("src", family) if self.rng.random() < 0.5 else "" for family in FAMILIES}
        for family, name in FAMILIES.items():
            self.add(0, f"{name},in_port=1", self.ct("commit", zone, nat[family], "table=1"))
            self.add(0, f"{name},in_port=2", self.ct(zone, "nat" if nat[family] else "", "table=1"))
            for state in ("+new", "+est", "+rel"):
                self.add(1, f"ct_state=+trk{state},{name}", "resubmit(,2,ct)", "resubmit(,20)")
        self.add(1, "ct_state=+trk+inv", "resubmit(,30)")
        matches = [f"ip,nw_src={INSIDE[4][0]}", f"ip,nw_dst={OUTSIDE[4][1]}", "tcp,tp_dst=80", "tcp6,tp_dst=80", "udp,tp_src=0x2000/0x2000"]
        matches += [f"ipv6,ipv6_src={INSIDE[6][0]}", "icmp", "icmp6", "ip", "ipv6"]
        for number, match in enumerate(matches):
            self.tagged(2, match, 300 + number, 3, 50 - number)

    def of_two_zones(self):
        first, second = self.zone(0), self.zone(1)
        self.both(0, "in_port=1", self.ct(first, "table=1"))
        self.both(0, "in_port=2", self.ct(second, "table=1"))
        self.add(1, "ct_state=+trk-inv,in_port=1", self.ct(second, "table=2"))
        self.add(1, "ct_state=+trk-inv,in_port=2", self.ct(first, "table=2"))
        self.add(1, "ct_state=+trk+inv", "resubmit(,30)")
        commits = [self.ct("commit", first, self.execution()), self.ct("commit", second, self.execution(), "table=20")]
        self.add(2, "ct_state=+new+trk,in_port=1", *commits)
        self.add(2, "ct_state=+trk-new", "resubmit(,20)")
        self.add(2, "ct_state=+new+trk,in_port=2", "resubmit(,30)")

    def of_source_nat(self):
        zone = self.zone()
        for family, name in FAMILIES.items():
            nat = self.nat("src", family)
            self.add(0, f"{name},in_port=1", self.ct("commit", zone, nat, "table=20", self.execution(0.3)))
            self.add(0, f"{name},in_port=2", self.ct(zone, "nat", "table=1"))
        self.add(1, "ct_state=+trk+new", "resubmit(,30)")
        self.add(1, "ct_state=+trk-new", "resubmit(,20)")

    def of_destination_nat(self):
        zone = self.zone()
        for family, name in FAMILIES.items():
            nat = self.nat("dst", family)
            self.add(0, f"{name},in_port=1", self.ct(zone, "nat", "table=1"))
            self.add(0, f"{name},in_port=2", self.ct(zone, "nat", "table=20"))
            to = f"{name}_dst" if family == 6 else "nw_dst"
            self.add(1, f"ct_state=+trk+new,{name},{to}={SERVICE[family]}", self.ct("commit", zone, nat, "table=20", self.execution(0.3)))
        self.add(1, "ct_state=+trk+new", self.ct("commit", zone, "table=20"), priority=5)
        self.add(1, "ct_state=+trk-new", "resubmit(,20)")

    def of_gateway(self):
        """A zone for filters, one for the destination, one for the source, as OVN has them."""
        acl, lower, upper = (self.zone(number) for number in range(3))
        for family, name in FAMILIES.items():
            destination, source = self.nat("dst", family), self.nat("src", family)
            to = f"{name}_dst" if family == 6 else "nw_dst"
            self.add(0, f"{name},in_port=1", self.ct(acl, "table=1"))
            self.add(1, f"ct_state=+trk+new-inv,{name}", self.ct("commit", acl, self.execution(0.4)), self.ct(lower, "nat", "table=2"))
            self.add(1, f"ct_state=+trk-new-inv,{name}", self.ct(lower, "nat", "table=2"))
            self.add(2, f"ct_state=+new,{name},{to}={SERVICE[family]}", self.ct("commit", lower, destination, "table=3"))
            self.add(2, f"{name}", "resubmit(,3)", priority=1)
            self.add(3, f"{name}", self.ct(upper, "nat", "table=4"))
            self.add(4, f"ct_state=+new,{name}", self.ct("commit", upper, source, "table=20", self.execution(0.3)))
            self.add(4, f"ct_state=-new,{name}", "resubmit(,20)")
            self.add(0, f"{name},in_port=2", self.ct(upper, "nat", "table=5"))
            self.add(5, f"ct_state=-new+trk,{name}", self.ct(lower, "nat", "table=6"))
            self.add(6, f"ct_state=+trk,{name}", self.ct(acl, "table=20"))
        self.add(1, "ct_state=+inv", "resubmit(,30)", priority=20)

    def of_cleared(self):
        zone, other = self.zone(0), self.zone(1)
        self.both(0, "in_port=1", self.ct("commit", zone, self.execution(), "table=1"))
        self.both(0, "in_port=2", self.ct(zone, "table=1"))
        again = self.ct("commit" if self.rng.random() < 0.5 else "", other, "table=20")
        self.both(1, "ct_state=+trk", "resubmit(,30)", "ct_clear", "resubmit(,30)", again)

    def of_fragments(self):
        """The first and the later fragments of a datagram are tracked by actions of their own, and then once more."""
        zone, other = self.zone(0), self.zone(1)
        for family, name in FAMILIES.items():
            nat = self.nat("src", family) if self.rng.random() < 0.3 else ""
            back = "nat" if nat else ""
            # All fragments reach this action at once, in an order of each program's own. So they differ in their zones at most.
            again = "" if nat else self.rng.choice(["", "commit"])
            mark = self.execution(0.5) if again else ""
            for part in ("no", "first", "later"):
                first, second = (other if part != "no" and self.rng.random() < 0.15 else zone for _ in range(2))
                table = self.rng.choice([1, 2, 20])
                commit = self.ct("commit", first, self.execution(0.3), nat, f"table={table}")
                self.add(0, f"{name},in_port=1,ip_frag={part}", commit)
                self.add(0, f"{name},in_port=2,ip_frag={part}", self.ct(first, back, f"table={table}"))
                self.add(1, f"{name},ip_frag={part}", self.ct(again, second, mark, "table=20"))
                self.add(2, f"{name},ip_frag={part}", "resubmit(,30)", "resubmit(,20)")

    def of_forced(self):
        """Whoever sends last has begun the connection, at times with a translation of its own."""
        zone, first, second = self.zone(), self.rng.choice(["", "", "src", "dst"]), self.rng.choice(["", "src", "dst"])
        for family, name in FAMILIES.items():
            nat = self.nat(first, family) if first else ""
            new = self.nat(second, family) if first and second else ""
            self.add(0, f"{name},in_port=1", self.ct("commit", zone, nat, "table=20", self.execution()))
            self.add(0, f"{name},in_port=2", self.ct(zone, "nat" if nat else "", "table=1"))
            forced = self.ct("commit", "force", zone, new, self.execution(), "table=20")
            self.add(1, f"{name},ct_state=+est+rpl", forced, priority=20)
            self.add(1, f"{name},ct_state=+trk", "resubmit(,20)")

    def of_helpers(self):
        """FTP and TFTP, at times through NAT."""
        self.helper = True
        zone, translated = self.zone(), self.rng.choice(["", "", "src", "dst"])
        for family, name in FAMILIES.items():
            nat = self.nat(translated, family) if translated else ""
            if nat.count(":") and family == 4:
                nat = nat.split(":")[0] + ")"
            if family == 6 and "]" in nat:
                nat = f"nat({translated}={GATEWAY[6] if translated == 'src' else OUTSIDE[6][0]})"
            back = "nat" if nat else ""
            kinds = {"tcp": ("tp_dst=21", "alg=ftp"), "udp": ("tp_dst=69", "alg=tftp")}
            for kind, (port, helper) in kinds.items():
                kind = kind + "6" * (family == 6)
                self.add(0, f"{kind},{port},in_port=1", self.ct("commit", zone, nat, helper, "table=2"), priority=20)
            for port in (1, 2):
                self.add(0, f"{name},in_port={port}", self.ct(zone, back, "table=1"))
            self.add(1, f"{name},ct_state=+new+rel", self.ct("commit", zone, back, "table=20"), priority=20)
            self.add(1, f"{name},ct_state=+new-rel,in_port=1", self.ct("commit", zone, nat, "table=20"))
        self.add(1, "ct_state=+new-rel,in_port=2", "resubmit(,30)")
        self.add(1, "ct_state=-new+trk", "resubmit(,20)")
        for table in (1, 2):
            self.add(table, "ct_state=+trk+inv", "resubmit(,30)", priority=30)
        self.add(2, "ct_state=+trk-inv", "resubmit(,20)")

    # What is reported of a packet's connection.

    def report(self):
        by_fields = self.rng.random() < 0.6
        report = self.report_fields if by_fields else self.report_matches
        report()
        for family in FAMILIES.values():
            self.add(20, family, "resubmit(,23)", "resubmit(,24)", "resubmit(,22)")
            self.add(30, family, "resubmit(,23)", "resubmit(,24)")

    def report_fields(self):
        """The fields themselves, in the Ethernet addresses of the copies."""
        moves = ["NXM_NX_CT_STATE[]->NXM_OF_ETH_SRC[0..31]", "NXM_NX_CT_LABEL[0..15]->NXM_OF_ETH_SRC[32..47]"]
        moves += ["NXM_NX_CT_MARK[]->NXM_OF_ETH_DST[0..31]", "NXM_NX_CT_ZONE[]->NXM_OF_ETH_DST[32..47]"]
        self.copy(23, "ip", moves, 3)
        self.copy(23, "ipv6", moves, 3)
        addresses = {
            "ip": ["NXM_NX_CT_NW_SRC[]->NXM_OF_ETH_SRC[0..31]", "NXM_NX_CT_NW_DST[]->NXM_OF_ETH_DST[0..31]"],
            "ipv6": ["NXM_NX_CT_IPV6_SRC[0..31]->NXM_OF_ETH_SRC[0..31]", "NXM_NX_CT_IPV6_DST[0..31]->NXM_OF_ETH_DST[0..31]"],
        }
        ports = ["NXM_NX_CT_TP_SRC[]->NXM_OF_ETH_SRC[32..47]", "NXM_NX_CT_TP_DST[]->NXM_OF_ETH_DST[32..47]"]
        # These states have an original tuple. An ICMP error of the original direction has one too, but the peer does not let
        # actions read it, because the state is neither new, nor established, nor that of a reply.
        for family, moves in addresses.items():
            for state in ("+trk+new", "+trk+est", "+trk+rpl"):
                self.copy(24, f"ct_state={state},{family}", moves, 4)
                for proto in (6, 17, 132):
                    self.copy(24, f"ct_state={state},{family},ct_nw_proto={proto}", moves + ports, 4, priority=20)

    def copy(self, table, match, moves, port, priority=10):
        self.add(table, match, f"clone({','.join(f'move:{move}' for move in moves)},output:{port})", priority=priority)

    def report_matches(self):
        """The VLAN of the copies says which flow matched."""
        states = ["+new-est-rel-rpl-inv", "+new+rel", "+est-rpl", "+est+rpl", "+rel-rpl-new", "+rel+rpl", "+inv", "-trk"]
        for number, state in enumerate(states):
            self.tagged(23, f"ct_state={state}" + ("" if state == "-trk" else "+trk"), 100 + number, 3, 50 - number)
        self.tagged(23, "ct_state=+trk", 120, 3, 5)
        by_mark = [("ct_mark=0x5/0xf", 1), ("ct_mark=0x30/0xf0", 2), ("ct_label=0x77/0xff", 3), (f"ct_zone={self.zones[0]}", 4)]
        by_nat = [("ct_state=+trk+snat", 5), ("ct_state=+trk+dnat", 6)]
        by_tuple = [(f"ct_state=+est,ip,ct_nw_src={INSIDE[4][0]}", 7), (f"ct_state=+est,ipv6,ct_ipv6_dst={OUTSIDE[6][0]}", 8)]
        by_tuple += [("ct_state=+est,ip,ct_nw_proto=6,ct_tp_dst=80", 9), ("ct_state=+new,ip,ct_nw_proto=17", 10)]
        matches = by_mark + by_nat + by_tuple
        self.rng.shuffle(matches)
        for match, number in matches:
            self.tagged(24, match, 200 + number, 4, 100 - len(self.flows) % 80)

    def tagged(self, table, match, vlan, port, priority):
        self.add(table, match, f"clone(mod_vlan_vid:{vlan},output:{port})", priority=priority)
