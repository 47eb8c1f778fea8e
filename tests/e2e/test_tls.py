"""OpenFlow over TLS, with Debian's programs, which use OpenSSL."""

import pytest

from pki import Authority
from test_testcontroller import Running
from waiting import until

PORT = 6654


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "pki")


def listening(switch, authority, algorithm="ec"):
    """A bridge of the switch that accepts OpenFlow over TLS at PORT."""
    key, certificate = authority.issue("switch", algorithm)
    switch.vsctl("set-ssl", key, certificate, authority.certificate)
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
    switch.vsctl("set-controller", "br0", f"pssl:{PORT}:127.0.0.1")
    until(lambda: f":{PORT}" in switch_sockets(switch), "the switch listening")
    return f"ssl:127.0.0.1:{PORT}"


def switch_sockets(switch):
    from switch import run

    return run(switch.inside(["ss", "-ltn"])).out


@pytest.mark.parametrize("makers", ["ours-peers", "peers-ours", "ours-ours"])
@pytest.mark.parametrize("algorithm", ["ec", "rsa"])
def test_programs_connect_to_a_switch(making, peers, authority, makers, algorithm):
    switch_maker, tool_maker = makers.split("-")
    switch = making.switch(maker=peers if switch_maker == "peers" else None)
    tools = getattr(switch, tool_maker)
    target = listening(switch, authority, algorithm)
    options = authority.options("operator", algorithm=algorithm)
    for protocols in ([], ["--ssl-protocols=TLSv1.2"]):
        assert "n_tables:254" in tools.ofctl(*options, *protocols, "show", target)
    many = "".join(f"add table={n % 200},priority={n},ip,actions=drop\n" for n in range(1, 3001))
    tools.ofctl(*options, "add-flows", target, "-", input=many)
    assert len(switch.flows("br0")) == 3000
    assert len(tools.ofctl(*options, "dump-flows", target).splitlines()) >= 3000
    # A peer without a certificate of the CA is rejected, and rejects the switch.
    other = Authority(authority.directory / "other", "other")
    stranger = other.options("stranger")
    for wrong in (stranger, [*options[:4], *stranger[4:]], [*stranger[:4], *options[4:]]):
        assert tools.ofctl(*wrong, "show", target, check=False) == ""
    # A client that trusts all peers is accepted.
    assert "n_tables:254" in tools.ofctl(*options[:4], "-C", "none", "show", target)


@pytest.mark.parametrize("makers", ["ours-peers", "peers-ours", "ours-ours"])
def test_switches_connect_to_a_controller(making, peers, programs, authority, makers):
    switch_maker, controller_maker = makers.split("-")
    switch = making.switch(maker=peers if switch_maker == "peers" else None)
    program = (peers if controller_maker == "peers" else programs) / "ovs-testcontroller"
    words = [*authority.options("controller"), "--peer-ca-cert", authority.certificate, f"pssl:{PORT}:127.0.0.1"]
    key, certificate = authority.issue("switch")
    learned = authority.directory / "learned.pem"
    with Running(program, switch.directory / "tc", words, switch.inside) as controller:
        switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
        # The first connection provides the CA's certificate.
        switch.vsctl("--bootstrap", "set-ssl", key, certificate, learned)
        switch.vsctl("set-controller", "br0", f"ssl:127.0.0.1:{PORT}")
        until(
            lambda: switch.vsctl("get", "controller", "br0", "is_connected") == "true",
            lambda: controller.log.read_text() + switch.log(),
        )
    assert certificate_bytes(learned) == certificate_bytes(authority.certificate)


def certificate_bytes(path):
    lines = path.read_text().splitlines()
    start, end = lines.index("-----BEGIN CERTIFICATE-----"), lines.index("-----END CERTIFICATE-----")
    return "".join(lines[start + 1 : end])


def test_renewed_files_apply_at_once(switch, authority):
    target = listening(switch, authority)
    options = authority.options("operator")
    assert "n_tables" in switch.ofctl(*options, "show", target)
    renewed = Authority(authority.directory / "renewed", "renewed")
    renewed_options = renewed.options("operator")
    assert switch.ofctl(*renewed_options, "show", target, check=False) == ""
    # With only one file replaced, the switch keeps the previous pair.
    key, certificate = renewed.issue("switch")
    (authority.directory / "switch-key.pem").write_bytes(key.read_bytes())
    assert "n_tables" in switch.ofctl(*options, "show", target)
    (authority.directory / "switch-cert.pem").write_bytes(certificate.read_bytes())
    authority.certificate.write_bytes(renewed.certificate.read_bytes())
    assert "n_tables" in switch.ofctl(*renewed_options, "show", target)


def test_missing_files_are_reported(switch, authority):
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    switch.vsctl("set-controller", "br0", f"ssl:127.0.0.1:{PORT}")
    until(lambda: "Protocol not available" in switch.vsctl("get", "controller", "br0", "status"), switch.log)
    for tools in (switch.peers, switch.ours):
        shown = tools.run("ovs-ofctl", "show", f"ssl:127.0.0.1:{PORT}", check=False)
        assert (shown.code, shown.out) == (1, "")
        for what in ("Private key", "Certificate", "CA certificate"):
            assert f"stream_ssl|ERR|{what} must be configured to use SSL" in shown.err
        assert f"connecting to ssl:127.0.0.1:{PORT} (Protocol not available)" in shown.err


@pytest.mark.parametrize(
    "words, error",
    [("--ssl-protocols=TLSv1", "TLSv1: SSL/TLS protocol not recognized"), ("--ssl-ciphers=RC4-SHA", "no cipher match")],
)
def test_unsupported_options_are_logged(switch, words, error):
    output = switch.ours.run("ovs-ofctl", words, "show", "ssl:127.0.0.1:1", check=False)
    assert output.code == 1 and "stream_ssl|ERR|" in output.err and error in output.err, str(output)
