"""A virtual machine's network card, as a switch sees it: the one who reads and writes a tap device.

usage: relay.py TAP HOST        until standard input or one of them ends

TAP is the device that becomes a port; what is read from it is written to the tap HOST, and the other way round. The card has
no offloads: the kernel finishes checksums and cuts frames before they are read, and nothing written is marked as checked.
"""

import errno
import os
import select
import sys

from watch import FRAME_LEN_MAX, open_tap

BATCH = 64


def pump(source, target):
    """Moves some frames; returns whether both devices are there."""
    try:
        for _ in range(BATCH):
            os.write(target, os.read(source, FRAME_LEN_MAX))
    except OSError as problem:
        # A device that is down takes nothing, one that is gone is an error for ever.
        return problem.errno != errno.EBADFD
    return True


if __name__ == "__main__":
    taps = [open_tap(name, offloads=0) for name in sys.argv[1:]]
    print("ready", flush=True)
    there = True
    while there:
        ready = select.select([sys.stdin, *taps], [], [])[0]
        there = sys.stdin not in ready and all(pump(a, b) for a, b in (taps, taps[::-1]) if a in ready)
