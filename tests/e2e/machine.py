"""A machine for tests of installation: a copy-on-write view of this one's files with processes, network and mounts of its
own. Packages are really installed there and daemons really run; when its first process ends, the kernel removes all of it.
"""

import os
import signal
import subprocess
from pathlib import Path

from switch import run

# Runs inside: makes the root directory from this machine's, then reaps orphans until it is ended.
FIRST_PROCESS = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
root=$1/root
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
shift
for shared; do
  mkdir -p "$root$shared"
  mount --bind "$shared" "$root$shared"
done
ip link set lo up
echo ready
trap : CHLD
while :; do sleep 1000 & wait $!; done
"""


class Machine:
    """Commands run by `run`; `shared` folders of this machine are seen there under the same names."""

    def __init__(self, directory, *shared):
        self.directory = Path(directory)
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
            + ["bash", "-c", FIRST_PROCESS, "bash", str(directory), *[str(path) for path in shared]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.holder.stdout.readline() == "ready\n", "the machine's file systems could not be mounted"
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text()
        self.first = int(children.split()[0])

    def run(self, *words, environment=None, **options):
        """Runs a command inside, see `switch.run`. Only the given variables are in its environment."""
        root = self.directory / "root"
        # The working directory is that of the new root, which `chroot` enters.
        enter = ["nsenter", "-t", self.first, "-m", "-n", "-p", "-i", "-u", "chroot", root, "env", "-i"]
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **(environment or {})}
        return run([*enter, *[f"{name}={value}" for name, value in variables.items()], *words], **options)

    def path(self, path):
        """Where a path of the machine is seen from outside."""
        return Path(f"/proc/{self.first}/root{self.directory}/root{path}")

    def end(self):
        """Ends all of its processes."""
        os.kill(self.first, signal.SIGKILL)
        self.holder.wait(timeout=60)
        self.holder.stdout.close()
