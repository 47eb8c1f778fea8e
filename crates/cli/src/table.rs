//! The tables that `ovsdb-client` and `ovs-vsctl` print: `--format`, `--data`, `--no-headings`, `--pretty`, `--bare`,
//! `--max-column-width`.
//!
//! A cell is a text or a [`CellValue`], which its owner (a database datum) renders in each of the cell formats. How a
//! cell reads depends on `--data`, how the table reads on `--format`; in the JSON table format a value is always JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::options::{Arg, Opt};

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Aligned columns.
    #[default]
    Table,
    /// One `column : value` line a cell, a blank line between rows.
    List,
    /// An HTML table.
    Html,
    /// RFC 4180.
    Csv,
    /// One JSON object a table.
    Json,
}

/// `--data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CellFormat {
    /// The syntax of `ovs-vsctl` values.
    #[default]
    String,
    /// The same without brackets and quotes.
    Bare,
    /// JSON.
    Json,
}

/// A value that is not plain text, rendered by the crate that owns it.
pub trait CellValue {
    /// The value in the syntax of `ovs-vsctl` ([`CellFormat::String`]).
    fn to_text(&self) -> String;
    /// The value without brackets and quotes ([`CellFormat::Bare`]).
    fn to_bare(&self) -> String;
    /// The value as JSON.
    fn to_json(&self) -> Value;
}

/// One cell.
pub enum Cell {
    /// Text, the same in every cell format.
    Text(String),
    /// A value.
    Value(Box<dyn CellValue>),
}

impl Cell {
    /// A cell of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A cell of a value.
    pub fn value(value: impl CellValue + 'static) -> Self {
        Self::Value(Box::new(value))
    }

    fn render(&self, format: CellFormat) -> String {
        match (self, format) {
            (Self::Text(text), _) => text.clone(),
            (Self::Value(value), CellFormat::String) => value.to_text(),
            (Self::Value(value), CellFormat::Bare) => value.to_bare(),
            (Self::Value(value), CellFormat::Json) => crate::json::compact(&value.to_json()),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone()),
            Self::Value(value) => value.to_json(),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render(CellFormat::String))
    }
}

/// The options of a [`Style`], without `--timestamp`, which only one program has.
pub const STYLE_OPTIONS: &[Opt] = &[
    Opt::new("format", Arg::Required).short('f'),
    Opt::new("data", Arg::Required).short('d'),
    Opt::new("no-headings", Arg::None),
    Opt::new("pretty", Arg::None),
    Opt::new("bare", Arg::None),
    Opt::new("max-column-width", Arg::Required),
];

/// A style option with a bad argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StyleError {
    /// Not one of the table formats.
    #[error("unknown output format \"{0}\"")]
    Format(String),
    /// Not one of the cell formats.
    #[error("unknown data format \"{0}\"")]
    Data(String),
}

/// How tables are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// `--format`.
    pub format: Format,
    /// `--data`.
    pub cell_format: CellFormat,
    /// Whether the row of headings is printed (not `--no-headings`).
    pub headings: bool,
    /// `--pretty`: JSON tables are indented.
    pub pretty: bool,
    /// `--max-column-width`, 0 if columns are as wide as they need; only for [`Format::Table`].
    pub column_width_max: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            format: Format::default(),
            cell_format: CellFormat::default(),
            headings: true,
            pretty: false,
            column_width_max: 0,
        }
    }
}

