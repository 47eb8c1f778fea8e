"""The chassis' side of OVN's networks: physical networks, and the rows of their own databases."""

import json


def map_networks(each, **settings):
    """The chassis reach the physical network `phys` by their underlay bridges."""
    words = {"ovn-bridge-mappings": "phys:br-phys"} | {name.replace("_", "-"): value for name, value in settings.items()}
    for number, chassis in enumerate(each.chassis.values(), 1):
        chassis.switch.vsctl("set", "Open_vSwitch", ".", *(f'external_ids:{key}="{value.format(number)}"' for key, value in words.items()))


def add_physical_port(each, switch, port="ln1", kind="localnet", tag=None, **options):
    words = ["lsp-add", switch, port, "--", "lsp-set-type", port, kind, "--", "lsp-set-addresses", port, "unknown"]
    words += ["--", "lsp-set-options", port, "network_name=phys", *(f"{name}={value}" for name, value in options.items())]
    if tag:
        words += ["--", "set", "Logical_Switch_Port", port, f"tag_request={tag}", f"tag={tag}"]
    each.nbctl("--wait=hv", *words)


def local_rows(each, table, *columns):
    """Rows of each chassis's own database, without UUIDs."""
    found = {}
    for name, chassis in each.chassis.items():
        rows = json.loads(chassis.switch.vsctl("--format=json", f"--columns={','.join(columns)}", "list", table))["data"]
        found[name] = sorted(json.dumps(row) for row in rows)
    return found


def vary_own_bindings(each, *ports):
    """Leaves MAC bindings of these router ports' own addresses out of the comparison behind kills. Chassis hear each other's gratuitous
    ARPs over the physical network, so that the router learns its own addresses. Timers and each start of a controller announce them."""
    macs = dict(each.rows("Port_Binding", "logical_port", "mac"))
    keys = dict(each.rows("Port_Binding", "logical_port", "tunnel_key"))
    for port in ports:
        own, key = macs[port].split()[0], int(keys[port])
        each.varying += [
            rf"{port} [0-9a-f.:]+ {own}",
            # The tables of MAC bindings.
            rf"table=(66|67|79),.*\breg1[45]={key:#x},.*\b(dl_src=|mod_dl_dst:){own}\b.*",
        ]
