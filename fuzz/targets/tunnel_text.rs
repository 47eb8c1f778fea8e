//! Outer headers in the text of datapath actions: accepted headers have bytes, and their own text is read as the same.
#![no_main]

use tunnel::header::{Push, Template};

fuzz::target!(|bytes: &[u8]| {
    let Some((headers, rest)) = fuzz::text(bytes).and_then(|text| Push::parse_header(text).ok()) else { return };
    assert!(bytes.ends_with(rest.as_bytes()));
    let mut text = String::new();
    headers.format_header(&mut text);
    assert_eq!(Push::parse_header(&text), Ok((headers.clone(), "")), "{text}");
    let template = Template::new(headers).expect("headers of a text are valid");
    assert!(text.starts_with(&format!("header(size={},", template.header_len())));
});
