"""Scenarios made from what the manual pages list: fields, actions, commands with their arguments, columns of the database.

`all_of_them` yields (section, name, command lines)."""

import json
import random
import re

import vocabulary as words


def all_of_them(schemas):
    yield from fields()
    yield from actions()
    yield from columns(schemas)
    yield from command_lines()
    yield from shorthands()
    yield from random_flows()


def parse(text, *options):
    return f"ovs-ofctl {' '.join([*options, ''])}parse-flow '{text}'"


def fields():
    """Each field: in text of each version of OpenFlow, masked, out of range, as action, and in bytes."""
    for section, prerequisite, entries in words.FIELDS:
        for entry in entries:
            name, values, wrong = entry
            before = f"{prerequisite}," if prerequisite else ""
            lines = []
            for value in values:
                lines += [parse(f"{before}{name}={value},actions=drop", "-O", v) for v in ("OpenFlow10", "OpenFlow13", "OpenFlow15")]
            lines += [parse(f"{before}{name}={value},actions=drop") for value in wrong]
            lines += [parse(f"{name}={values[0]},actions=drop"), parse(f"{before}{name},actions=drop"), parse(f"{before}{name}=,actions=drop")]
            yield f"ovs-fields(7): {section}", f"{before}{name} in a match", lines
            yield (
                f"ovs-fields(7): {section}",
                f"{before}{name} in actions",
                [
                    parse(f"{before}actions=set_field:{values[0]}->{name}", "-O", "OpenFlow13"),
                    parse(f"{before}actions=set_field:{values[-1]}->{name}", "-O", "OpenFlow15"),
                    parse(f"{before}actions=load:1->{name}[]"),
                    parse(f"{before}actions=load:1->{name}[0]"),
                    parse(f"{before}actions=load:1->{name}[200]"),
                    parse(f"{before}actions=move:{name}[]->{name}[]"),
                    parse(f"{before}actions=move:{name}[]->reg0[]"),
                    parse(f"{before}actions=push:{name}[],pop:{name}[]"),
                    parse(f"{before}actions=output:{name}[]"),
                    parse(f"{before}actions=learn({name}[],load:{name}[0]->reg0[0])"),
                ],
            )


def shorthands():
    """Names of protocols, in each version of OpenFlow, alone and with another; and matches in bytes of each version."""
    for version, section in words.VERSIONS:
        for name in words.SHORTHANDS:
            lines = [parse(f"{name},actions=drop", "-O", version)]
            lines += [parse(f"{name},{more},actions=drop", "-O", version) for more in words.WITH_SHORTHANDS]
            yield f"ovs-fields(7): {section}", f"{name} in {version}", lines
    for section, matches in words.LAYERS.items():
        for number, match in enumerate(matches):
            lines = [parse(f"{match},actions=drop", "-O", version) for version, _ in words.VERSIONS]
            yield f"ovs-fields(7): {section}", f"{number + 1}: {match}", lines


def actions():
    """Each action: right and wrong text, in several versions."""
    for section, texts in words.ACTIONS:
        for number, text in enumerate(texts):
            before = "" if not isinstance(text, tuple) else text[0] + ","
            text = text if not isinstance(text, tuple) else text[1]
            lines = [parse(f"{before}actions={text}", "-O", v) for v in ("OpenFlow10", "OpenFlow11", "OpenFlow13", "OpenFlow15")]
            lines.append(parse(f"{before}actions={text},drop"))
            lines.append(parse(f"{before}actions={text},output:1", "-m"))
            yield f"ovs-actions(7): {section}", f"{number + 1}: {before}{text}", lines


