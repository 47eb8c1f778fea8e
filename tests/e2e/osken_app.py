"""Starts a stock application of os-ken as a controller.

usage: osken_app.py FOLDER APPLICATION PORT

FOLDER is the unpacked wheel of os-ken 1.4.0, the last that came with the applications (and with the program that
started them); they run under the os-ken that is installed. Listens on 127.0.0.1:PORT.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import os_ken.lib.hub

os_ken.lib.hub.patch(thread=False)

from os_ken import cfg  # noqa: E402, after the patch
from os_ken import log  # noqa: E402
from os_ken.base.app_manager import AppManager  # noqa: E402


def main(folder, application, port):
    log.early_init_log()
    # Only the application is taken from the old release: its other modules would hide the installed ones.
    directory = tempfile.mkdtemp()
    shutil.copy(Path(folder) / "os_ken/app" / f"{application}.py", directory)
    sys.path.insert(0, directory)
    try:
        cfg.CONF(["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", port, "--verbose"], project="os_ken")
        log.init_log()
        AppManager.run_apps([application, "os_ken.controller.ofp_handler"])
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
