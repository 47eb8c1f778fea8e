"""Starts one application of os-ken as a controller, as os-ken's former program did, which the package no longer has.

usage: osken_app.py [--applications FOLDER] MODULE [OPTION OF OS-KEN]...

MODULE is the application's module (os_ken.app.simple_switch_13, os_ken.tests.switch.tester). FOLDER is the unpacked
wheel of os-ken 1.4.0, the last release with the stock applications; they run under the installed os-ken.
"""

import os
import sys
from pathlib import Path

# Several of the applications use functions that os-ken does not support on threads.
os.environ.setdefault("OSKEN_HUB_TYPE", "eventlet")

import os_ken.lib.hub  # noqa: E402, after the choice above

os_ken.lib.hub.patch()

import eventlet.wsgi  # noqa: E402, after the patch
import os_ken.app  # noqa: E402
import os_ken.flags  # noqa: E402, F401, for the options that it adds
from os_ken import cfg, log  # noqa: E402
from os_ken.base.app_manager import AppManager  # noqa: E402


def main(words):
    log.early_init_log()
    if words[0] == "--applications":
        # Behind the installed modules: only modules that were removed since come from the old release.
        os_ken.app.__path__.append(str(Path(words[1]) / "os_ken/app"))
        # Their web server uses a name that eventlet has replaced; only websockets need it, which no application opens
        # here.
        if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
            eventlet.wsgi.ALREADY_HANDLED = object()
        words = words[2:]
    manager = AppManager.get_instance()
    manager.load_apps([words[0], "os_ken.controller.ofp_handler"])
    cfg.CONF(words[1:], project="os_ken")
    log.init_log()
    contexts = manager.create_contexts()
    services = manager.instantiate_apps(**contexts)
    if "wsgi" in contexts:
        from os_ken.app import wsgi

        services.append(os_ken.lib.hub.spawn(wsgi.start_service(manager)))
    os_ken.lib.hub.joinall(services)


if __name__ == "__main__":
    main(sys.argv[1:])
