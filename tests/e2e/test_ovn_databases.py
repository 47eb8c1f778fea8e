"""The databases of OVN behind relays and TLS, by roles, and large changes of them."""

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import ARP, Ether

import chaos
from databases import DatabaseServer, free_port
from logical import BROADCAST, add_switches, mac, packet, send
from pki import Authority
from waiting import until


@pytest.fixture
def servers():
    """Database servers that end with the test."""
    made = []
    yield made
    for server in made:
        server.stop()


def use(chassis, remote, **settings):
    """A chassis follows another server of the southbound database."""
    words = {"ovn-remote": remote, **settings}
    chassis.switch.vsctl("set", "Open_vSwitch", ".", *(f'external_ids:{name}="{value}"' for name, value in words.items()))


def changed(each):
    """A change of a host's address takes effect on all chassis."""
    each.nbctl("--wait=hv", "lsp-set-addresses", "p12", "00:00:00:00:01:22 10.0.1.2")
    frame = packet("p11", "p12")
    frame.dst = "00:00:00:00:01:22"
    send(each, "p11", frame, "p12", lambda one: IP in one and one.dst == "00:00:00:00:01:22")


def test_a_relay(compared, servers, tmp_path_factory):
    """A chassis follows and changes the southbound database by a relay, which may be restarted."""

    def scenario(each):
        relay = DatabaseServer(each.maker or each.making.programs, each.making.peers, tmp_path_factory.mktemp("relay"), [])
        servers.append(relay)
        source = f"relay:OVN_Southbound:{each.central.server.remote}"
        relay.start(source)
        each.victims.append(chaos.server("relay", "hv1", relay))
        use(each.chassis["hv1"], relay.remote)
        add_switches(each)
        send(each, "p11", packet("p11", "p12"), "p12")
        changed(each)
        relay.kill()
        send(each, "p11", packet("p11", "p22"), "p22")
        relay.start(source)
        each.nbctl("--wait=hv", "lsp-set-addresses", "p12", "00:00:00:00:01:02 10.0.1.2")
        each.add_host("p13", "hv1")
        send(each, "p13", packet("p13", "p12"), "p12")
        # The source itself restarts.
        each.central.server.kill()
        each.central.server.start()
        changed(each)

    compared(scenario)


def test_roles_over_tls(compared, tmp_path_factory):
    """Chassis over TLS with the role ovn-controller bind ports and learn, but change no other chassis."""

    def scenario(each):
        authority = Authority(tmp_path_factory.mktemp("pki"))
        server = each.central.server
        key, certificate = authority.issue("server")
        each.sbctl("set-ssl", key, certificate, authority.certificate)
        server.kill()
        columns = (("private-key", "private_key"), ("certificate", "certificate"), ("ca-cert", "ca_cert"))
        options = [f"--{option}=db:OVN_Southbound,SSL,{column}" for option, column in columns]
        server.start("--remote=db:OVN_Southbound,SB_Global,connections", *options)
        # With port 0, a server that starts again would listen at another port.
        port = free_port()
        words = ["--id=@new", "create", "Connection", f'target="pssl:{port}:127.0.0.1"', "role=ovn-controller", "inactivity_probe=0"]
        each.sbctl("--", *words, "--", "set", "SB_Global", ".", "connections=@new")
        column = ["--bare", "--columns=status", "list", "Connection"]
        until(lambda: f"bound_port={port}" in each.sbctl(*column), "the port of the server")
        for name, chassis in each.chassis.items():
            key, certificate = authority.issue(name)
            chassis.switch.vsctl("set-ssl", key, certificate, authority.certificate)
            # The server's address is that of the machine, outside of the switch's namespace.
            chassis.controller.exit("--restart")
            chassis.controller.words = chassis.controller.words[len(chassis.switch.inside([])) :]
            chassis.controller.start()
            use(chassis, f"ssl:127.0.0.1:{port}")
        denied = ["set", "Chassis", "hv2", "external_ids:owner=hv1"]
        key, certificate = authority.issue("hv1")
        words = [f"--db=ssl:127.0.0.1:{port}", "-p", key, "-c", certificate, "-C", authority.certificate, "--timeout=10"]
        refused = server.run("ovn-sbctl", *words, *denied, check=False)
        assert refused.code == 1 and "permission error" in refused.err, str(refused)
        allowed = server.run("ovn-sbctl", *words, "set", "Chassis", "hv1", "external_ids:owner=hv1")
        assert allowed.code == 0
        hostname = server.run("ovn-sbctl", *words, "set", "Chassis", "hv1", "hostname=other", check=False)
        each.remarks["refusals"] = [text.err.splitlines()[-1] for text in (refused, hostname)]
        each.remarks["another refusal"] = server.run("ovn-sbctl", *words, "destroy", "Encap", *encaps(each), check=False).err.splitlines()[-1:]
        add_switches(each)
        send(each, "p11", packet("p11", "p12"), "p12")
        # Routers learn by the role, too.
        each.nbctl("--wait=hv", "lsp-set-addresses", "p22", "unknown")
        announced = Ether(src=mac("p22"), dst=BROADCAST) / ARP(op=2, hwsrc=mac("p22"), psrc="10.0.2.77", pdst="10.0.2.77")
        each.receive("p22", announced)
        until(each.mac_bindings, "a learned binding")
        each.central.sync()
        until(lambda: "n_connections=2" in each.sbctl(*column), lambda: f"two connections, not {each.sbctl(*column)}")

    compared(scenario)


def encaps(each):
    """The encapsulations of hv2."""
    return each.sbctl("--bare", "--columns=_uuid", "find", "Encap", "chassis_name=hv2").split()[:1]


def test_many_rows(compared):
    """Hundreds of ports, addresses and rules in one transaction reach the chassis, and leave them in another one."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        words = []
        for number in range(300):
            port = f"many{number}"
            words += ["--", "lsp-add", "s1", port, "--", "lsp-set-addresses", port, f"00:00:00:01:{number // 256:02x}:{number % 256:02x}"]
        each.nbctl("--wait=hv", *words[1:])
        members = " ".join(f"10.7.{number // 250}.{number % 250}" for number in range(600))
        each.nbctl("create", "Address_Set", "name=many", f'addresses="{members}"'.replace(" ", '","'))
        each.nbctl("--wait=hv", "acl-add", "s1", "to-lport", "100", "ip4.src == $many", "drop")
        send(each, "p11", packet("p11", "p12"), "p12")
        flows = len(each.chassis["hv1"].flows())
        assert flows > 600
        keys = each.bindings()
        each.remarks["bindings"] = {port: row for port, row in keys.items() if not port.startswith("many")}
        each.nbctl("--wait=hv", "acl-del", "s1", "--", "clear", "Logical_Switch", "s1", "acls")
        each.nbctl("--wait=hv", *[word for number in range(300) for word in ("--", "lsp-del", f"many{number}")][1:])
        assert len(each.chassis["hv1"].flows()) < flows - 600
        send(each, "p11", packet("p11", "p12"), "p12")

    compared(scenario)
