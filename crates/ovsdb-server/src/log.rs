//! The file format of a standalone database, ovsdb(5): a series of records, each of two lines,
//!
//! ```text
//! OVSDB JSON <length> <SHA-1 in hexadecimal>
//! <JSON object, length bytes with its line feed>
//! ```
//!
//! Reading never fails as a whole: it returns the sound records from the start of the file, the reason why the rest
//! is not sound, and where the sound part ends.

use std::fmt::Write as _;
use std::io::{self, Seek, SeekFrom, Write};

use serde_json::Value;
use sha1::{Digest, Sha1};

/// Shorter records are copied behind their headers.
const JOINED_MAX: usize = 1 << 20;

/// How much of a long record is held before it is written.
const PIECE: usize = 256 << 10;

/// Length of the header of a record that is written in pieces: its length has ten digits, the first ones perhaps zeros.
const LONG_HEADER_LENGTH: usize = 11 + 10 + 1 + 40 + 1;

/// Maximum length of a header line in bytes: far longer than any real one.
const HEADER_LENGTH_MAX: usize = 128;

/// The JSON parser's nesting limit protects the stack; this limits its input.
const RECORD_LENGTH_MAX: usize = 1 << 31;

/// The JSON object of a record, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// With its line feed.
    body: Vec<u8>,
}

impl Record {
    /// The record with this JSON object, written without a line feed.
    pub(crate) fn from_text(mut json: Vec<u8>) -> Self {
        json.push(b'\n');
        Self { body: json }
    }

    /// The object.
    pub fn to_json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    fn header(&self) -> Vec<u8> {
        format!("OVSDB JSON {} {}\n", self.body.len(), hex(&Sha1::digest(&self.body))).into_bytes()
    }

    /// Appends the record to a file or another writer; returns the number of bytes.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<u64> {
        check_length(self.body.len())?;
        let header = self.header();
        if self.body.len() < JOINED_MAX {
            // In one piece: a record on its own is one write.
            out.write_all(&[header.as_slice(), &self.body].concat())?;
        } else {
            out.write_all(&header)?;
            out.write_all(&self.body)?;
        }
        Ok((header.len() + self.body.len()) as u64)
    }
}

impl From<&Value> for Record {
    fn from(json: &Value) -> Self {
        Self::from_text(json.to_string().into_bytes())
    }
}

/// Returns an error for a record that could not be read again.
fn check_length(length: usize) -> io::Result<()> {
    if length < RECORD_LENGTH_MAX {
        return Ok(());
    }
    let reason = format!("a record of {length} bytes is too long: fewer than {RECORD_LENGTH_MAX} can be read");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
}

/// A record that is written while its text is generated: only a piece of a large database's text is in memory at a
/// time. Its header, with length and checksum, is written last, into the space reserved for it.
pub(crate) struct LongRecord<'a, W> {
    out: &'a mut W,
    /// Bytes not yet written.
    text: Vec<u8>,
    hash: Sha1,
    length: usize,
    /// Where its header belongs, once a piece was written.
    start: Option<u64>,
}

impl<'a, W: Write + Seek> LongRecord<'a, W> {
    /// Begins a record at the position of `out`, which must be its end.
    pub(crate) fn begin(out: &'a mut W) -> Self {
        Self { out, text: Vec::new(), hash: Sha1::new(), length: 0, start: None }
    }

    /// The buffer to which the next text is appended.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Writes the text so far if it has become long.
    pub(crate) fn pass(&mut self) -> io::Result<()> {
        if self.text.len() < PIECE { Ok(()) } else { self.write_piece().map(|_| ()) }
    }

    /// Writes the rest and the header; returns the number of bytes of the record.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        if self.start.is_none() {
            return Record::from_text(self.text).write_to(self.out);
        }
        self.text.push(b'\n');
        let start = self.write_piece()?;
        let header = format!("OVSDB JSON {:010} {}\n", self.length, hex(&self.hash.finalize()));
        self.out.seek(SeekFrom::Start(start))?;
        self.out.write_all(header.as_bytes())?;
        self.out.seek(SeekFrom::End(0))?;
        Ok((LONG_HEADER_LENGTH + self.length) as u64)
    }

    /// Writes the buffered text; returns the position of the header.
    fn write_piece(&mut self) -> io::Result<u64> {
        let start = match self.start {
            Some(start) => start,
            None => {
                let start = self.out.stream_position()?;
                self.out.write_all(&[b' '; LONG_HEADER_LENGTH])?;
                *self.start.insert(start)
            }
        };
        self.length += self.text.len();
        check_length(self.length)?;
        self.hash.update(&self.text);
        self.out.write_all(&self.text)?;
        self.text.clear();
        Ok(start)
    }
}

