#!/usr/bin/env python3
"""Traces random frames through bridges of Open vSwitch and of Flowstone with the same random VLAN modes and mirrors.

usage: mirrored.py PEERS BINARY [--cases N] [--frames N] [--seed N] [--case N]

A seed and the number of a case fix all of it. Each case draws the modes and tags of four ports, protected ones, priority tags,
VLANs without learning, static addresses, flows and up to four mirrors; then frames with up to two tags. The steps of each
trace and its datapath actions must be equal, but not what cached flows match: the peer leaves out tags and addresses that it
decides by. Frames do not have an empty tag (VLAN 0, priority 0), which the peer removes from some copies. Two differences are explained
(`is_explained`).
"""

import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
VLANS = (0, 5, 9, 12)
ADDRESSES = [f"00:00:00:00:00:0{n}" for n in range(1, 6)] + ["ff:ff:ff:ff:ff:ff", "01:80:c2:00:00:00", "01:80:c2:00:00:20"]
HIDDEN = ("Flow:", "Megaflow:", "Final flow:")


class Switch:
    """The daemons of one maker. Clients are those of the peer."""

    def __init__(self, clients, daemons, schemas):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="mirrored-"))
        self.clients = clients
        self.env = dict(os.environ, PATH=f"{daemons}:{clients}:/usr/sbin:/usr/bin:/bin", OVS_SYSLOG_METHOD="null")
        self.env.update({f"OVS_{kind}DIR": str(self.home) for kind in ("RUN", "LOG", "DB")}, OVS_PKGDATADIR=str(schemas))
        self.run("ovsdb-tool", "create", self.home / "conf.db", schemas / "vswitch.ovsschema")
        common = ("--detach", "--no-chdir", "--pidfile", "-vconsole:off", "--log-file")
        self.run("ovsdb-server", *common, f"--remote=punix:{self.home}/db.sock", self.home / "conf.db")
        self.vsctl("--no-wait", "init")
        self.run("ovs-vswitchd", *common, "--enable-dummy=override", "--disable-system")
        self.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath-type=dummy", "fail-mode=secure")
        # One by one: the peer floods in the order in which it made the ports.
        for n in range(1, 5):
            self.vsctl("add-port", "br0", f"p{n}", "--", "set", "interface", f"p{n}", "type=dummy", f"ofport_request={n}")

    def run(self, *words, check=True):
        done = subprocess.run(list(map(str, words)), env=self.env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0 or not check, (words, done.stdout, done.stderr)
        return done.stdout

    def vsctl(self, *words):
        return self.run(f"{self.clients}/ovs-vsctl", *words)

    def configure(self, case):
        ports, flood, flows, fdb, mirrors = case
        words = ["clear", "bridge", "br0", "mirrors", "flood_vlans"]
        for name, columns in ports.items():
            words += ["--", "clear", "port", name, "vlan_mode", "tag", "trunks", "cvlans", "other_config"]
            words += ["--", "set", "port", name, *columns]
        self.vsctl(*words, *(["--", "set", "bridge", "br0", f"flood_vlans={flood}"] if flood else []))
        self.run(f"{self.clients}/ovs-ofctl", "del-flows", "br0")
        for flow in flows:
            self.run(f"{self.clients}/ovs-ofctl", "add-flow", "br0", flow)
        self.run(f"{self.clients}/ovs-appctl", "fdb/flush", "br0")
        for words in fdb:
            self.run(f"{self.clients}/ovs-appctl", "fdb/add", "br0", *words)
        # One by one: their order counts.
        for columns in mirrors:
            ids = [w for n in range(1, 5) for w in ("--", f"--id=@p{n}", "get", "port", f"p{n}")]
            self.vsctl(*ids, "--", "--id=@m", "create", "mirror", *columns, "--", "add", "bridge", "br0", "mirrors", "@m")

    def unlearn(self, fdb):
        for _, vlan, mac in fdb:
            # A port that was made anew has none any more.
            self.run(f"{self.clients}/ovs-appctl", "fdb/del", "br0", vlan, mac, check=False)

    def trace(self, port, frame):
        text = self.run(f"{self.clients}/ovs-appctl", "ofproto/trace", "br0", f"in_port={port}", frame)
        return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith(HIDDEN))

    def end(self):
        for file in self.home.glob("*.pid"):
            os.kill(int(file.read_text()), signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)


