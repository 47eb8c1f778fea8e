"""Which packets pass a meter, in virtual time, beside Open vSwitch's datapath in userspace."""

import re

import pytest

from dummies import Dummies

DESTINATION = bytes.fromhex("020000000002020000000001") + b"\x12\x34"

# The meter, and steps: milliseconds that pass, and lengths of the packets that arrive then.
CASES = {
    "a burst of packets": (
        "pktps,burst,stats,bands=type=drop,rate=10,burst_size=5",
        [(0, [60] * 8), (99, [60] * 2), (1, [60]), (250, [60] * 4)],
    ),
    "packets without a burst": (
        "pktps,stats,bands=type=drop,rate=4",
        [(0, [60] * 6), (249, [60]), (1, [60] * 2), (10000, [60] * 6)],
    ),
    "a burst below ten milliseconds of the rate": (
        "pktps,burst,stats,bands=type=drop,rate=1000,burst_size=2",
        [(0, [60] * 5), (1, [60] * 3), (7, [60] * 5)],
    ),
    "a burst of kilobits": (
        "kbps,burst,stats,bands=type=drop,rate=100,burst_size=4",
        [(0, [100] * 7), (7, [100]), (1, [100] * 2), (1, [100, 60, 100])],
    ),
    "kilobits without a burst": (
        "kbps,stats,bands=type=drop,rate=2",
        [(0, [60, 100, 60, 100]), (200, [60]), (40, [60]), (5000, [125] * 3)],
    ),
    "packets larger than the burst": (
        "kbps,burst,stats,bands=type=drop,rate=1000,burst_size=8",
        [(0, [1000, 1001, 60]), (1000, [1001, 1001, 999]), (1000, [1000])],
    ),
    "packets of several sizes": (
        "kbps,burst,stats,bands=type=drop,rate=100,burst_size=10",
        [(0, [700, 700, 400, 60, 200, 60, 60]), (3, [60] * 2), (30, [400, 300, 60])],
    ),
    "two bands": (
        "pktps,burst,stats,bands=type=drop,rate=10,burst_size=6,type=drop,rate=20,burst_size=3",
        [(0, [60] * 9), (100, [60] * 4), (1000, [60] * 9), (150, [60] * 3)],
    ),
    "two bands with kilobits": (
        "kbps,burst,stats,bands=type=drop,rate=100,burst_size=2,type=drop,rate=10,burst_size=9",
        [(0, [200, 100, 300, 60, 200, 60]), (10, [200, 60]), (1000, [250] * 3)],
    ),
    "bands of the same rate": (
        "pktps,burst,stats,bands=type=drop,rate=10,burst_size=2,type=drop,rate=10,burst_size=4",
        [(0, [60] * 7), (300, [60] * 5)],
    ),
}


@pytest.fixture(scope="module")
def both(module_making):
    """A switch of Open vSwitch and ours, each with a bridge of two ports and time that stands still."""
    switches = [module_making.switch(maker=maker) for maker in (module_making.peers, None)]
    made = [Dummies(switch, "br0", "p1", "p2") for switch in switches]
    for dummies in made:
        dummies.switch.appctl("time/stop")
    return made


@pytest.mark.parametrize("case", CASES)
def test_which_packets_pass(both, case):
    meter, steps = CASES[case]

    def results(dummies):
        ofctl = lambda *words: dummies.switch.ofctl("-O", "OpenFlow13", words[0], "br0", *words[1:])
        ofctl("del-flows")
        ofctl("del-meters")
        ofctl("add-meter", f"meter=1,{meter}")
        ofctl("add-flow", "in_port=1,actions=meter:1,output:2")
        shown = []
        for pause, lens in steps:
            if pause:
                dummies.switch.appctl("time/warp", str(pause), str(pause))
            frames = [(DESTINATION + bytes([number])).ljust(length, b"\0") for number, length in enumerate(lens)]
            # In one command, so that the packets are one batch, and no time passes between them.
            passed = dummies.exchange("p1", *frames).get("p2", [])
            shown.append((pause, [(frame[14], len(frame)) for frame in passed]))
        stats = ofctl("meter-stats", "meter=1").splitlines()[1:]
        return shown, [re.sub(r"duration:\S+ ", "", line) for line in stats]

    theirs, ours = map(results, both)
    assert ours == theirs
