"""OpenFlow 1.4 messages, generated as bytes beforehand: flow-mods of several shapes, bundles, requests for floods;
and the same flows as text."""

import random
import struct

VERSION = 5
BARRIER_REQUEST, FLOW_MOD, GROUP_MOD, PACKET_OUT, MULTIPART_REQUEST = 20, 14, 15, 13, 18
BUNDLE_CONTROL, BUNDLE_ADD = 33, 34
BUNDLE_OPEN, BUNDLE_CLOSE, BUNDLE_COMMIT = 0, 2, 4
ATOMIC_ORDERED = 3
ADD, DELETE = 0, 3
GROUP_ADD, GROUP_DELETE = 0, 2
ANY = 0xFFFFFFFF
IN_PORT = 0xFFF8

# Fields of OXM's basic class: number and bytes.
ETH_DST, ETH_TYPE, IP_PROTO = (3, 6), (5, 2), (10, 1)
IPV4_SRC, IPV4_DST, TCP_SRC, TCP_DST = (11, 4), (12, 4), (13, 2), (14, 2)
FIELDS = {"dl_dst": ETH_DST, "nw_src": IPV4_SRC, "nw_dst": IPV4_DST, "tp_src": TCP_SRC, "tp_dst": TCP_DST}

SHAPES = ("l2", "acl", "tables")
N_TABLES = 10


def message(kind, body, xid=0):
    return struct.pack("!BBHI", VERSION, kind, 8 + len(body), xid) + body


def oxm(field, value, prefix=None):
    number, length = field
    if prefix is None:
        return struct.pack("!HBB", 0x8000, number << 1, length) + value.to_bytes(length, "big")
    mask = (1 << 8 * length) - (1 << 8 * length - prefix)
    masked = (value & mask).to_bytes(length, "big") + mask.to_bytes(length, "big")
    return struct.pack("!HBB", 0x8000, number << 1 | 1, 2 * length) + masked


def match(*fields):
    body = b"".join(fields)
    return struct.pack("!HH", 1, 4 + len(body)) + body + bytes(-(4 + len(body)) % 8)


def output(port):
    return struct.pack("!HHIHHI", 0, 16, port, 0xFFFF, 0, 0)


def resubmit(table):
    return struct.pack("!HHIHHBBH", 0xFFFF, 16, 0x2320, 14, IN_PORT, table, 0, 0)


def to_group(number):
    return struct.pack("!HHI", 22, 8, number)


def flow_mod(command, table=0, priority=0x8000, fields=(), actions=b"", cookie=0, cookie_mask=0):
    instructions = struct.pack("!HHI", 4, 8 + len(actions), 0) + actions if actions else b""
    fixed = struct.pack("!QQBBHHHIIIHH", cookie, cookie_mask, table, command, 0, 0, priority, ANY, ANY, ANY, 0, 0)
    return message(FLOW_MOD, fixed + match(*fields) + instructions)


def flow(shape, i, change=0):
    """Flow number `i` of a shape: table, priority, fields and action, as numbers. `change` selects another action."""
    port = 1 + (i + change) % 2
    if shape == "l2":
        return 0, 0x8000, (("dl_dst", 0x020000000000 | i, None),), port
    a, b, c = i >> 16 & 255, i >> 8 & 255, i & 255
    src, dst = 10 << 24 | a << 16 | b << 8 | c, 11 << 24 | c << 16 | a << 8 | b
    if shape == "tables":
        return i % N_TABLES, 0x8000, (("ip", None, None), ("nw_dst", dst, None)), port
    # An access list: most rules exact, the others with prefixes and without some of the fields.
    parts = [("tcp", None, None), ("nw_src", src, None), ("nw_dst", dst, None)]
    parts += [("tp_src", 1024 + i % 60000, None), ("tp_dst", i % 1000, None)]
    kind = i % 8
    if kind == 5:
        parts[1] = ("nw_src", src << 8 & 0xFFFFFFFF, 24)
    elif kind == 6:
        del parts[3]
    elif kind == 7:
        parts[2] = ("nw_dst", 11 << 24 | (i & 0xFFFF) << 8, 24)
        del parts[3]
    return 0, 100 + i % 50, tuple(parts), port


def goes_on(shape, table, change):
    """Whether the action continues in the next table."""
    return shape == "tables" and table + 1 < N_TABLES and not change


def add(shape, i, change=0):
    table, priority, parts, port = flow(shape, i, change)
    fields = []
    for name, value, prefix in parts:
        if name in ("ip", "tcp"):
            fields.append(oxm(ETH_TYPE, 0x0800))
            if name == "tcp":
                fields.append(oxm(IP_PROTO, 6))
        else:
            fields.append(oxm(FIELDS[name], value, prefix))
    action = resubmit(table + 1) if goes_on(shape, table, change) else output(port)
    return flow_mod(ADD, table, priority, fields, action)


def text(shape, i, change=0):
    """The same as `add`, for ovs-ofctl."""
    table, priority, parts, port = flow(shape, i, change)
    words = [f"table={table}", f"priority={priority}"]
    for name, value, prefix in parts:
        if value is None:
            words.append(name)
        elif name == "dl_dst":
            words.append("dl_dst=" + ":".join(f"{value:012x}"[k : k + 2] for k in range(0, 12, 2)))
        elif name.startswith("nw"):
            address = ".".join(str(byte) for byte in value.to_bytes(4, "big"))
            words.append(f"{name}={address}" + (f"/{prefix}" if prefix else ""))
        else:
            words.append(f"{name}={value}")
    action = f"resubmit(,{table + 1})" if goes_on(shape, table, change) else f"output:{port}"
    return ",".join(words) + f",actions={action}"


def bundle(messages, number=1):
    """All of them in one bundle."""

    def control(step):
        return message(BUNDLE_CONTROL, struct.pack("!IHH", number, step, ATOMIC_ORDERED))

    begin = struct.pack("!IHH", number, 0, ATOMIC_ORDERED)
    inside = (message(BUNDLE_ADD, begin + one) for one in messages)
    return b"".join((control(BUNDLE_OPEN), *inside, control(BUNDLE_CLOSE), control(BUNDLE_COMMIT)))


def group_mod(command, number, port=None):
    """Adds or deletes a group, which outputs to a port if it is added."""
    bucket = b"" if port is None else struct.pack("!HHII4x", 32, 0, ANY, ANY) + output(port)
    return message(GROUP_MOD, struct.pack("!HBxI", command, 0, number) + bucket)


def flow_stats_request():
    body = struct.pack("!HHI", 1, 0, 0) + struct.pack("!B3xII4xQQ", 0xFF, ANY, ANY, 0, 0) + match()
    return message(MULTIPART_REQUEST, body)


def port_stats_request():
    return message(MULTIPART_REQUEST, struct.pack("!HHI", 4, 0, 0) + struct.pack("!I4x", ANY))


def table_stats_request():
    return message(MULTIPART_REQUEST, struct.pack("!HHI", 3, 0, 0))


def packet_out(data, port):
    actions = output(port)
    return message(PACKET_OUT, struct.pack("!IIH6x", ANY, 0xFFFFFFFD, len(actions)) + actions + data)


def garbage(n, seed=1):
    """Messages with a correct length and random contents."""
    chance = random.Random(seed)
    kinds = [kind for kind in range(36) if kind not in (0, 2, 3)]
    return b"".join(message(chance.choice(kinds), chance.randbytes(8 * chance.randrange(1, 20))) for _ in range(n))