def columns(schemas):
    """Each column of the switch's database: what is read before and after each change."""
    tables = json.loads((schemas / "vswitch.ovsschema").read_text())["tables"]
    for table, description in sorted(tables.items()):
        begin = f"server && ovs-vsctl --no-wait init -- {words.RECORDS[table]} >/dev/null"
        record = f"{table} {words.RECORD_OF.get(table, 'r')}"
        if table not in ("Open_vSwitch", "Bridge", "Port", "Interface", "Mirror"):
            record = f"{table} $(ovs-vsctl --bare --columns=_uuid list {table})"
        for name, column in sorted(description["columns"].items()):
            lines = [begin, f"ovs-vsctl --no-wait get {record} {name}"]
            values = values_of(column["type"])
            for value in values:
                lines += [f"ovs-vsctl --no-wait set {record} '{name}={value}'", f"ovs-vsctl --no-wait get {record} {name}"]
            value = values[0]
            lines += [
                f"ovs-vsctl --no-wait add {record} {name} '{value}'",
                f"ovs-vsctl --no-wait add {record} {name} '{values[1]}'",
                f"ovs-vsctl --no-wait get {record} {name}",
                f"ovs-vsctl --no-wait remove {record} {name} '{value}'",
                f"ovs-vsctl --no-wait --bare --columns={name} find {table} '{name}={value}'",
                f"ovs-vsctl --no-wait --columns={name} list {table}",
                f"ovs-vsctl --no-wait clear {record} {name}",
                f"ovs-vsctl --no-wait get {record} {name} {name}:x",
            ]
            yield f"ovs-vswitchd.conf.db(5): {table}", f"the column {name}", lines


def values_of(kind):
    """Values of a type of a column (RFC 7047 section 3.2), right and wrong ones."""
    kind = kind if isinstance(kind, dict) else {"key": kind}

    def of_base(base):
        base = base if isinstance(base, dict) else {"type": base}
        if "enum" in base:
            return [*base["enum"][1][:2], "nonsense"]
        low, high = base.get("minInteger", 0), base.get("maxInteger", 7)
        return {
            "integer": [str(low), str(high), str(high + 1), str(low - 1), "x", "1.5"],
            "real": ["0", "1.5", "x"],
            "boolean": ["true", "false", "yes", "x"],
            "string": ["a", "b", '"a b"', "a=b", '""', "[a"],
            "uuid": ["00000000-0000-4000-8000-000000000001", "x", "@x"],
        }[base["type"]]

    keys = of_base(kind["key"])
    if "value" in kind:
        value = of_base(kind["value"])
        keys = [f"{key}={value[0]}" for key in keys] + [f"{keys[0]}={v}" for v in value[1:]]
    return [*keys, f"[{keys[0]},{keys[1]}]", "[]", "{}", "{%s}" % keys[0]]


def command_lines():
    """Each command: with every argument missing, one too many, and each of a wrong kind."""
    for section, program, start, commands in words.COMMANDS:
        for command in commands:
            name, *arguments = map(quoted, command.split(" "))
            lines = list(start)
            for n in range(len(arguments)):
                lines.append(" ".join([program, name, *arguments[:n]]))
            for n in range(len(arguments)):
                for wrong in ("''", "nonsense", "-1", "99999999999"):
                    lines.append(" ".join([program, name, *arguments[:n], wrong, *arguments[n + 1 :]]))
            lines.append(" ".join([program, name, *arguments]))
            lines.append(" ".join([program, name, *arguments, "extra"]))
            lines.append(" ".join([program, "--nonsense", name, *arguments]))
            yield section, command, lines


def quoted(word):
    """A word for the shell, quoted if it has characters that the shell interprets."""
    return f"'{word}'" if re.search(r"""[][(){}<>!*?&;|"]""", word) and "'" not in word else word


def random_flows():
    """Flows and packets by chance, the same each time: what the switch says of them afterwards."""
    for number in range(200):
        chance = random.Random(number)
        flows = [random_flow(chance) for _ in range(chance.randint(1, 8))]
        lines = ["switch && bridge"]
        lines += [f"ovs-ofctl -O OpenFlow13 add-flow br0 '{flow}'" for flow in flows]
        for _ in range(4):
            lines.append(f"ovs-appctl netdev-dummy/receive p{chance.randint(1, 3)} '{random_packet(chance)}'")
        lines += [
            # The peer counts packets that the datapath forwarded when it has read its cached flows.
            "ovs-appctl revalidator/wait",
            "ovs-ofctl -O OpenFlow13 dump-flows --sort br0",
            "ovs-ofctl -O OpenFlow13 dump-ports br0",
            "ovs-ofctl dump-tables br0 | head -3",
        ]
        yield "ovs-ofctl(8): OpenFlow Switch Flow Table Commands", f"flows and packets {number}", lines


def random_flow(chance):
    table = chance.choice([0, 0, 1])
    match = chance.choice(words.MATCHES)
    actions = ",".join(chance.sample(words.SIMPLE_ACTIONS, chance.randint(1, 3)))
    return f"table={table},priority={chance.randint(1, 9)},{match}actions={actions}"


def random_packet(chance):
    return chance.choice(words.PACKETS)
