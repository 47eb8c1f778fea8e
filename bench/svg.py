"""Tables as pictures: a panel for each column of figures, with a bar for each row. Columns of the same quantity for
several switches ("Open vSwitch, Mpps" and "Flowstone, Mpps") share a panel and its scale. Plain SVG that follows
the reader's choice of light or dark.

Figures of a panel that differ by more than a factor of a hundred have a logarithmic scale, and the panel says so.
"""

import math
import pathlib
from xml.sax.saxutils import escape

from report import cell

BAR, GAP, PANEL_HEAD, PANEL_GAP = 18, 6, 26, 18
TITLE, MARGIN = 30, 16
BARS_WIDTH, FIGURE_WIDTH = 420, 110
# The average width of a letter.
LETTER = 7
LABEL_MAX = 60
SPREAD_FOR_LOG = 100
# The shortest bar of a logarithmic scale, relative to the longest.
LOG_FLOOR = 0.04
# The switches that column headers begin with, in lower case.
SWITCHES = ("open vswitch", "ovs-dpdk", "flowstone")

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
    """Writes a file for each table with figures, NAME.svg or NAME-N.svg; returns their paths."""
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
    panels = panels_of(table)
    if not panels:
        return None
    left = MARGIN + LETTER * max(len(label) for _, bars in panels for label, _ in bars) + 10
    width = left + BARS_WIDTH + FIGURE_WIDTH + MARGIN
    parts, y = [], MARGIN + TITLE
    for name, bars in panels:
        parts.append(panel(name, bars, left, y))
        y += PANEL_HEAD + len(bars) * (BAR + GAP) + PANEL_GAP
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


def panels_of(table):
    """The panels by name, each a list of labels with values (None for a missing value)."""
    columns = [i for i in range(len(table.header)) if any(is_figure(row[i]) for row in table.rows)]
    first = columns[0] if columns else 0
    # A row's label is the text before its first figure, or its first figure, as in a table by numbers of rules.
    called = list(range(first)) or columns[:1]
    columns = [i for i in columns if i not in called]
    panels = {}
    for i in columns:
        switch, what = of_switch(str(table.header[i]))
        panels.setdefault((what or table.title) if switch else str(table.header[i]), []).append((switch, i))
    found = []
    for name, members in panels.items():
        bars = []
        for row in table.rows:
            label = ", ".join(cell(row[i]) for i in called)[:LABEL_MAX]
            for switch, i in members:
                value = row[i] if is_figure(row[i]) else None
                bars.append((f"{label}: {switch}" if switch else label, value))
        found.append((name, bars))
    return found


def of_switch(header):
    """The switch of a column, and the rest of its header; ("", header) for other columns."""
    switch, _, what = header.partition(", ")
    return (switch, what) if switch.lower() in SWITCHES else ("", header)


def panel(name, bars, left, y):
    """The bars of one panel."""
    lengths, logarithmic = scale([value for _, value in bars])
    note = '<tspan class="weak" dx="6">logarithmic</tspan>' if logarithmic else ""
    lines = [f'<text class="panel" x="{left}" y="{y + 14}">{escape(name)}{note}</text>']
    y += PANEL_HEAD
    for (label, value), length in zip(bars, lengths):
        text_y = y + BAR - 5
        lines.append(f'<text x="{left - 10}" y="{text_y}" text-anchor="end">{escape(label)}</text>')
        lines.append(f'<rect class="track" x="{left}" y="{y}" width="{BARS_WIDTH}" height="{BAR}" rx="2"/>')
        if value is not None:
            ours = "flowstone" in f"{label} {name}".lower()
            bar = f'x="{left}" y="{y}" width="{length * BARS_WIDTH:.1f}" height="{BAR}" rx="2"'
            lines.append(f'<rect class="bar{int(ours)}" {bar}/>')
        weak = ' class="weak"' if value is None else ""
        lines.append(f'<text{weak} x="{left + BARS_WIDTH + 8}" y="{text_y}">{cell(value)}</text>')
        y += BAR + GAP
    return "\n".join(lines)


def scale(values):
    """The length of each bar relative to the longest, and whether the scale is logarithmic."""
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