impl Style {
    /// Sets an option of [`STYLE_OPTIONS`]; `false` if `id` is none of them.
    pub fn accept(&mut self, id: &str, value: Option<&str>) -> Result<bool, StyleError> {
        let value = value.unwrap_or_default();
        match id {
            "format" => {
                self.format = match value {
                    "table" => Format::Table,
                    "list" => Format::List,
                    "html" => Format::Html,
                    "csv" => Format::Csv,
                    "json" => Format::Json,
                    _ => return Err(StyleError::Format(value.to_owned())),
                }
            }
            "data" => {
                self.cell_format = match value {
                    "string" => CellFormat::String,
                    "bare" => CellFormat::Bare,
                    "json" => CellFormat::Json,
                    _ => return Err(StyleError::Data(value.to_owned())),
                }
            }
            "no-headings" => self.headings = false,
            "pretty" => self.pretty = true,
            "bare" => {
                self.format = Format::List;
                self.cell_format = CellFormat::Bare;
                self.headings = false;
            }
            "max-column-width" => {
                // As `atoi` reads it; a width that is none leaves columns as wide as they need.
                self.column_width_max = usize::try_from(crate::leading_integer(value, 10) as i32).unwrap_or(0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A table: an optional caption, headings, and rows with a cell for each heading.
#[derive(Debug, Default)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<Cell>>,
    caption: Option<String>,
    timestamp: Option<String>,
}

/// Prints tables, separated by blank lines.
#[derive(Debug, Default)]
pub struct Printer {
    printed: bool,
}

impl Printer {
    /// The text of the next table.
    pub fn render(&mut self, table: &Table, style: &Style) -> String {
        let mut out = String::new();
        if std::mem::replace(&mut self.printed, true) && style.format != Format::Json {
            out.push('\n');
        }
        out.push_str(&table.render(style));
        out
    }
}

impl Table {
    /// A table with these headings and no rows.
    pub fn new<T: Into<String>>(headings: impl IntoIterator<Item = T>) -> Self {
        Self { headings: headings.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The same under a caption.
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = Some(caption.into());
        self
    }

    /// The same with the time `YYYY-MM-DD HH:MM:SS.mmm` above it.
    pub fn timestamp(mut self, timestamp: impl Into<String>) -> Self {
        self.timestamp = Some(timestamp.into());
        self
    }

    /// Adds a row; it is filled with empty cells, or cut, to the number of headings.
    pub fn push(&mut self, mut row: Vec<Cell>) {
        row.resize_with(self.headings.len(), || Cell::Text(String::new()));
        self.rows.push(row);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The whole text, with its last newline.
    pub fn render(&self, style: &Style) -> String {
        let mut out = String::new();
        match style.format {
            Format::Table => self.render_table(style, &mut out),
            Format::List => self.render_list(style, &mut out),
            Format::Html => self.render_html(style, &mut out),
            Format::Csv => self.render_csv(style, &mut out),
            Format::Json => self.render_json(style, &mut out),
        }
        out
    }

    fn render_above(&self, out: &mut String) {
        for line in [&self.timestamp, &self.caption].into_iter().flatten() {
            out.push_str(line);
            out.push('\n');
        }
    }

    fn render_table(&self, style: &Style, out: &mut String) {
        self.render_above(out);
        let mut widths = vec![0; self.headings.len()];
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let cells = row.iter().zip(&self.headings);
                cells
                    .map(|(cell, heading)| {
                        // A column is never narrower than its printed heading.
                        let least = if style.headings && style.column_width_max > 0 { heading.len() } else { 0 };
                        truncated(cell.render(style.cell_format), style.column_width_max.max(least))
                    })
                    .collect()
            })
            .collect();
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.len().max(*width);
            }
        }
        if style.headings {
            for (width, heading) in widths.iter_mut().zip(&self.headings) {
                *width = heading.len().max(*width);
            }
            line(self.headings.iter().map(String::as_str), &widths, out);
            let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            line(dashes.iter().map(String::as_str), &widths, out);
        }
        for row in &rows {
            line(row.iter().map(String::as_str), &widths, out);
        }
    }

    fn render_list(&self, style: &Style, out: &mut String) {
        self.render_above(out);
        for (i, row) in self.rows.iter().enumerate() {
            if i > 0 {
                out.push('\n');
            }
            for (heading, cell) in self.headings.iter().zip(row) {
                if style.headings {
                    let _ = write!(out, "{heading:<20}: ");
                }
                out.push_str(&cell.render(style.cell_format));
                out.push('\n');
            }
        }
    }

    fn render_html(&self, style: &Style, out: &mut String) {
        if let Some(timestamp) = &self.timestamp {
            out.push_str(&html_escaped(timestamp));
            out.push('\n');
        }
        out.push_str("<table border=1>\n");
        if let Some(caption) = &self.caption {
            let _ = writeln!(out, "    <caption>{}</caption>", html_escaped(caption));
        }
        if style.headings {
            out.push_str("  <tr>\n");
            for heading in &self.headings {
                let _ = writeln!(out, "    <th>{}</th>", html_escaped(heading));
            }
            out.push_str("  </tr>\n");
        }
        for row in &self.rows {
            out.push_str("  <tr>\n");
            for cell in row {
                let _ = writeln!(out, "    <td>{}</td>", html_linked(&cell.render(style.cell_format)));
            }
            out.push_str("  </tr>\n");
        }
        out.push_str("</table>\n");
    }

    fn render_csv(&self, style: &Style, out: &mut String) {
        self.render_above(out);
        let mut record = |cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| csv_quoted(cell)).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        };
        if style.headings {
            record(self.headings.clone());
        }
        for row in &self.rows {
            record(row.iter().map(|cell| cell.render(style.cell_format)).collect());
        }
    }

    fn render_json(&self, style: &Style, out: &mut String) {
        let data: Vec<Value> = self.rows.iter().map(|row| row.iter().map(Cell::json).collect()).collect();
        let mut table = json!({"headings": self.headings, "data": data});
        for (member, text) in [("caption", &self.caption), ("time", &self.timestamp)] {
            if let Some(text) = text {
                table[member] = json!(text);
            }
        }
        out.push_str(&if style.pretty { crate::json::pretty(&table) } else { crate::json::compact(&table) });
        out.push('\n');
    }
}

/// Writes one line of aligned columns. The last cell is not padded: no line ends in a space.
fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize], out: &mut String) {
    let start = out.len();
    for (i, (cell, width)) in cells.zip(widths).enumerate() {
        if i > 0 {
            out.push(' ');
        }
        out.push_str(cell);
        out.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.len())));
    }
    out.truncate(start + out[start..].trim_end_matches(' ').len());
    out.push('\n');
}

/// `text` in at most `width_max` bytes (0: any), cut between two characters.
fn truncated(mut text: String, width_max: usize) -> String {
    if width_max > 0 && text.len() > width_max {
        let mut end = width_max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

fn csv_quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

fn html_escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Escaped text in which every UUID links to itself, shown by its first eight digits.
fn html_linked(text: &str) -> String {
    let mut out = String::new();
    let mut plain = 0;
    let mut at = 0;
    while at < text.len() {
        let Some(uuid) = text.get(at..at + UUID_LEN).filter(|candidate| is_uuid(candidate)) else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        out.push_str(&html_escaped(&text[plain..at]));
        let _ = write!(out, "<a href=\"#{uuid}\">{}</a>", &uuid[..8]);
        at += UUID_LEN;
        plain = at;
    }
    out.push_str(&html_escaped(&text[plain..]));
    out
}

const UUID_LEN: usize = 36;

fn is_uuid(text: &str) -> bool {
    text.len() == UUID_LEN
        && text.bytes().enumerate().all(|(i, byte)| match i {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests;