/// Returns the record with this JSON object in the file format.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = record.write_to(&mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Why a record could not be read; offsets are in bytes from the start of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The header line is not one.
    #[error("parse error at offset {offset} in header line \"{line}\"")]
    Header {
        /// Where the line starts.
        offset: usize,
        /// The line.
        line: String,
    },
    /// The file ends within a record.
    #[error("error reading {length} bytes starting at offset {offset} (End of file)")]
    Truncated {
        /// Length of the record's second line, or of the part of the first line that exists.
        length: usize,
        /// Where it starts.
        offset: usize,
    },
    /// The checksum is wrong.
    #[error("{length} bytes starting at offset {offset} have SHA-1 hash {found} but should have hash {expected}")]
    Hash {
        /// Length of the second line.
        length: usize,
        /// Where it starts.
        offset: usize,
        /// Its checksum.
        found: String,
        /// The checksum in the header.
        expected: String,
    },
    /// The checksum is right, but it is not a JSON object.
    #[error("{length} bytes starting at offset {offset} are not valid JSON ({reason})")]
    Json {
        /// Length of the second line.
        length: usize,
        /// Where it starts.
        offset: usize,
        /// The message of the JSON parser.
        reason: String,
    },
    /// The file holds a clustered database.
    #[error("cannot apply this operation to clustered database file: only standalone databases are supported")]
    Clustered,
}

impl LogError {
    /// The class of the error, as Open vSwitch names it.
    pub fn tag(&self) -> &'static str {
        match self {
            LogError::Truncated { .. } => "I/O error",
            LogError::Clustered => "ovsdb error",
            LogError::Header { .. } | LogError::Hash { .. } | LogError::Json { .. } => "syntax error",
        }
    }
}

/// A whole log, or the sound part of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The records, oldest first.
    pub records: Vec<Value>,
    /// Number of bytes of the records; the rest is not sound.
    pub sound_length: usize,
    /// Why reading stopped before the end of the file.
    pub error: Option<LogError>,
}

/// Reads all records up to the first one that is not sound.
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut reader = Reader::new(bytes);
    let mut records = Vec::new();
    let error = loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    Parsed { records, sound_length: reader.position(), error }
}

/// Reads one record after another.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Reads the contents of a file from its start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// How many bytes have been read as sound records.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The next record; `None` at the end of the file.
    pub fn next_record(&mut self) -> Result<Option<Value>, LogError> {
        let Some(body) = self.body()? else { return Ok(None) };
        let record = body.to_json()?;
        self.pass(&body);
        Ok(Some(record))
    }

    /// Continues behind `body`, whose contents are sound.
    pub fn pass(&mut self, body: &Body<'_>) {
        self.position = body.start + body.text.len();
    }

    /// The next record as text, of which only the checksum is known to be right; `None` at the end of the file.
    pub fn body(&self) -> Result<Option<Body<'a>>, LogError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let offset = self.position;
        let window = rest.get(..HEADER_LENGTH_MAX).unwrap_or(rest);
        let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
            if rest.len() < HEADER_LENGTH_MAX {
                return Err(LogError::Truncated { length: rest.len(), offset });
            }
            return Err(header_error(offset, window));
        };
        let line = window.get(..end).unwrap_or_default();
        let (length, expected) = match parse_header(line) {
            Some(Header::Json { length, hash }) => (length, hash),
            Some(Header::Cluster) => return Err(LogError::Clustered),
            None => return Err(header_error(offset, line)),
        };
        let start = offset + end + 1;
        let Some(text) = start.checked_add(length).and_then(|end| self.bytes.get(start..end)) else {
            return Err(LogError::Truncated { length, offset: start });
        };
        let found = hex(&Sha1::digest(text));
        if found != expected {
            return Err(LogError::Hash { length, offset: start, found, expected });
        }
        Ok(Some(Body { text, start }))
    }
}

/// The second line of a record.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    text: &'a [u8],
    start: usize,
}

impl<'a> Body<'a> {
    /// The line.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The JSON object that it is.
    pub fn to_json(&self) -> Result<Value, LogError> {
        let not_json = |reason| LogError::Json { length: self.text.len(), offset: self.start, reason };
        let record = serde_json::from_slice(self.text).or_else(|_| ovsdb::json_text::parse(self.text));
        let record: Value = record.map_err(|error| not_json(error.to_string()))?;
        if record.is_object() { Ok(record) } else { Err(not_json("not a JSON object".into())) }
    }
}

