"""The results of a benchmark, as tables for people or as JSON for programs."""

import dataclasses
import json


@dataclasses.dataclass
class Table:
    """Rows of cells; `None` is a figure that does not exist."""

    title: str
    header: list
    rows: list

    def text(self):
        cells = [[str(word) for word in self.header], *([cell(value) for value in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.header))]
        # Figures are right-aligned, words left-aligned; the first row with a value decides for its column.
        kinds = [next((row[i] for row in self.rows if row[i] is not None), "") for i in range(len(self.header))]
        lines = []
        for row in cells:
            line = (
                text.ljust(width) if isinstance(kind, str) else text.rjust(width)
                for text, width, kind in zip(row, widths, kinds)
            )
            lines.append("  ".join(line).rstrip())
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([f"{self.title}:", *(f"  {line}" for line in lines)])


@dataclasses.dataclass
class Report:
    """The tables, their remarks, and the underlying figures."""

    tables: list
    figures: dict
    notes: list = dataclasses.field(default_factory=list)

    def text(self):
        return "\n\n".join([table.text() for table in self.tables] + ["\n".join(self.notes)] * bool(self.notes))

    def json(self, name):
        return json.dumps({"benchmark": name, **self.figures})


def cell(value):
    """A value in the form of a table cell: with thousands separators and significant digits only."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def ratio(a, b):
    """a / b to three digits, `None` if one of them is missing or b is 0."""
    return float(f"{a / b:.3g}") if a is not None and b else None


def middle(values):
    """The median; `None` if any value is missing."""
    values = list(values)
    if not values or any(value is None for value in values):
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
