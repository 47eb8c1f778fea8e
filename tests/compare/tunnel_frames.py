#!/usr/bin/env python3
"""Builds frames of tunnels around inner ones, and shows captured frames.

usage: tunnel_frames.py build TYPE [NAME=VALUE]... [-- WORD...]
       tunnel_frames.py show COUNT PORT...

`build` prints one frame in hexadecimal digits: an outer Ethernet frame to the address of the bridge of the underlay, IP
headers (src, dst, ttl, tos, df, ident, frag; bad=ip spoils the checksum), those of a type of tunnel (the function of that name says
which settings it has), and the inner frame of the words that frames.py knows. `cut=N` leaves N bytes of it, `pad=N` adds N.
`show` prints the frames that ports have sent since the last call (PORT.pcap, PORT.seen), one a line, once there are COUNT of them,
within a second.
"""

import pathlib
import struct
import sys
import time

import frames
import tracked

BRIDGE, HOST, OTHER_HOST = "aa55aa550000", "f8bc124434b2", "f8bc124434b3"
ADDRESS = {4: "1.1.2.88", 6: "2001:cafe::88"}
PEER = {4: "1.1.2.92", 6: "2001:cafe::92"}
VXLAN, GENEVE, GTPU, BAREUDP, GPE = 4789, 6081, 2152, 6635, 4790
# What a protocol number of VXLAN-GPE stands for.
GPE_PROTOCOLS = {0x0800: 1, 0x86DD: 2, 0x6558: 3, 0x894F: 4, 0x8847: 5}


def inner_of(frame, kind):
    """The bytes of an inner frame as a packet of the Ethernet type `kind`: 0x6558 keeps its Ethernet header."""
    return frame if kind == 0x6558 else frame[14:]


def kind_of(frame, l3):
    return int.from_bytes(frame[12:14], "big") if l3 else 0x6558


def vxlan(inner, key=5, flags=0x08000000, low=0, **_):
    """`flags` is the first word of the header, `low` the last byte."""
    return struct.pack(">II", flags, key << 8 | low) + inner


def gbp(inner, key=5, group=0x123, bits=0, **_):
    """VXLAN with a group policy; `bits` are those of the second byte."""
    return struct.pack(">BBHI", 0x88, bits, group, key << 8) + inner


def gpe(inner, key=5, l3=0, flags=0x0C, protocol=None, **_):
    """VXLAN-GPE; the inner packet's type says the next protocol, unless `protocol` does."""
    kind = kind_of(inner, l3)
    protocol = GPE_PROTOCOLS.get(kind, 9) if protocol is None else protocol
    return struct.pack(">BHBI", flags, 0, protocol, key << 8) + inner_of(inner, kind)


