"""Prints the frames that a device receives, one a line in hexadecimal digits, tags included.

usage: sniff.py DEVICE        until standard input ends
"""

import select
import socket
import struct
import sys

SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 8, 23, 33
ETH_P_ALL = 3
QUIET_SECONDS = 0.5
# Flags of the auxiliary data: there is a tag, and its protocol is given.
VLAN_VALID, VLAN_TPID_VALID = 1 << 4, 1 << 6


def whole(frame, ancillary):
    """The frame with the tag that the kernel took out of it."""
    for _, kind, data in ancillary:
        if kind == PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = struct.unpack_from("=IIIHHHH", data)
            if status & VLAN_VALID:
                tpid = tpid if status & VLAN_TPID_VALID else 0x8100
                return frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
    return frame


def main():
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    packets.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    packets.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    packets.bind((sys.argv[1], 0))
    print("ready", flush=True)
    ends = False
    while not ends:
        readable, _, _ = select.select([packets, sys.stdin], [], [])
        # What is still on its way is printed, until nothing more comes.
        ends = sys.stdin in readable
        while select.select([packets], [], [], QUIET_SECONDS if ends else 0)[0]:
            frame, ancillary, _, _ = packets.recvmsg(1 << 17, 256)
            print(whole(frame, ancillary).hex())


main()
