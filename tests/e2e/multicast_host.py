"""A host of multicast groups on the interface e0.

usage: multicast_host.py listen GROUP PORT     joins the group; prints `ready`, and a line for each datagram, until its input ends
       multicast_host.py send GROUP PORT TEXT  sends a datagram
       multicast_host.py watch PORT            prints `ready`, and a line for each UDP frame to that port, joined or not
       multicast_host.py query                 sends an IGMP query of version 2, as a router does
"""

import select
import socket
import struct
import sys

INTERFACE = "e0"


def family(group):
    return socket.AF_INET6 if ":" in group else socket.AF_INET


def listen(group, port):
    udp = socket.socket(family(group), socket.SOCK_DGRAM)
    udp.bind((group, int(port), 0, index()) if ":" in group else (group, int(port)))
    if ":" in group:
        request = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index())
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
    else:
        request = socket.inet_aton(group) + struct.pack("@4si", b"\0\0\0\0", index())
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    print("ready", flush=True)
    while sys.stdin not in (ready := select.select([udp, sys.stdin], [], [])[0]):
        for waiting in ready:
            print(waiting.recv(2048).decode(), flush=True)


def index():
    return socket.if_nametoindex(INTERFACE)


def send(group, port, text):
    udp = socket.socket(family(group), socket.SOCK_DGRAM)
    if ":" in group:
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index())
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 9)
    else:
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("@4s4si", b"", b"", index()))
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 9)
    udp.sendto(text.encode(), (group, int(port)))


def watch(port):
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw.bind((INTERFACE, 0))
    print("ready", flush=True)
    while True:
        frame, address = raw.recvfrom(2048)
        l4 = frame[14 + 4 * (frame[14] & 15) :] if frame[12:14] == b"\x08\0" else frame[54:]
        if address[2] != socket.PACKET_OUTGOING and l4[2:4] == int(port).to_bytes(2, "big"):
            print(l4[8:].decode(errors="replace").rstrip("\0"), flush=True)


def query():
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
    raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("@4s4si", b"", b"", index()))
    raw.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x94\x04\0\0")
    raw.sendto(bytes([0x11, 1, 0xEE, 0xFE, 0, 0, 0, 0]), ("224.0.0.1", 0))


if __name__ == "__main__":
    {"listen": listen, "send": send, "watch": watch, "query": query}[sys.argv[1]](*sys.argv[2:])
