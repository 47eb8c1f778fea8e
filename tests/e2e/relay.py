"""The network card of a virtual machine, from the switch's point of view: the process that reads and writes a tap
device.

usage: relay.py TAP HOST        until standard input or one of them ends

TAP is the device that becomes a port; frames read from it are written to the tap HOST, and the other way round. The
card has no offloads: the kernel completes checksums and segments frames before they are read, and no written frame
is marked as checked.
"""

import errno
import os
import select
import sys

from watch import FRAME_LEN_MAX, open_tap

BATCH = 64


def pump(source, target):
    """Moves some frames; returns whether both devices exist."""
    try:
        for _ in range(BATCH):
            os.write(target, os.read(source, FRAME_LEN_MAX))
    except OSError as problem:
        # Writing to a device that is down fails temporarily; to a deleted one, permanently.
        return problem.errno != errno.EBADFD
    return True


if __name__ == "__main__":
    taps = [open_tap(name, offloads=0) for name in sys.argv[1:]]
    print("ready", flush=True)
    there = True
    while there:
        ready = select.select([sys.stdin, *taps], [], [])[0]
        there = sys.stdin not in ready and all(pump(a, b) for a, b in (taps, taps[::-1]) if a in ready)
