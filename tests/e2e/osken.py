"""Third-party controllers, run unmodified beside a switch: os-ken's applications, and REST calls to them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from hosts import HERE
from waiting import until

PORT = 6653
REST_PORT = 8080


def applications():
    """The unpacked wheel with the applications, beside the virtual environment that ./test makes."""
    folder = Path(os.environ.get("OSKEN_APPLICATIONS", Path(sys.prefix) / "wheels/os_ken-1.4.0"))
    assert folder.is_dir(), f"{folder} is not there: ./test e2e makes it"
    return folder


class Program:
    """A controller program in the namespace of a switch, for the duration of a `with`."""

    def __init__(self, switch, words, name="controller", environment=None):
        self.switch = switch
        self.words = words
        self.environment = {**os.environ, **(environment or {})}
        self.path = switch.directory / f"{name}.log"
        self.process = None

    def start(self):
        with open(self.path, "ab") as out:
            command = self.switch.inside(self.words)
            # `ip netns exec` becomes the program, so this is the program's process id.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.environment
            )

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def lives(self):
        return self.process is not None and self.process.poll() is None

    def log(self):
        return self.path.read_text(errors="replace")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    def control(self, *bridges):
        """Configures it as the controller of bridges and waits until they are connected."""
        for bridge in bridges:
            # The probe is long, since a controller that starts on a busy machine may be silent for seconds.
            self.switch.vsctl(
                *["set-controller", bridge, f"tcp:127.0.0.1:{PORT}", "--"],
                *["set", "controller", bridge, "max_backoff=1000", "inactivity_probe=60000"],
            )
        self.wait_connected(*bridges)

    def wait_connected(self, *bridges):
        for bridge in bridges:
            until(
                lambda bridge=bridge: self.lives()
                and self.switch.vsctl("get", "controller", bridge, "is_connected") == "true",
                lambda: f"the connection; {self.log()}\n{self.switch.log()[-4000:]}",
            )


class Application(Program):
    """A stock application of os-ken, by its module's name."""

    def __init__(self, switch, name):
        words = [sys.executable, HERE / "osken_app.py", "--applications", applications(), f"os_ken.app.{name}"]
        words += ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", PORT, "--verbose"]
        if "rest" in name:
            words += ["--wsapi-host", "127.0.0.1", "--wsapi-port", REST_PORT]
        super().__init__(switch, words)

    def rest(self, method, path, body=None, status=200):
        """Returns the reply to a REST call: parsed if it is JSON, otherwise as text."""
        words = [sys.executable, HERE / "rest.py", method, f"http://127.0.0.1:{REST_PORT}{path}"]
        if body is not None:
            words.append(json.dumps(body))
        done = subprocess.run(
            [str(word) for word in self.switch.inside(words)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{method} {path}: {done.stderr}\n{self.log()}"
        first, _, rest = done.stdout.partition("\n")
        assert int(first) == status, f"{method} {path}: {done.stdout}\n{self.log()}"
        try:
            return json.loads(rest)
        except ValueError:
            return rest.strip()
