"""What a bond loses when its active member fails: packets of one flow at a steady rate pass a bridge into a bond of two members
(active-backup), whose active one loses its carrier in the middle. The packets lost, divided by the rate, are the time that
the bond took. In turns with Open vSwitch, over each kind of port.
"""

import contextlib
import json
import subprocess
import time

import common
import layer2
import workload
from between import ALL, NO_SUCH_TYPE, compiled
from report import Report, Table, middle
from replay import CONTROL_CORE, remove_devices

RATE_PPS = 20_000
SECONDS = 1.5
FAILS_AT_S = 0.7
FAILURES = 5
# For packets that are under way, and for a change of the active member.
SETTLE_S = 0.3
TARGET_MS = 1
KINDS = [kind for kind in ALL if kind.which]


def measure(options):
    common.need_programs("ip", "taskset")
    found = {kind: [] for kind in KINDS}
    with compiled("traffic") as programs:
        pcap = programs / "packet.pcap"
        packet = workload.Packet(workload.SOURCES, workload.DESTINATIONS, 1000, 2000, source_mac=256, destination_mac=layer2.DESTINATION_MAC)
        pcap.write_bytes(layer2.capture([packet.frame()]))
        for round_number in range(options.rounds):
            for kind in KINDS:
                if found[kind] is not None:
                    lost_ms = turn(kind, programs / "traffic", pcap)
                    found[kind] = None if lost_ms is None else [*found[kind], *lost_ms]
                    common.say(f"failover, round {round_number + 1}, {kind.name}: {lost_ms} ms")
    rows, figures = [], {}
    for kind, lost_ms in found.items():
        figures[kind.name] = {"lost_ms": lost_ms or NO_SUCH_TYPE}
        if lost_ms:
            rows.append([kind.label, len(lost_ms), middle(lost_ms), max(lost_ms), "yes" if max(lost_ms) <= TARGET_MS else "no"])
    header = ["switch", "failures", "median loss, ms", "largest loss, ms", f"at most {TARGET_MS} ms"]
    return Report([Table("traffic that the failure of a bond's active member loses", header, rows)], figures)


def turn(kind, traffic, pcap):
    """The losses of a switch in milliseconds of traffic, of several failures; None if it has no such ports."""
    with contextlib.ExitStack() as made:
        if kind.which == "peer":
            common.need_peer()
        hosts, devices = made.enter_context(common.hosts(3))
        switch = common.Switch(kind.which)
        made.callback(switch.stop)
        vsctl = lambda *words: switch("ovs-vsctl", "--timeout=60", *words)
        vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=0x2")
        remove_devices()
        switch.start()
        types = lambda: vsctl("get", "Open_vSwitch", ".", "iface_types")
        common.wait_for(lambda: len(types()) > 4, f"the port types of {kind.name}")
        if kind.type != "system" and kind.type not in types():
            return None
        vsctl(
            *["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev"],
            *["--", "add-port", "br0", devices[0], "--", "add-bond", "br0", "bond0", *devices[1:], "bond_mode=active-backup"],
            *[word for device in devices for word in ("--", "set", "Interface", device, f"type={kind.type}")],
        )
        appctl = lambda *words: switch("ovs-appctl", *words)
        are_enabled = lambda: appctl("bond/show", "bond0").count(": enabled") == 2
        common.wait_for(are_enabled, "both members")
        appctl("fdb/add", "br0", devices[1], 0, layer2.text_of(layer2.DESTINATION_MAC))
        losses = []
        for _ in range(FAILURES):
            common.wait_for(are_enabled, "both members")
            losses.append(one_failure(switch, hosts, devices, traffic, pcap))
        return losses


def one_failure(switch, hosts, devices, traffic, pcap):
    """Has the active member fail under traffic, and returns the loss in milliseconds."""
    switch("ovs-appctl", "bond/set-active-member", "bond0", devices[1])
    time.sleep(SETTLE_S)
    before = received(hosts)
    words = ["ip", "netns", "exec", hosts[0], "taskset", "-c", CONTROL_CORE, traffic, "send", "e0", pcap, RATE_PPS, SECONDS]
    sender = subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, text=True)
    time.sleep(FAILS_AT_S)
    common.run("ip", "-n", hosts[1], "link", "set", "e0", "down")
    sent = json.loads(sender.communicate(timeout=60)[0])["sent"]
    time.sleep(SETTLE_S)
    lost = sent - (received(hosts) - before)
    common.run("ip", "-n", hosts[1], "link", "set", "e0", "up")
    if lost > sent / 2:
        raise SystemExit(f"{lost} of {sent} packets were lost\n{switch.log_tail()}")
    # The frames that announce addresses at the new member are received as well.
    return max(0, lost) * 1000 / RATE_PPS


def received(hosts):
    """The packets that both receivers have counted."""
    shown = (json.loads(common.run("ip", "-n", name, "-j", "-s", "link", "show", "e0")) for name in hosts[1:])
    return sum(one[0]["stats64"]["rx"]["packets"] for one in shown)
