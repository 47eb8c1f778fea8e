//! Tables in each output format, compared with the output of the `ovs-*` programs.

use super::*;

/// A set of strings, which suffices to distinguish the cell formats.
struct Set(Vec<&'static str>);

impl CellValue for Set {
    fn to_text(&self) -> String {
        format!("[{}]", self.0.join(", "))
    }
    fn to_bare(&self) -> String {
        self.0.join(" ")
    }
    fn to_json(&self) -> Value {
        json!(["set", self.0])
    }
}

const UUID: &str = "651dd484-1c43-4bf9-866b-84becdd3c83b";

fn sample() -> Table {
    let mut table = Table::new(["name", "ports"]);
    table.push(vec!["b1".into(), Cell::value(Set(vec![]))]);
    table.push(vec!["br<0>".into(), Cell::value(Set(vec![UUID, "a\"b"]))]);
    table
}

fn rendered(options: &[(&str, &str)]) -> String {
    let mut style = Style::default();
    for (id, value) in options {
        assert_eq!(style.accept(id, Some(value)), Ok(true));
    }
    sample().render(&style)
}

#[test]
fn aligned_columns() {
    let dashes = "-".repeat(UUID.len() + 7);
    assert_eq!(rendered(&[]), format!("name  ports\n----- {dashes}\nb1    []\nbr<0> [{UUID}, a\"b]\n"));
    assert_eq!(
        rendered(&[("max-column-width", "4"), ("data", "bare")]),
        "name ports\n---- -----\nb1\nbr<0 651dd\n".to_owned()
    );
    assert_eq!(rendered(&[("max-column-width", "4"), ("no-headings", "")]), "b1   []\nbr<0 [651\n".to_owned());
}

#[test]
fn lists() {
    assert_eq!(
        rendered(&[("format", "list")]),
        format!(
            "name                : b1\nports               : []\n\nname                : br<0>\nports               : [{UUID}, a\"b]\n"
        )
    );
    assert_eq!(rendered(&[("bare", "")]), format!("b1\n\n\nbr<0>\n{UUID} a\"b\n"));
}

#[test]
fn comma_separated_values() {
    assert_eq!(rendered(&[("format", "csv")]), format!("name,ports\nb1,[]\nbr<0>,\"[{UUID}, a\"\"b]\"\n"));
}

#[test]
fn html_links_uuids() {
    let html = rendered(&[("format", "html")]);
    assert!(html.starts_with("<table border=1>\n  <tr>\n    <th>name</th>\n"), "{html}");
    assert!(html.contains(&format!("<td>[<a href=\"#{UUID}\">651dd484</a>, a&quot;b]</td>")), "{html}");
    assert!(html.contains("<td>br&lt;0&gt;</td>"), "{html}");
}

#[test]
fn json_tables_have_json_values() {
    assert_eq!(
        rendered(&[("format", "json"), ("data", "bare")]),
        format!(
            "{{\"data\":[[\"b1\",[\"set\",[]]],[\"br<0>\",[\"set\",[\"{UUID}\",\"a\\\"b\"]]]],\"headings\":[\"name\",\"ports\"]}}\n"
        )
    );
}

#[test]
fn captions_and_blank_lines_between_tables() {
    let mut printer = Printer::default();
    let table = Table::new(["a"]).caption("T table").timestamp("2026-11-21 01:41:29.217");
    let style = Style::default();
    assert_eq!(printer.render(&table, &style), "2026-11-21 01:41:29.217\nT table\na\n-\n");
    assert_eq!(printer.render(&table, &style), "\n2026-11-21 01:41:29.217\nT table\na\n-\n");
}

#[test]
fn bad_options_name_the_argument() {
    let mut style = Style::default();
    assert_eq!(style.accept("format", Some("x")).unwrap_err().to_string(), "unknown output format \"x\"");
    assert_eq!(style.accept("data", Some("x")).unwrap_err().to_string(), "unknown data format \"x\"");
    for (text, width) in [("-3", 0), ("x", 0), ("7x", 7)] {
        assert_eq!(style.accept("max-column-width", Some(text)), Ok(true));
        assert_eq!(style.column_width_max, width, "{text}");
    }
    assert_eq!(style.accept("other", None), Ok(false));
}

#[test]
fn truncation_keeps_characters_whole() {
    assert_eq!(truncated("aé".to_owned(), 2), "a");
}

#[test]
fn uuid_lookalikes_near_multibyte_text() {
    assert_eq!(html_linked("é651dd484-1c43"), "é651dd484-1c43");
}
