"""Compares texts with cached flows whose masks of tunnels differ.

Open vSwitch matches a packet's tunnel in full: addresses, TOS, key, flags and options, whatever translation has read of them.
Flowstone matches what translation has read, so that one cached flow serves more packets. Two cached flows are equal here if they
are equal outside of `tunnel(...)`, their actions included, and each bit that ours matches of the tunnel is one that the peer's
matches with the same value. The same holds for the fields tun_* in a line `Megaflow:` of a trace.

What the peer does not show cannot be compared: what it matches of most options of Geneve (it shows `{}`), and of the headers of
ERSPAN and GTP-U (it shows a mask of 0, or nothing). A TOS of 0, and the key of a packet without one, is matched in full, but not
shown. What happens to packets that differ in a field which a cached flow does not match is left to tunnelled.py.

One bit more than the peer's may be there, the flag OAM: a packet that leaves through another tunnel keeps it, whether or not the
peer matches it.
"""

import ipaddress
import itertools
import re

FLOW = "recirc_id("
TUNNEL = re.compile(r"(?<=,)tunnel\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\),(?=in_port)")
MEGAFLOW = re.compile(r"^Megaflow: (.*)$")
# Headers whose fields the peer does not show as it matches them.
HIDDEN = ("erspan", "gtpu")
# Fields that the peer matches in full, and shows if they are not 0.
ZERO = ("tos", "tun_tos", "tun_id")
NUMBER = r"(0x[0-9a-f]+|\d+|[\d.]+|[0-9a-f.]*:[0-9a-f:.]*)"
NUMBERS = re.compile(f"{NUMBER}(/{NUMBER})?$")


def aligned(theirs, ours):
    """Two texts without the differences in masks of tunnels, and how many lines of ours had one: such a line is replaced by the
    peer's. Neighbouring cached flows, whose order depends on their masks, are sorted."""
    of_peer, of_ours = theirs.split("\n"), ours.split("\n")
    left = [line for line in of_peer if split(line)[0] is not None]
    for line in of_ours:
        if line in left:
            left.remove(line)
    count = 0
    for at, line in enumerate(of_ours):
        if line in of_peer:
            continue
        pair = next((each for each in left if wider(each, line)), None)
        if pair is not None:
            left.remove(pair)
            of_ours[at] = pair
            count += 1
    return (in_order(of_peer), in_order(of_ours), count) if count else (theirs, ours, 0)


def in_order(lines):
    found = []
    for is_flow, run in itertools.groupby(lines, lambda line: line.startswith(FLOW)):
        found += sorted(run) if is_flow else run
    return "\n".join(found)


def wider(theirs, ours):
    """Whether a line of ours shows a flow that matches no more of the tunnel than the peer's, and is equal otherwise."""
    (of_peer, rest_of_peer), (of_ours, rest_of_ours) = split(theirs), split(ours)
    if of_peer is None or of_ours is None or rest_of_peer != rest_of_ours:
        return False
    return all(covers(of_peer, name, value) for name, value in of_ours.items())


def split(line):
    """The fields of the tunnel that a line shows, by name, and the rest of the line. None if it shows no tunnel."""
    if found := TUNNEL.search(line):
        return fields(found[1]), line[: found.start(1)] + line[found.end(1) :]
    if found := MEGAFLOW.match(line):
        words = found[1].split(",")
        of_tunnel = dict(word.split("=", 1) for word in words if word.startswith("tun_"))
        return of_tunnel or None, [word for word in words if not word.startswith("tun_")]
    return None, line


def fields(text):
    """The fields between the parentheses: `name=value` and `name(contents)`."""
    found = {}
    for name, value, group in re.findall(r"(\w+)(?:=([^,()]*)|\(((?:[^()]|\([^()]*\))*)\))", text):
        found[name] = value or group
    return found


def covers(of_peer, name, ours):
    """Whether the peer's tunnel has a field with the value that ours has in the bits that ours matches."""
    theirs = of_peer.get(name)
    if name in ("flags", "tun_flags"):
        return signed(ours) - signed(theirs or "") <= {"+oam", "-oam"}
    if name in HIDDEN:
        return theirs is not None
    if name == "geneve":
        return theirs is not None and covers_options(theirs, ours)
    if name in ZERO and theirs is None:
        theirs = "0"
    return covers_value(theirs, ours)


def covers_options(theirs, ours):
    """As `covers` for the options of Geneve: one of ours may be any that the peer shows as `{}`."""
    theirs, ours = options(theirs), options(ours)
    shown = {option: value for option, value in theirs if value}
    known = [(option, value) for option, value in ours if option in shown]
    hidden = sum(not value for _, value in theirs)
    return len(ours) - len(known) <= hidden and all(covers_value(shown[option], value) for option, value in known)


def options(text):
    """The options: class, type and length, and the value."""
    found = re.findall(r"\{([^{},]*,[^{},]*,[^{},]*)?,?([^{}]*)\}", text)
    return [(option, value or "0") if option else ("", "") for option, value in found]


def covers_value(theirs, ours):
    if theirs is None or not (NUMBERS.match(theirs) and NUMBERS.match(ours)):
        return theirs == ours
    (their_value, their_mask), (value, mask) = masked(theirs), masked(ours)
    return mask & ~their_mask == 0 and (their_value ^ value) & mask == 0


def signed(text):
    """The flags that are matched, with their signs: `-oam+key`, or `df|key` if all are matched."""
    return set(re.findall(r"[-+][a-z]+", text)) or {f"+{flag}" for flag in text.split("|")} - {"+"}


def masked(text):
    """The value and the mask of `value` or `value/mask`."""
    value, _, mask = text.partition("/")
    return number(value), number(mask) if mask else ~0


def number(text):
    return int(ipaddress.ip_address(text)) if "." in text or ":" in text else int(text, 0)
