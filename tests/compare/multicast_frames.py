"""Builds frames of multicast routers, listeners and senders for scenarios (see `group` in lib.sh).

usage: multicast_frames.py HOST KIND [WORD...] [NAME=VALUE...]

KIND is `v1`, `v2`, `leave` (GROUP), `v3` (TYPE/GROUP/SOURCE,...), `query` [GROUP], `data` GROUP for IPv4; `mld1`, `done`, `mld2`,
`mldquery` and `data` with the same words for IPv6; `raw` and `rawmld` take the message in hexadecimal digits, whose checksum is
filled in. Names: `vlan`, `src`, `dst`, `mac`, `ttl`, `bad` (a wrong checksum), `records` (how many the message announces),
`alert=no` (without the router alert option).
"""

import struct
import sys

from frames import ICMP6, UDP, _with_checksum, ethernet, internet_checksum, ip, packed, udp, version

IGMP = 2
ROUTER_ALERT_V4 = b"\x94\x04\0\0"
ROUTER_ALERT_V6 = bytes([ICMP6, 0, 5, 2, 0, 0, 1, 0])


def records(words, count):
    """The body of a report of version 3 of IGMP or 2 of MLD."""
    out = b""
    for word in words:
        kind, group, *sources = word.split("/")
        sources = [packed(source) for source in ",".join(sources).split(",") if source]
        head, tail = struct.pack(">BBH", int(kind), 0, len(sources)), b"".join(sources)
        out += head + packed(group) + tail
    return struct.pack(">HH", 0, int(count or len(words))) + out


def igmp(kind, words, names):
    """The destination and the message."""
    if kind == "raw":
        return "224.0.0.22", bytes.fromhex(words[0])
    if kind == "v3":
        return "224.0.0.22", b"\x22\0\0\0" + records(words, names.get("records"))
    group = words[0] if words else "0.0.0.0"
    number = {"query": 0x11, "v1": 0x12, "v2": 0x16, "leave": 0x17}[kind]
    dst = {"query": group if words else "224.0.0.1", "leave": "224.0.0.2"}.get(kind, group)
    return dst, bytes([number, 100 if kind == "query" else 0, 0, 0]) + packed(group)


def mld(kind, words, names):
    """The destination and the message."""
    if kind == "rawmld":
        return "ff02::16", bytes.fromhex(words[0])
    if kind == "mld2":
        return "ff02::16", b"\x8f\0\0\0" + records(words, names.get("records"))
    group = words[0] if words else "::"
    number = {"mldquery": 130, "mld1": 131, "done": 132}[kind]
    dst = {"mldquery": group if words else "ff02::1", "done": "ff02::2"}.get(kind, group)
    return dst, struct.pack(">BBHHH", number, 0, 0, 1000, 0) + packed(group)


def address(dst):
    """The Ethernet address of an IP address."""
    low = packed(dst)
    if version(dst) == 4:
        return (b"\1\0\x5e" + bytes([low[1] & 0x7F]) + low[2:]) if low[0] >= 224 else bytes([2, 0, 0, 0, 1, low[3]])
    return b"\x33\x33" + low[12:]


def frame(host, kind, words, names):
    alert = names.get("alert") != "no"
    header = {"ttl": int(names.get("ttl", 1))}
    is_v6 = kind in ("mld1", "done", "mld2", "mldquery", "rawmld") or kind == "data" and version(words[0]) == 6
    src = names.get("src", f"fe80::{host}" if is_v6 else f"10.0.0.{host}")
    if kind == "data":
        dst, proto = words[0], UDP
        message = udp(src, dst, 1000, 2000, b"hello")
    elif is_v6:
        dst, message = mld(kind, words, names)
        dst, proto = names.get("dst", dst), ICMP6
        message = _with_checksum(src, dst, ICMP6, message[:2] + b"\0\0" + message[4:], 2, "l4" if "bad" in names else "")
        if alert:
            header["extensions"] = ROUTER_ALERT_V6
    else:
        dst, message = igmp(kind, words, names)
        proto, message = IGMP, message[:2] + b"\0\0" + message[4:]
        checksum = internet_checksum(message) ^ (0x2222 if "bad" in names else 0)
        message = message[:2] + struct.pack(">H", checksum) + message[4:]
        if alert:
            header["options"] = ROUTER_ALERT_V4
    dst = names.get("dst", dst)
    vlan = int(names["vlan"]) if "vlan" in names else None
    whole = ethernet(ip(src, dst, proto, message, **header), 1, vlan)
    mac = bytes.fromhex(names["mac"].replace(":", "")) if "mac" in names else address(dst)
    return (mac + bytes([0x50, 0x54, 0, 0, 0, int(host)]) + whole[12:]).ljust(60, b"\0")


def main(host, kind, *rest):
    names = dict(word.split("=", 1) for word in rest if "=" in word)
    print(frame(host, kind, [word for word in rest if "=" not in word], names).hex())


if __name__ == "__main__":
    main(*sys.argv[1:])