fn header_error(offset: usize, line: &[u8]) -> LogError {
    LogError::Header { offset, line: String::from_utf8_lossy(line).into_owned() }
}

enum Header {
    Json { length: usize, hash: String },
    Cluster,
}

fn parse_header(line: &[u8]) -> Option<Header> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    if words.next()? != "OVSDB" {
        return None;
    }
    let magic = words.next()?;
    let (length, hash) = (words.next()?, words.next()?);
    if words.next().is_some() || !length.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let length = length.parse().ok().filter(|&length| 0 < length && length < RECORD_LENGTH_MAX)?;
    if hash.len() != 40 || !hash.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    match magic {
        "JSON" => Some(Header::Json { length, hash: hash.to_ascii_lowercase() }),
        "CLUSTER" => Some(Header::Cluster),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_has_the_documented_format() {
        let record = encode(&Record::from(&json!({"a": "b\nc"})));
        let expected = concat!("OVSDB JSON 13 4f1054e953bb377f8d77b736fb33bce548855084\n", "{\"a\":\"b\\nc\"}\n");
        assert_eq!(String::from_utf8(record).unwrap(), expected);
    }

    #[test]
    fn damage_ends_the_sound_part() {
        let (first, second) = (encode(&Record::from(&json!({"n": 1}))), encode(&Record::from(&json!({"n": 2}))));
        let whole = [first.clone(), second].concat();
        for cut in first.len()..whole.len() {
            let parsed = parse(&whole[..cut]);
            assert_eq!((parsed.records.len(), parsed.sound_length), (1, first.len()), "cut at {cut}");
            assert_eq!(parsed.error.is_some(), cut > first.len());
        }
        for at in first.len()..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let parsed = parse(&bytes);
            assert_eq!((parsed.records.len(), parsed.sound_length), (1, first.len()), "flipped at {at}");
        }
    }

    #[test]
    fn a_record_that_could_not_be_read_is_not_written() {
        assert!(check_length(RECORD_LENGTH_MAX - 1).is_ok());
        assert!(check_length(RECORD_LENGTH_MAX).is_err());
        let header = format!("OVSDB JSON {RECORD_LENGTH_MAX} {}\n{{}}\n", "0".repeat(40));
        assert!(parse(header.as_bytes()).error.is_some(), "it is no empty database");
    }

    #[test]
    fn a_record_written_in_pieces_is_read_as_any() {
        for length in [0, 1, PIECE - 4, PIECE - 1, PIECE, 3 * PIECE + 7] {
            let record = Record::from(&json!({ "x": "y".repeat(length) }));
            let before = encode(&Record::from(&json!({"before": true})));
            let mut out = io::Cursor::new(before.clone());
            out.seek(SeekFrom::End(0)).unwrap();
            let mut long = LongRecord::begin(&mut out);
            for piece in record.body.strip_suffix(b"\n").unwrap().chunks(1000) {
                long.text().extend_from_slice(piece);
                long.pass().unwrap();
                assert!(long.text().len() < PIECE, "only a piece is held");
            }
            let written = long.finish().unwrap();
            Record::from(&json!({"after": true})).write_to(&mut out).unwrap();
            let bytes = out.into_inner();
            let parsed = parse(&bytes);
            assert_eq!(parsed.error, None);
            assert_eq!(parsed.records, [json!({"before": true}), record.to_json(), json!({"after": true})]);
            let after = encode(&Record::from(&json!({"after": true})));
            assert_eq!(bytes.len(), before.len() + written as usize + after.len());
            // Short ones have the same bytes as ever.
            if length < PIECE - 100 {
                assert_eq!(bytes, [before, encode(&record), after].concat());
            }
        }
    }

    #[test]
    fn clusters_are_refused_by_name() {
        let header = format!("OVSDB CLUSTER 3 {}\n{{}}\n", "0".repeat(40));
        assert_eq!(parse(header.as_bytes()).error, Some(LogError::Clustered));
    }

    tally::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            let _ = parse(&[b"OVSDB JSON ".as_slice(), &bytes].concat());
        }

        #[test]
        fn records_round_trip(texts in proptest::collection::vec(".*", 0..5)) {
            let records: Vec<Value> = texts.iter().map(|text| json!({ text.as_str(): text })).collect();
            let bytes: Vec<u8> = records.iter().map(Record::from).flat_map(|record| encode(&record)).collect();
            let parsed = parse(&bytes);
            prop_assert_eq!(parsed.error, None);
            prop_assert_eq!(parsed.sound_length, bytes.len());
            prop_assert_eq!(parsed.records, records);
        }
    }
}
