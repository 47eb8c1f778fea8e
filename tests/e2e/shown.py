"""Forms of what networks of OVN show that are the same in equal networks: flows, frames and values without what is chosen by chance."""

import json
import re

# The source of health checks, which OVN chooses by chance otherwise.
MONITOR_MAC = "0a:00:00:ff:ff:01"
# UDP destination ports of Geneve and VXLAN.
TUNNEL_PORTS = (b"\x17\xc1", b"\x12\xb5")

# An output in a flow, with the addresses that it sets for a tunnel.
OUTPUT = r"(?:load:0x[0-9a-f]+->NXM_NX_TUN_IPV4_(?:SRC|DST)\[\],)*output:[^,]+"


def normal(line, groups, meters, names):
    """A flow without what OVN's programs choose by chance."""
    # The switch numbers tunnels and patch ports in the order in which they come.
    line = re.sub(r"(in_port=|output:)(\d+)", lambda found: found[1] + names.get(found[2], found[2]), line)
    line = re.sub(r"(?<=members:)[\d,]+", lambda found: ",".join(names.get(number, number) for number in found[0].split(",")), line)
    # Cookies are parts of UUIDs; samples of dropped packets name the flow's.
    if cookie := re.search(r"cookie=(0x[0-9a-f]+),", line):
        line = line.replace(f"obs_point_id={int(cookie[1], 16)})", "obs_point_id=COOKIE)")
    line = re.sub(r"cookie=0x[0-9a-f]+, ?", "", line)
    line = re.sub(r"note:[0-9a-f.]+", "note:UUID", line)
    # Events name their load balancer by its UUID.
    line = re.sub(r"\.00\.24(\.[0-9a-f]{2}){36}\)", ".UUID)", line)
    # Ids of conjunctions are parts of UUIDs, too.
    line = re.sub(r"(conj_id=|conjunction\()\d+", r"\1ID", line)
    # Zones of connection tracking are numbered in the order of a hash table.
    line = re.sub(r"load:0x[0-9a-f]+->(NXM_NX_REG1[1-3]\[(0\.\.15)?\])", r"load:ZONE->\1", line)
    # So are the tunnels that packets come from.
    line = re.sub(r"load:0x[0-9a-f]+->(NXM_NX_REG5\[16\.\.31\])", r"load:TUNNEL->\1", line)
    # So are the ports and the tunnels of a multicast group.
    if re.search(r"reg15=0x8[0-9a-f]{3},", line):
        head, actions = line.split(" actions=", 1)
        actions = re.sub(f"{OUTPUT}(,{OUTPUT})+", lambda found: ",".join(sorted(re.findall(OUTPUT, found[0]))), actions)
        *members, last = re.split(r"(?<=resubmit\(,\d\d\)),", actions)
        line = f"{head} actions={','.join([*sorted(members), last])}"
    # So are the next hops of routes with equal costs.
    line = re.sub(r"reg8=0x[1-9a-f]+000\d,", "reg8=HOP,", line)
    line = re.sub(r"load:0x[0-9a-f]+->OXM_OF_PKT_REG4\[32\.\.47\]", "load:HOPS->OXM_OF_PKT_REG4[32..47]", line)
    # So are the collectors of a sample.
    line = re.sub(r"sample\([^)]*\)(,sample\([^)]*\))+", lambda found: ",".join(sorted(re.findall(r"sample\([^)]*\)", found[0]))), line)
    # So are groups and meters: their contents stand for their numbers.
    line = re.sub(r"group:(\d+)", lambda found: f"group:{{{groups.get(found[1], 'none')}}}", line)
    return re.sub(r"(meter_id=|meter:)(\d+)", lambda found: f"{found[1]}{{{meters.get(found[2], 'none')}}}", line)


def hexes(frames):
    """Frames as text, but for those that OVN repeats by timers: gratuitous ARPs, health checks, BFD, and copies of requests and
    announcements."""
    found = []
    for frame in map(without_entropy, frames):
        repeated = is_periodic(frame) and frame.hex() in found
        if not (repeated or is_gratuitous(frame) or is_health_check(frame) or is_bfd(frame)):
            found.append(frame.hex())
    return found


def microflow(frame):
    """The Ethernet, IP and transport addresses of a frame in hexadecimal without tags or IP options. A switch keeps the order of packets within a
    microflow alone."""
    frame = bytes.fromhex(frame)
    match frame[12:14]:
        case b"\x08\x00":
            protocol, addresses, after = frame[23:24], frame[26:34], frame[34:]
        case b"\x86\xdd":
            protocol, addresses, after = frame[20:21], frame[22:54], frame[54:]
        case _:
            return frame[:14]
    ports = after[:4] if protocol in (b"\x06", b"\x11", b"\x84") else b""
    return frame[:14] + protocol + addresses + ports


def is_health_check(frame):
    return frame[6:12] == bytes.fromhex(MONITOR_MAC.replace(":", ""))


def is_bfd(frame):
    """Returns true for packets to UDP port 3784 over IPv4 without options."""
    return frame[12:15] == b"\x08\x00\x45" and frame[23] == 17 and frame[36:38] == (3784).to_bytes(2, "big")


def without_entropy(frame):
    """A frame without the source port of its UDP tunnel, a hash of what is inside, and the checksum over that."""
    if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] in TUNNEL_PORTS:
        return frame[:34] + bytes(2) + frame[36:40] + bytes(2) + frame[42:]
    return frame


def is_periodic(frame):
    """Returns true for packets of ARP, neighbour discovery, IGMP and MLD, with a VLAN tag or without one."""
    at = 16 if frame[12:14] == b"\x81\x00" else 12
    packet = frame[at + 2 :]
    match frame[at : at + 2]:
        case b"\x08\x06":
            return True
        case b"\x08\x00":
            return packet[9:10] == b"\x02"
        case b"\x86\xdd":
            # Packets of MLD have a hop-by-hop header.
            return packet[6:7] == b"\x00" or (packet[6:7] == b"\x3a" and 133 <= packet[40] <= 137)
    return False


def is_gratuitous(frame):
    """Returns true for ARP packets, with a VLAN tag or without one, that announce their own sender's address."""
    at = 16 if frame[12:14] == b"\x81\x00" else 12
    arp = frame[at + 2 :]
    return frame[at : at + 2] == b"\x08\x06" and len(arp) >= 28 and arp[14:18] == arp[24:28]


def text_of(value):
    match value:
        case str():
            return value
        case ["uuid", uuid]:
            return uuid
    return json.dumps(value)


def difference(ours, theirs):
    """What two networks show differently, as text; empty if nothing."""
    lines = []
    for title in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(title), theirs.get(title)
        if mine == other:
            continue
        if isinstance(mine, list):
            more, less = ([line for line in a if line not in b] for a, b in ((mine, other), (other, mine)))
        else:
            more, less = ([f"{key}: {value}" for key, value in a.items() if b.get(key) != value] for a, b in ((mine, other), (other, mine)))
        lines += [title, *(f"  ours:   {line}" for line in more), *(f"  theirs: {line}" for line in less)]
    return "\n".join(map(str, lines))