def option(text):
    """An option of Geneve: CLASS:TYPE:BYTES in hexadecimal digits; a length follows after a fourth colon if it lies."""
    kind, number, value, *length = text.split(":")
    value = bytes.fromhex(value)
    return struct.pack(">HBB", int(kind, 16), int(number, 16), int(length[0]) if length else len(value) // 4) + value


def geneve(inner, key=5, options="", protocol=0x6558, flags=0, ver=0, length=None, l3=0, **_):
    """`options` are separated by commas, `flags` are those of OAM (0x80) and critical options (0x40)."""
    kind = kind_of(inner, l3) if l3 else protocol
    body = b"".join(map(option, filter(None, options.split(","))))
    words = len(body) // 4 if length is None else length
    inner = inner_of(inner, kind_of(inner, l3))
    return struct.pack(">BBHI", ver << 6 | words, flags, kind, key << 8) + body + inner


def gre(inner, key=None, seq=None, csum=None, l3=0, protocol=None, flags=0, **_):
    """`csum=1` adds a checksum, `csum=0` a wrong one; `flags` are further bits."""
    kind = kind_of(inner, l3)
    bits = flags | (csum is not None) << 15 | (key is not None) << 13 | (seq is not None) << 12
    rest = b"" if key is None else struct.pack(">I", key)
    rest += b"" if seq is None else struct.pack(">I", seq)
    head = struct.pack(">HH", bits, kind if protocol is None else protocol)
    payload = rest + inner_of(inner, kind)
    if csum is None:
        return head + payload
    whole = head + b"\0\0\0\0" + payload
    return head + struct.pack(">HH", frames.internet_checksum(whole) ^ (0 if csum else 0x1234), 0) + payload


def erspan(inner, key=5, ver=1, idx=7, dir=0, hwid=0, seq=1, flags=None, protocol=None, session=None, **_):
    """`key` is the session; version 1 has an index, version 2 a direction and a hardware id."""
    session = key if session is None else session
    bits = 0x1000 if flags is None else flags
    kind = {1: 0x88BE, 2: 0x22EB}.get(ver, 0x88BE) if protocol is None else protocol
    head = struct.pack(">HH", bits, kind) + (struct.pack(">I", seq) if bits & 0x1000 else b"")
    base = struct.pack(">HH", ver << 12 | 0x001, session & 0x3FF)
    if ver == 1:
        return head + base + struct.pack(">I", idx) + inner
    return head + base + struct.pack(">IHH", 0x01020304, 0, hwid << 4 | dir << 3) + inner


def gtpu(inner, key=5, flags=0x30, msgtype=255, length=None, extra="", **_):
    """`extra` are bytes behind the header in hexadecimal digits."""
    body = bytes.fromhex(extra) + (inner[14:] if msgtype == 255 else b"")
    size = len(body) if length is None else length
    return struct.pack(">BBHI", flags, msgtype, size, key) + body


def bareudp(inner, **_):
    return inner[14:]


UDP = {"vxlan": VXLAN, "gbp": VXLAN, "gpe": GPE, "geneve": GENEVE, "gtpu": GTPU, "bareudp": BAREUDP}
HEADERS = {"vxlan": vxlan, "gbp": gbp, "gpe": gpe, "geneve": geneve, "gre": gre, "erspan": erspan, "gtpu": gtpu, "bareudp": bareudp}


def srv6(inner, segs="", left=0, routing=4, next=None, length=None, src=PEER[6], dst=ADDRESS[6], ttl=64, tos=0, **_):
    """A packet behind a segment routing header, or without one if there are no segments. `routing` is its type."""
    proto = {0x0800: 4, 0x86DD: 41}.get(kind_of(inner, 1), 59) if next is None else next
    body = inner[14:]
    listed = [frames.packed(seg) for seg in segs.split(",") if seg]
    if listed:
        words = 2 * len(listed) if length is None else length
        head = struct.pack(">BBBBBBH", proto, words, routing, left, len(listed) - 1, 0, 0)
        body, proto = head + b"".join(listed) + body, 43
    packet = struct.pack(">IHBB", 6 << 28 | tos << 20, len(body), proto, ttl) + frames.packed(src) + frames.packed(dst) + body
    return bytes.fromhex(BRIDGE + HOST + "86dd") + packet


def built(kind, inner, v=4, src=None, dst=None, ttl=64, tos=0, df=0, ident=0, frag=0, more=0, bad="", dst_port=None, src_port=4660,
          mac=BRIDGE, host=None, cut=None, pad=0, udp_length=None, csum=None, **settings):
    """An outer frame of a type of tunnel (see HEADERS) around an inner frame; csum is that of UDP or of GRE."""
    src, dst = src or PEER[v], dst or ADDRESS[v]
    v = frames.version(src)
    host = host or (OTHER_HOST if src in ("1.1.2.93", "2001:cafe::93") else HOST)
    if kind == "srv6":
        frame = bytes.fromhex(mac + host) + srv6(inner, src=src, dst=dst, ttl=ttl, tos=tos, **settings)[12:]
    else:
        of_gre = {"csum": csum} if kind == "gre" else {}
        payload = HEADERS[kind](inner, **settings, **of_gre)
        proto = frames.GRE
        if kind in UDP:
            proto, port = frames.UDP, dst_port or UDP[kind]
            wrong = {None: "none", 1: "", 0: "l4"}[csum]
            payload = frames.udp(src, dst, src_port, port, payload, bad=wrong, length=udp_length)
        header = {"ttl": ttl, "tos": tos, "ident": ident, "fragment": frag, "more": bool(more), "df": bool(df), "bad": bad}
        packet = frames.ip(src, dst, proto, payload, **header)
        frame = bytes.fromhex(mac + host) + (b"\x08\0" if v == 4 else b"\x86\xdd") + packet
    frame = frame if cut is None else frame[:cut]
    return frame + b"\0" * pad


def setting(word):
    name, value = word.split("=", 1)
    if name in ("options", "extra", "segs"):
        return name, value
    try:
        return name, int(value, 0)
    except ValueError:
        return name, value


def from_words(kind, *words):
    at = words.index("--") if "--" in words else len(words)
    inner = frames.from_words(1, *words[at + 1 :]) if at + 1 < len(words) else b""
    return built(kind, inner, **dict(map(setting, words[:at])))


def comparable(frame):
    """A frame without the timestamp of ERSPAN version 2, and without the identification of an outer packet that may be
    fragmented, which is always 0 in the peer."""
    at = {b"\x08\0": 34, b"\x86\xdd": 54}.get(frame[12:14])
    if at == 34 and frame[6:12].hex() == BRIDGE and not frame[20] & 0x40:
        frame = frame[:18] + b"\0\0" + frame[20:24] + b"\0\0" + frame[26:]
    if at and frame[23 if at == 34 else 20] == frames.GRE and frame[at : at + 4] == b"\x10\0\x22\xeb":
        frame = frame[: at + 12] + bytes(4) + frame[at + 16 :]
    return frame


def show(count, *ports):
    for turn in range(20):
        found = [(port, frame) for port in ports for frame in unseen(port)]
        if len(found) >= int(count):
            break
        time.sleep(0.05)
    for port in ports:
        number = sum(port == each for each, _ in found)
        pathlib.Path(f"{port}.seen").write_text(str(seen(port) + number))
    for port, frame in found:
        print(port, comparable(frame).hex())


def seen(port):
    file = pathlib.Path(f"{port}.seen")
    return int(file.read_text()) if file.exists() else 0


def unseen(port):
    capture = pathlib.Path(f"{port}.pcap")
    return tracked.Capture(capture).frames()[seen(port) :] if capture.exists() else []


if __name__ == "__main__":
    if sys.argv[1] == "build":
        print(from_words(*sys.argv[2:]).hex())
    else:
        show(*sys.argv[2:])
