"""Scenarios of bad input: each command and each option with arguments that are missing, doubled, of a wrong kind, too long or
unknown. Only exit statuses and first lines of errors count, and that the same remains in the end.

`all_of_them` yields (section, name, command lines, command lines that show the state in the end)."""

import command_lines as known
import vocabulary as words
from generated import quoted

# Command lines in one scenario. A switch starts for each.
LINES = 60
WRONG = ("''", "nonsense", "-1", "99999999999")
LONG = ("$L300", "$D30")
# In the environment of command lines: words of 300 and 5000 characters, a number of 30 digits.
LONG_WORDS = {"L300": "n" * 300, "L5000": "n" * 5000, "D30": "1234567890" * 3}


def all_of_them():
    groups = {}
    for page, start, lines in known.LINES:
        groups.setdefault((f"bad input: {page}", start), []).extend(lines)
    for section, program, start, commands in words.COMMANDS:
        group = groups.setdefault((of_page(section), tuple(start)), [])
        for command in commands:
            # The comparison of command_lines has arguments that are missing, of a wrong kind, and one too many.
            group += [*doubled(program, command), *replaced(program, command, LONG)]
    for page, program, start, commands in known.COMMANDS:
        # Commands that go on if their arguments are right take long.
        others = WRONG[1:2] + LONG[:1] if program.startswith("timeout") else WRONG + LONG
        group = groups.setdefault((f"bad input: {page}", start), [])
        for command in commands:
            group += [*missing(program, command), *doubled(program, command), *replaced(program, command, others), f"{program} --nonsense {command}"]
    for page, program, start, templates, options in known.OPTIONS:
        group = groups.setdefault((f"bad input: {page}", start), [])
        for option in options:
            group += with_option(program, templates, option)
        for template in templates:
            group += [template.format(option) for option in ("--nonsense", "--nonsense=5", "-Z", "-", "---", "-hZ --nonsense", "''", "$L300", "--$L300", "--$L5000=5")]
    for (section, start), lines in groups.items():
        lines = list(dict.fromkeys(line for line in lines if line not in known.LEFT_OUT))
        for number, first in enumerate(range(0, len(lines), LINES)):
            state = known.STATES.get(start[0].split(" && ")[0], known.STATES.get(start[0].split(" ")[0], [])) if start else []
            yield section, f"{start[-1] if start else 'alone'}, part {number + 1}", [*start, *lines[first : first + LINES]], state


def of_page(section):
    return f"bad input: {section.split(': ')[0]}"


def split(command):
    """The options and the name of a command, and its arguments, quoted for the shell."""
    parts = [quoted(part) for part in command.split(" ")]
    name = next(n for n, part in enumerate(parts) if not part.startswith("-"))
    return parts[: name + 1], parts[name + 1 :]


def missing(program, command):
    before, arguments = split(command)
    for n in range(len(arguments)):
        yield " ".join([program, *before, *arguments[:n]])


def doubled(program, command):
    """Each argument twice, each option twice; a command without arguments twice."""
    before, arguments = split(command)
    for n in range(len(arguments)):
        yield " ".join([program, *before, *arguments[: n + 1], *arguments[n:]])
    for n in range(len(before) - 1):
        yield " ".join([program, *before[: n + 1], *before[n:], *arguments])
    if not arguments:
        yield " ".join([program, *before, *before])


def replaced(program, command, others):
    before, arguments = split(command)
    for n in range(len(arguments)):
        for other in others:
            yield " ".join([program, *before, *arguments[:n], other, *arguments[n + 1 :]])


def with_option(program, templates, option):
    """An option, `--name`, `--name=VALUE`, `--name[=VALUE]` or `-n VALUE`, in command lines with {} in its place."""
    name, equals, value = option.partition("=")
    optional = name.endswith("[")
    name, value = name.removesuffix("["), value.removesuffix("]")
    if " " in name:
        # An option of one letter.
        name, value = name.split(" ")
        yield f"{program} {name}"
        forms = [f"{name}{value} {name} {value}", f"{name}{name} {value}", *(f"{name} {wrong}" for wrong in WRONG + LONG)]
    elif optional:
        forms = [f"{name}=", f"{name}={value} {name}", f"{name}={value} {name}={value}", *(f"{name}={wrong}" for wrong in WRONG[1:] + LONG), f"{name}x", name[:-1]]
    elif equals:
        yield f"{program} {name}"
        forms = [f"{name}=", f"{name}={value} {name}={value}", *(f"{name}={wrong}" for wrong in WRONG[1:] + LONG), f"{name}=$L5000", f"{name}x={value}", f"{name[:-1]}={value}"]
    elif name.startswith("--"):
        forms = [f"{name} {name}", f"{name}=5", f"{name}x", name[:-1]]
    else:
        forms = [f"{name} {name}", f"{name}5", f"{name}Z"]
    for template in templates:
        yield from (template.format(form) for form in forms)
