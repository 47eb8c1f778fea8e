"""Tables of a report in a document: below a line `<!-- table: TITLE -->` the table of this title replaces the one that is
there, or becomes the first one.
"""

import pathlib
import re

import report

MARK = re.compile(r"^<!-- table: (.+) -->$")


def fill(path, found, words=""):
    """Replaces the tables of `found`, a report, in a document, and a line in parentheses behind each by `words`, which
    say when and where it was measured; returns the titles of those replaced."""
    path = pathlib.Path(path)
    tables = {table.title: table for table in found.tables}
    lines, done = filled(path.read_text(encoding="utf-8").splitlines(), tables, words)
    if done:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return done


def filled(lines, tables, words):
    """The lines with these tables, and the titles of the tables that had a mark."""
    out, done, at = [], [], 0
    while at < len(lines):
        out.append(lines[at])
        mark = MARK.match(lines[at])
        at += 1
        if mark is None or mark[1] not in tables:
            continue
        # What an earlier run has written.
        rest = at
        for kind in ("|", "("):
            start = rest
            while start < len(lines) and not lines[start]:
                start += 1
            end = start
            while end < len(lines) and lines[end].startswith(kind):
                end += 1
            if end > start:
                rest = end
        at = rest
        done.append(mark[1])
        out += ["", *markdown(tables[mark[1]]), *(["", words] if words else [])]
    return out, done


def markdown(table):
    """The lines of a table."""
    rows = [table.header, ["---"] * len(table.header), *([cell(value) for value in row] for row in table.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines[1] = "|" + "---|" * len(table.header)
    return lines


def cell(value):
    return "" if value is None else report.cell(value)
