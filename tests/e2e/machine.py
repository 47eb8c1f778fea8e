"""A machine for tests of installation: a copy-on-write view of this one's files with processes, network and mounts of its
own. Packages are really installed there and daemons really run; when its first process ends, the kernel removes all of it.
"""

import os
import signal
import subprocess
from pathlib import Path

from hosts import unique
from switch import run
from waiting import until

# Runs inside: makes the root directory from this machine's. `boot` then starts systemd, with no services but those of
# packages that are installed later; otherwise the first process reaps orphans until it is ended.
FIRST_PROCESS = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
root=$1/root
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/net" "$root/dev/pts" "$root/dev/shm"
# As udev makes it, for all users.
mknod -m 666 "$root/dev/net/tun" c 10 200
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs tmpfs "$root/run"
ip link set lo up
boot=$2
shift 2
for shared; do
  mkdir -p "$root$shared"
  mount --bind "$shared" "$root$shared"
done
if [ "$boot" = boot ]; then
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  rm -f "$root"/etc/systemd/system/*.wants/* "$root"/usr/lib/systemd/system/sysinit.target.wants/*
  rm -f "$root"/usr/lib/systemd/system/sockets.target.wants/systemd-udevd* "$root/usr/sbin/policy-rc.d"
  echo ready
  exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=other /lib/systemd/systemd >/dev/null 2>&1
fi
echo ready
trap : CHLD
while :; do sleep 1000 & wait $!; done
"""


class ControlGroup:
    """A control group of its own, below which systemd makes others."""

    def __init__(self, directory):
        self.mount = Path(directory)
        run(["mount", "-t", "cgroup2", "cgroup2", self.mount])
        self.path = self.mount / unique("machine")
        self.path.mkdir()

    def enter(self):
        """Moves this process into the group; its children start there."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def end(self):
        """Removes the group when its processes are gone, and all below it."""
        until(lambda: "populated 0" in (self.path / "cgroup.events").read_text(), "the end of the machine's processes")
        for directory, _, _ in os.walk(self.path, topdown=False):
            os.rmdir(directory)
        run(["umount", self.mount])


class Machine:
    """Commands run by `run`; `shared` folders of this machine are seen there under the same names. With `group`, a
    `ControlGroup`, systemd is its first process."""

    def __init__(self, directory, *shared, group=None):
        self.directory = Path(directory)
        self.group = group
        namespaces = ["--mount", "--net", "--pid", "--ipc", "--uts", *(["--cgroup"] if group else [])]
        self.holder = subprocess.Popen(
            ["unshare", *namespaces, "--fork", "--kill-child"]
            + ["bash", "-c", FIRST_PROCESS, "bash", str(directory), "boot" if group else "", *[str(path) for path in shared]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=group.enter if group else None,
        )
        assert self.holder.stdout.readline() == "ready\n", "the machine's file systems could not be mounted"
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text()
        self.first = int(children.split()[0])
        if group:
            state = lambda: self.run("systemctl", "is-system-running", check=False).out.strip()
            until(lambda: state() in ("running", "degraded"), lambda: f"systemd has started: {state()}")

    def run(self, *words, environment=None, **options):
        """Runs a command inside, see `switch.run`. Only the given variables are in its environment."""
        root = self.directory / "root"
        namespaces = ["-m", "-n", "-p", "-i", "-u", *(["-C"] if self.group else [])]
        enter = ["nsenter", "-t", self.first, *namespaces, "chroot", root, "env", "-i"]
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **(environment or {})}
        return run([*enter, *[f"{name}={value}" for name, value in variables.items()], *words], **options)

    def path(self, path):
        """Where a path of the machine is seen from outside."""
        # systemd has the machine's root directory itself.
        root = "" if self.group else f"{self.directory}/root"
        return Path(f"/proc/{self.first}/root{root}{path}")

    def end(self):
        """Ends all of its processes."""
        os.kill(self.first, signal.SIGKILL)
        self.holder.wait(timeout=60)
        self.holder.stdout.close()
