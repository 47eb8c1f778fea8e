"""The foundations of the benchmark of tunnels: workloads have the same bytes everywhere and right headers, and the encapsulated
packets are those that the switch under test would make."""

import hashlib
import struct
import sys

import pytest
from switch import TOP

sys.path.insert(0, str(TOP / "bench"))

import overlay  # noqa: E402
import workload  # noqa: E402

# SHA-256 of the capture file and of the flows of the overlay, of the underlay and of plain forwarding, for 1,000 tunnels.
PINNED = {
    ("vxlan", "encapsulation", False): (
        "c0599d7345fdcd4a8a65bbf4db4008045d2f24db301ef154177721b24bd39a93",
        "44cd72e2fe2f099f31f4856b01ee0c7c051b1dcd9e809539e2368c9d7223f838",
        "ef2e8a5f63406249323fa707abdf839334f2a50fdf5df92981b4d63628dc2ca0",
        "864107866f47c25677012980c79f495369ba7adbc29972e76c4df3958184a710",
    ),
    ("vxlan", "encapsulation", True): (
        "c0599d7345fdcd4a8a65bbf4db4008045d2f24db301ef154177721b24bd39a93",
        "3cf7290cdcab837d8ff37946c8598d15e4f85c829733afc163ef6c2d33c684f6",
        "ef2e8a5f63406249323fa707abdf839334f2a50fdf5df92981b4d63628dc2ca0",
        "864107866f47c25677012980c79f495369ba7adbc29972e76c4df3958184a710",
    ),
    ("vxlan", "decapsulation", False): (
        "6f4f39d88b88f302ce2fbfb0c9add41a80c2b390820a1e1b6cf5d7889109252c",
        "a51d22b235d11ab667fefca18a33010f638a2ca70672e81cb48e7f72aa314e2d",
        "070964b0398e2a15c5eae5513abfb3a909b2cf36cfce788400927944efdbe1d3",
        "864107866f47c25677012980c79f495369ba7adbc29972e76c4df3958184a710",
    ),
    ("vxlan", "decapsulation", True): (
        "6f4f39d88b88f302ce2fbfb0c9add41a80c2b390820a1e1b6cf5d7889109252c",
        "e66a7f9c80e87c5c59f6bdd183021296fc26332017e063ff1f0f13510839e67b",
        "070964b0398e2a15c5eae5513abfb3a909b2cf36cfce788400927944efdbe1d3",
        "864107866f47c25677012980c79f495369ba7adbc29972e76c4df3958184a710",
    ),
    ("geneve", "encapsulation", False): (
        "c0599d7345fdcd4a8a65bbf4db4008045d2f24db301ef154177721b24bd39a93",
        "1506b5674ff0ec38e5540128fe403d86019b4f959f07fa22bff601592622f54d",
        "ef2e8a5f63406249323fa707abdf839334f2a50fdf5df92981b4d63628dc2ca0",
        "864107866f47c25677012980c79f495369ba7adbc29972e76c4df3958184a710",
    ),
    ("geneve", "encapsulation", True): (
        "c0599d7345fdcd4a8a65bbf4db4008045d2f24db301ef154177721b24bd39a93",
        "83ef52d2107a44a452bf63b5b4a05cb730c74ac436eaeca7860cd358835f85ee",
        "ef2e8a5f63406249323fa707abdf839334f2a50fdf5df92981b4d63628dc2ca0",
        "864107866f47c25677012980c79f495369ba7adbc29972e76c4df3958184a710",
    ),
    ("geneve", "decapsulation", False): (
        "af59ecb667f52af36d6798ac9f6249e38ce89a1842ff5d96468d2b393af45ef9",
        "46ba2245ae9d4463ea21ffb9496887cc5966c108c96fe4445b6290ca0bbea7e7",
        "070964b0398e2a15c5eae5513abfb3a909b2cf36cfce788400927944efdbe1d3",
        "864107866f47c25677012980c79f495369ba7adbc29972e76c4df3958184a710",
    ),
    ("geneve", "decapsulation", True): (
        "af59ecb667f52af36d6798ac9f6249e38ce89a1842ff5d96468d2b393af45ef9",
        "da275cfedb2787f6e3fba4fa784e2df004fa6b3a1c1fd24cbace70ed76259046",
        "070964b0398e2a15c5eae5513abfb3a909b2cf36cfce788400927944efdbe1d3",
        "864107866f47c25677012980c79f495369ba7adbc29972e76c4df3958184a710",
    ),
}


def digests(kind, direction, flow_based):
    return tuple(hashlib.sha256(content).hexdigest() for content in overlay.contents(kind, direction, 1_000, flow_based))


@pytest.mark.parametrize("kind", [overlay.VXLAN, overlay.GENEVE], ids=lambda kind: kind.name)
@pytest.mark.parametrize("direction", [overlay.ENCAPSULATION, overlay.DECAPSULATION])
@pytest.mark.parametrize("flow_based", [False, True])
def test_bytes(kind, direction, flow_based):
    assert digests(kind, direction, flow_based) == PINNED[kind.name, direction, flow_based]


@pytest.mark.parametrize("kind", [overlay.VXLAN, overlay.GENEVE], ids=lambda kind: kind.name)
def test_outer_headers(kind):
    for i in (0, 1, 999, 9_999):
        frame = overlay.outer(kind, i)
        assert len(frame) == workload.FRAME_LEN + kind.overhead()
        assert frame[kind.overhead() :] == overlay.inner(i).frame()
        total_len, udp_len = struct.unpack_from("!H", frame, 16)[0], struct.unpack_from("!H", frame, 38)[0]
        assert (total_len, udp_len) == (len(frame) - 14, len(frame) - 34)
        assert workload.internet_checksum(frame[14:34]) == 0
        assert struct.unpack_from("!I", frame, 46)[0] >> 8 == overlay.FIRST_KEY + i
    # Flow-based ports lead to the same remotes as ports for each of them.
    ports = [options["remote_ip"] for _, _, options in overlay.ports(kind, 3)]
    flows = overlay.flows(kind, overlay.ENCAPSULATION, 3, True)[0]
    assert all(f"set_field:{remote}->tun_dst" in flow for remote, flow in zip(ports, flows))


def test_each_tunnel_has_packets():
    frames = [overlay.inner(i).frame() for i in range(10_000)]
    assert sorted(overlay.shuffled(list(frames))) == sorted(frames)
    assert len(set(overlay.shuffled([b"x"]))) == 1 and len(overlay.shuffled([b"x"])) == workload.PACKETS_MIN
