"""OVN's central and its chassis for the benchmark `ovn`: databases on the server of either maker, and OVN's own programs."""

import contextlib
import os
import pathlib
import struct
import subprocess
import time

import common

# Addresses that OVN otherwise chooses by chance.
OPTIONS = {"mac_prefix": "0a:00:00", "svc_monitor_mac": "0a:00:00:ff:ff:01", "svc_monitor_mac_dst": "0a:00:00:ff:ff:02"}
UNDERLAY_NET = "192.168.0.{}"
UPLINK = 1


def need_ovn():
    """Reports a missing program of OVN; those of `common.need_peer` may have been unpacked without them."""
    if not (common.PEERS / "bin/ovn-northd").exists():
        raise SystemExit(f"no OVN in {common.PEERS}: run tests/peers/unpack.sh {common.PEERS} dpdk ovn")


class Central:
    """Both databases on one server of `which`, and northd, in the foreground until `stop`."""

    def __init__(self, which, directory):
        self.directory = pathlib.Path(directory)
        self.remote = f"unix:{self.directory / 'central.sock'}"
        folders = {f"{who}_{what}DIR": str(self.directory) for who in ("OVS", "OVN") for what in ("RUN", "LOG", "DB", "SYSCONF")}
        self.environment = dict(os.environ, OVS_SYSLOG_METHOD="null", **folders)
        programs = common.programs(which)
        files = []
        for database in ("nb", "sb"):
            files.append(self.directory / f"{database}.db")
            schema = common.PEERS / f"usr/share/ovn/ovn-{database}.ovsschema"
            common.run(programs / "ovsdb-tool", "create", files[-1], schema, env=self.environment)
        self.made = contextlib.ExitStack()
        server = [programs / "ovsdb-server", *files, f"--remote=p{self.remote}", f"--unixctl={self.directory / 'server.ctl'}"]
        self.server_words = [*server, f"--log-file={self.directory / 'server.log'}", "-vconsole:off"]
        self.socket = self.directory / "central.sock"
        self.server = self._start(*self.server_words)
        common.wait_for(self.socket.exists, "the database server")
        self.nbctl("init", "--", "set", "NB_Global", ".", *(f'options:{name}="{value}"' for name, value in OPTIONS.items()))
        northd = [common.PEERS / "bin/ovn-northd", *(f"--ovn{database}-db={self.remote}" for database in ("nb", "sb"))]
        self.northd = self._start(*northd, f"--unixctl={self.directory / 'northd.ctl'}", "-vconsole:off")

    def _start(self, *words):
        process = subprocess.Popen([str(word) for word in words], env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.made.callback(end, process)
        return process

    def restart_server(self, with_signal):
        """Ends the server by a signal and starts it again; `restarted_s` is the time of that. It is about to listen, or listens."""
        self.server.send_signal(with_signal)
        self.server.wait()
        self.socket.unlink(missing_ok=True)
        self.restarted_s = time.monotonic()
        self.server = self._start(*self.server_words)
        common.wait_for(self.socket.exists, "the database server", patience_s=120)

    def nbctl(self, *words, timeout=600):
        words = [common.PEERS / "bin/ovn-nbctl", f"--timeout={timeout}", f"--db={self.remote}", *words]
        return common.run(*words, env=self.environment, timeout=timeout + 10)

    def sbctl(self, *words):
        return common.run(common.PEERS / "bin/ovn-sbctl", "--timeout=600", f"--db={self.remote}", *words, env=self.environment)

    def stop(self):
        self.made.close()


class Chassis:
    """What makes a running switch a chassis: its bridges, its settings, and ovn-controller."""

    def __init__(self, central, switch, number, datapath_type=None):
        self.central, self.switch, self.number = central, switch, number
        self.name = f"hv{number}"
        self.address = UNDERLAY_NET.format(number)
        self.controller = None
        of_type = [] if datapath_type is None else [f"datapath_type={datapath_type}"]
        mac = f'other_config:hwaddr="{mac_of(number)}"'
        words = ["--may-exist", "add-br", "br-phys", "--", "set", "Bridge", "br-phys", mac, *of_type, "fail-mode=standalone"]
        words += ["--", "--may-exist", "add-br", "br-int", "--", "set", "Bridge", "br-int", "fail-mode=secure", *of_type]
        words += ["other_config:disable-in-band=true"]
        self.vsctl(*words)

    def vsctl(self, *words):
        return self.switch("ovs-vsctl", "--timeout=120", *words)

    def start(self):
        """Starts ovn-controller; the underlay has its address."""
        settings = {"system-id": self.name, "ovn-remote": self.central.remote, "ovn-encap-type": "geneve", "ovn-encap-ip": self.address}
        self.vsctl("set", "Open_vSwitch", ".", *(f'external_ids:{name}="{value}"' for name, value in settings.items()))
        environment = dict(self.switch.env, **{f"OVN_{what}DIR": str(self.switch.dir) for what in ("RUN", "LOG", "DB", "SYSCONF")})
        words = [common.PEERS / "bin/ovn-controller", f"unix:{self.switch.dir / 'db.sock'}", "-vconsole:off"]
        words += [f"--log-file={self.switch.dir / 'ovn-controller.log'}", f"--unixctl={self.switch.dir / 'ovn-controller.ctl'}"]
        self.controller = subprocess.Popen([str(word) for word in words], env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def bind(self, port, logical):
        """Makes a port of `br-int` the logical port, and waits until it is up."""
        self.vsctl("set", "Interface", port, f"external_ids:iface-id={logical}")
        self.wait_for_up(logical)

    def wait_for_up(self, logical):
        is_up = lambda: "true" in self.central.sbctl("--bare", "--columns=up", "find", "Port_Binding", f"logical_port={logical}")
        common.wait_for(is_up, f"{logical} to be up", patience_s=120)
        self.central.nbctl("--wait=hv", "sync")

    def stop(self):
        if self.controller is not None:
            end(self.controller)


def end(process):
    """Ends a process that was started here, if it has not ended."""
    if process.poll() is None:
        common.end_process(process.pid)
        process.wait()


def mac_of(number):
    """The address of a chassis's underlay bridge."""
    return f"aa:bb:cc:00:00:{number:02x}"


# ---- Capture files.

FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


def write_pcap(path, frames):
    """Writes frames to a capture file, and returns its path."""
    path = pathlib.Path(path)
    path.write_bytes(FILE_HEADER + b"".join(bytes(8) + struct.pack("<II", len(frame), len(frame)) + frame for frame in frames))
    return path


def read_pcap(path):
    """The frames of a capture file, without an incomplete one at its end."""
    data = path.read_bytes() if path.exists() else b""
    frames, at = [], len(FILE_HEADER)
    while at + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        if at + 16 + length > len(data):
            break
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames
