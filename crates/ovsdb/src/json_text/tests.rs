//! Mistakes in JSON texts, and what Open vSwitch says of them.

use proptest::prelude::*;

use super::*;

fn mistake(text: &[u8]) -> String {
    parse(text).map_or_else(|error| error.to_string(), |_| "none".to_owned())
}

/// Texts with what Open vSwitch 4.0.0 says of them: line, column, byte; reason.
const TEXTS: &[(&str, [usize; 3], &str)] = &[
    ("", [0, 0, 0], "empty input stream"),
    (" \n", [1, 0, 2], "empty input stream"),
    ("nojson", [0, 6, 6], "invalid keyword 'nojson'"),
    ("nul l", [0, 3, 3], "invalid keyword 'nul'"),
    ("true", [0, 4, 4], "syntax error at beginning of input"),
    ("123 ", [0, 3, 3], "syntax error at beginning of input"),
    ("\"abc\"", [0, 4, 4], "syntax error at beginning of input"),
    ("}", [0, 0, 0], "syntax error at beginning of input"),
    ("[true", [0, 6, 6], "unexpected end of input"),
    ("[true,", [0, 6, 6], "unexpected end of input"),
    ("[true,]", [0, 6, 6], "syntax error expecting value"),
    ("[]x", [0, 3, 3], "invalid keyword 'x'"),
    ("[] []", [0, 3, 3], "trailing garbage at end of input"),
    ("{\"a", [0, 3, 3], "unexpected end of input in quoted string"),
    ("{\"a\":1", [0, 7, 7], "unexpected end of input"),
    ("{\"a\":1,}", [0, 7, 7], "syntax error parsing object expecting string"),
    ("{\"a\",1}", [0, 4, 4], "syntax error parsing object expecting ':'"),
    ("{\"a\":}", [0, 5, 5], "syntax error expecting value"),
    ("{\"a\":1 2}", [0, 8, 8], "syntax error expecting '}' or ','"),
    ("[1 2]", [0, 4, 4], "syntax error expecting ']' or ','"),
    ("[\"a\"\"b\"]", [0, 6, 6], "syntax error expecting ']' or ','"),
    ("[-]", [0, 2, 2], "'-' must be followed by digit"),
    ("[01]", [0, 3, 3], "leading zeros not allowed"),
    ("[1.e5]", [0, 5, 5], "decimal point must be followed by digit"),
    ("[1e+]", [0, 4, 4], "exponent must contain at least one digit"),
    ("[1.5.5]", [0, 6, 6], "syntax error in number"),
    ("[1e400]", [0, 6, 6], "number outside valid range"),
    ("[\"\\x\"]", [0, 4, 4], "bad escape \\x"),
    ("[\"\\u12\"]", [0, 6, 6], "quoted string ends within \\u escape"),
    ("[\"\\u+123\"]", [0, 8, 8], "malformed \\u escape"),
    ("[\"\\ud800\"]", [0, 8, 8], "malformed escaped surrogate pair"),
    ("[\"\\ud800\\u0041\"]", [0, 14, 14], "second half of escaped surrogate pair is not trailing surrogate"),
    ("[\"\\u0000\"]", [0, 8, 8], "null bytes not supported in quoted strings"),
    ("[\"abc\n\"]", [0, 5, 5], "U+000A must be escaped in quoted string"),
    ("[@]", [0, 1, 1], "invalid character '@'"),
    ("[\u{7f}]", [0, 1, 1], "invalid character U+007f"),
    ("[1,\n\n  xyz\n]", [2, 5, 10], "invalid keyword 'xyz'"),
];

#[test]
fn mistakes_are_named_as_by_open_vswitch() {
    for (text, [line, column, byte], reason) in TEXTS {
        let expected = format!("line {line}, column {column}, byte {byte}: {reason}");
        assert_eq!(mistake(text.as_bytes()), expected, "{text:?}");
    }
    let deep = "[".repeat(1001);
    assert_eq!(mistake(deep.as_bytes()), "line 0, column 1000, byte 1000: input exceeds maximum nesting depth 1000");
}

#[test]
fn limits_of_our_own_are_named_with_their_position() {
    let deep = format!("[\n{}{}]", "[".repeat(500), "]".repeat(500));
    assert_eq!(mistake(deep.as_bytes()), "line 1, column 126, byte 128: recursion limit exceeded");
    assert_eq!(mistake(b"[\"a\xffb\"]"), "line 0, column 3, byte 3: invalid unicode code point");
}

/// Texts that are nearly JSON.
fn nearly_json() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "[", "]", "{", "}", ",", ":", "true", "null", "nul", "x", "1", "-", "0", ".5", "1.5e3", "e", "+", "\"a\"",
        "\"", "\\", "\\u00", "\\ud83d", "\\ude00", "\\n", "\\q", "\n", " ", "\t", "\u{e9}", "\u{1}", "@", "{\"a\":",
        "[1,", "\"b\":2}",
    ];
    let words = prop::collection::vec(prop::sample::select(WORDS), 0..9);
    (words, prop::sample::select(&["", "[", "{\"k\":", "[\"", "[1", "{"][..])).prop_map(|(words, start)| {
        let words: String = words.concat();
        format!("{start}{words}")
    })
}

tally::proptest! {
    #[test]
    fn a_mistake_is_found_in_each_text_that_the_parser_refuses(text in nearly_json()) {
        let is_valid = serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_array() || value.is_object());
        // A lone second half of a surrogate pair is no mistake of Open vSwitch's.
        prop_assume!(!text.contains("\\ude00"));
        prop_assert_eq!(check(text.as_bytes(), Position::default()).is_ok(), is_valid, "{:?}", text);
        prop_assert_eq!(parse(text.as_bytes()).is_ok(), is_valid);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = parse(&bytes);
    }
}

/// Open vSwitch's `ovsdb-tool` reads each text as a schema.
#[test]
fn random_texts_have_the_mistakes_that_open_vswitch_finds() {
    use proptest::strategy::ValueTree;
    let Some(peers) = oracle::folder() else { return };
    let file = std::env::temp_dir().join(format!("json-text-{}", std::process::id()));
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut compared = 0;
    while compared < 400 {
        let text = nearly_json().new_tree(&mut runner).expect("a text").current();
        let Err(error) = check(text.as_bytes(), Position::default()) else { continue };
        std::fs::write(&file, &text).expect("a file");
        let output = std::process::Command::new(peers.join("bin/ovsdb-tool")).arg("schema-version").arg(&file).output();
        let said = String::from_utf8_lossy(&output.expect("ovsdb-tool").stderr).into_owned();
        let expected = format!("could not be read as JSON ({error})\n");
        assert!(said.ends_with(&expected), "{text:?}\n{said}{expected}");
        compared += 1;
    }
    let _ = std::fs::remove_file(&file);
    tally::report!("{compared} texts compared with Open vSwitch");
}