def draw(rng):
    some = lambda values, p=0.5: ",".join(str(v) for v in values if rng.random() < p)
    modes = ["", "access", "trunk", "trunk", "native-tagged", "native-untagged", "dot1q-tunnel"]
    ports = {}
    for n in range(1, 5):
        mode, columns = rng.choice(modes), [f"protected={rng.choice(['true', 'false', 'false'])}"]
        columns += [f"vlan_mode={mode}"] if mode else []
        columns += [f"tag={rng.choice(VLANS)}"] if mode not in ("", "trunk") or rng.random() < 0.3 else []
        trunks, customers = some(VLANS), some(VLANS)
        columns += [f"trunks={trunks}"] if trunks and rng.random() < 0.5 else []
        columns += [f"cvlans={customers}"] if customers and rng.random() < 0.5 else []
        if rng.random() < 0.3:
            columns.append(f"other_config:priority-tags={rng.choice(['always', 'if-nonzero', 'never'])}")
        if rng.random() < 0.3:
            columns.append(f"other_config:qinq-ethtype={rng.choice(['802.1q', '802.1ad'])}")
        ports[f"p{n}"] = columns
    actions = ["normal", "normal", "normal", "1,2,3,4", "mod_vlan_vid:6,2,3", "2,mod_vlan_vid:6,3,normal", "drop", "mod_dl_src:00:00:00:00:00:09,4,1"]
    flows = ["priority=0,actions=normal"]
    flows += [f"in_port={n},actions={rng.choice(actions)}" for n in range(1, 5) if rng.random() < 0.4]
    pairs = {(rng.choice(VLANS), mac) for mac in ADDRESSES[:5] if rng.random() < 0.6}
    # Ports that carry all VLANs: the peer also sends to learned ports what they do not carry.
    whole = [name for name, columns in ports.items() if columns[1:] in ([], ["vlan_mode=trunk"])]
    fdb = [(rng.choice(whole), vlan, mac) for vlan, mac in sorted(pairs)] if whole else []
    mirrors = []
    for n in range(rng.choice([0, 1, 1, 2, 3, 4])):
        columns = [f"name=m{n}"]
        names = ["@p1", "@p2", "@p3", "@p4"]
        columns += ["select_all=true"] if rng.random() < 0.3 else [f"select_src_port=[{some(names)}]", f"select_dst_port=[{some(names)}]"]
        vlans = some(VLANS)
        columns += [f"select_vlan={vlans}"] if vlans and rng.random() < 0.3 else []
        columns += [f"output_vlan={rng.choice(VLANS[1:])}"] if rng.random() < 0.4 else [f"output_port={rng.choice(names)}"]
        columns += [f"snaplen={rng.randint(14, 100)}"] if rng.random() < 0.2 else []
        columns += [f'filter="{rng.choice(["dl_vlan=5", "dl_src=00:00:00:00:00:01", "dl_type=0x1234", "dl_dst=00:00:00:00:00:02"])}"'] if rng.random() < 0.2 else []
        mirrors.append(columns)
    return ports, some(VLANS) if rng.random() < 0.3 else "", flows, fdb, mirrors


def frame(rng):
    text = rng.choice(ADDRESSES).replace(":", "") + rng.choice(ADDRESSES[:5]).replace(":", "")
    for _ in range(rng.choice([0, 0, 1, 1, 1, 2])):
        vlan, pcp = rng.choice(VLANS + (7,)), rng.choice([0, 0, 3])
        text += rng.choice(["8100", "8100", "88a8"]) + f"{(pcp or int(vlan == 0)) << 13 | vlan:04x}"
    return rng.randint(1, 4), text + "1234" + "00" * 46


def is_explained(case, theirs, ours):
    """Whether two traces differ as docs/features/mirrors.md says."""
    ports, _, _, _, mirrors = case
    shortens = lambda columns: all(any(column.startswith(of) for column in columns) for of in ("snaplen", "output_vlan"))
    if any(map(shortens, mirrors)):
        # The peer sends copies to a VLAN whole after it has mirrored one of them.
        theirs, ours = (re.sub(r"trunc\(\d+\),", "", text) for text in (theirs, ours))
    if any("vlan_mode=dot1q-tunnel" in columns for columns in ports.values()) and "forwarding to learned port" in theirs:
        # The peer also sends a customer's tag to a learned port that does not carry it: its last output.
        if ours.endswith("Datapath actions: drop"):
            return theirs.startswith(ours.removesuffix("drop"))
        return theirs == ours or theirs.startswith(f"{ours},")
    return theirs == ours


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peers", type=pathlib.Path)
    parser.add_argument("binary", type=pathlib.Path)
    for name, default in (("--cases", 40), ("--frames", 15), ("--seed", 1), ("--case", None)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    links = tempfile.mkdtemp(prefix="mirrored-bin-")
    subprocess.run([args.binary, "links", links], check=True, capture_output=True)
    clients, schemas = (args.peers / "bin").resolve(), (args.peers / "usr/share/openvswitch").resolve()
    switches = [Switch(clients, clients, schemas), Switch(clients, links, schemas)]
    numbers = [args.case] if args.case is not None else range(args.cases)
    wrong = traces = explained = 0
    try:
        for number in numbers:
            rng = random.Random(f"{args.seed} {number}")
            case = draw(rng)
            for switch in switches:
                switch.configure(case)
            for _ in range(args.frames):
                port, packet = frame(rng)
                theirs, ours = (switch.trace(port, packet) for switch in switches)
                traces += 1
                if theirs == ours:
                    continue
                if is_explained(case, theirs, ours):
                    explained += 1
                else:
                    wrong += 1
                    print(f"DIFFERS case {number}: port {port} frame {packet}\n{case}\npeer: {theirs}\nours: {ours}")
                    break
            for switch in switches:
                switch.unlearn(case[3])
    finally:
        for switch in switches:
            switch.end()
        shutil.rmtree(links, ignore_errors=True)
    print(f"mirrored: {len(numbers) - wrong} passed, {wrong} failed ({traces} traces of random frames, {explained} with explained differences)")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
