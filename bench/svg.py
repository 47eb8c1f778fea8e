"""Tables as pictures: a panel for each column of figures, in it a bar for each row. Plain SVG that follows the reader's
choice of light or dark.

Figures of a column that differ by more than a hundred times stand on a logarithmic scale, and the panel says so.
"""

import math
import pathlib
from xml.sax.saxutils import escape

from report import cell

BAR, GAP, PANEL_HEAD, PANEL_GAP = 18, 6, 26, 18
TITLE, MARGIN = 30, 16
BARS_WIDTH, FIGURE_WIDTH = 420, 110
# What a letter takes, on average.
LETTER = 7
LABEL_MAX = 60
SPREAD_FOR_LOG = 100
# The shortest bar of a logarithmic scale, as a part of the longest.
LOG_FLOOR = 0.04

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .panel { font-weight: 600; }
  .weak { fill: #59636e; }
  .ground { fill: #ffffff; }
  .track { fill: #eff2f5; }
  .bar0 { fill: #8c959f; } .bar1 { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .weak { fill: #9198a1; } .ground { fill: #0d1117; } .track { fill: #1b222b; }
    .bar0 { fill: #6e7681; } .bar1 { fill: #4493f8; }
  }
"""


def write(report, name, directory):
    """A file for each table that has figures, NAME.svg or NAME-N.svg; their paths."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, table in enumerate(report.tables, 1):
        text = chart(table)
        if text:
            path = directory / (f"{name}.svg" if len(report.tables) == 1 else f"{name}-{number}.svg")
            path.write_text(text, encoding="utf-8")
            paths.append(path)
    return paths


def chart(table):
    """A table as SVG; None if there is no figure in it."""
    columns = [i for i in range(len(table.header)) if any(is_figure(row[i]) for row in table.rows)]
    labels_of = [i for i in range(len(table.header)) if any(isinstance(row[i], str) for row in table.rows) and i not in columns]
    if not labels_of and len(columns) > 1:
        labels_of = [columns.pop(0)]  # as in a table by numbers of rules
    if not columns:
        return None
    labels = [", ".join(cell(row[i]) for i in labels_of)[:LABEL_MAX] for row in table.rows]
    left = MARGIN + LETTER * max(map(len, labels)) + 10
    width = left + BARS_WIDTH + FIGURE_WIDTH + MARGIN
    parts, y = [], MARGIN + TITLE
    for column in columns:
        parts.append(panel(table, column, labels, left, y))
        y += PANEL_HEAD + len(labels) * (BAR + GAP) + PANEL_GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" role="img">'
    title = escape(table.title)
    return "\n".join(
        [
            head,
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="ground" width="{width}" height="{y}"/>',
            f'<text class="title" x="{MARGIN}" y="{MARGIN + 12}">{title}</text>',
            *parts,
            "</svg>\n",
        ]
    )


def panel(table, column, labels, left, y):
    """The bars of one column."""
    values = [row[column] if is_figure(row[column]) else None for row in table.rows]
    lengths, logarithmic = scale(values)
    note = '<tspan class="weak"> (logarithmic)</tspan>' if logarithmic else ""
    lines = [f'<text class="panel" x="{left}" y="{y + 14}">{escape(str(table.header[column]))}{note}</text>']
    y += PANEL_HEAD
    for label, value, length in zip(labels, values, lengths):
        text_y = y + BAR - 5
        lines.append(f'<text x="{left - 10}" y="{text_y}" text-anchor="end">{escape(label)}</text>')
        lines.append(f'<rect class="track" x="{left}" y="{y}" width="{BARS_WIDTH}" height="{BAR}" rx="2"/>')
        if value is not None:
            ours = "flowstone" in f"{label} {table.header[column]}".lower()
            lines.append(
                f'<rect class="bar{int(ours)}" x="{left}" y="{y}" width="{length * BARS_WIDTH:.1f}" height="{BAR}" rx="2"/>'
            )
        weak = ' class="weak"' if value is None else ""
        lines.append(f'<text{weak} x="{left + BARS_WIDTH + 8}" y="{text_y}">{cell(value)}</text>')
        y += BAR + GAP
    return "\n".join(lines)


def scale(values):
    """The part of the longest bar's length that each value gets, and whether by its logarithm."""
    positive = [value for value in values if value is not None and value > 0]
    if not positive:
        return [0.0] * len(values), False
    least, most = min(positive), max(positive)
    if most / least <= SPREAD_FOR_LOG:
        return [max(0.0, value or 0) / most for value in values], False
    of_log = lambda value: LOG_FLOOR + (1 - LOG_FLOOR) * math.log(value / least) / math.log(most / least)
    return [of_log(value) if value and value > 0 else 0.0 for value in values], True


def is_figure(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
