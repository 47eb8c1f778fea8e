//! Capture files in the classic pcap format (draft-ietf-opsawg-pcap). The reader accepts both byte orders, with
//! microseconds or nanoseconds; the writer uses native byte order and microseconds.
//!
//! The reader's input is untrusted: it never panics, and for a record it allocates no more than [`RECORD_LEN_MAX`] and
//! the size of the input.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum length of a record in bytes; a larger length in a file is an error.
pub const RECORD_LEN_MAX: u32 = 256 * 1024;

const MAGIC_US: u32 = 0xa1b2_c3d4;
const MAGIC_NS: u32 = 0xa1b2_3c4d;
const HEADER_LEN: usize = 24;
const LINKTYPE_ETHERNET: u32 = 1;
/// The snapshot length that Open vSwitch writes; readers accept longer records.
const SNAPLEN: u32 = 1518;

/// Why a capture file could not be read.
#[derive(thiserror::Error, Debug)]
pub enum PcapError {
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file does not begin with the magic number of a capture file.
    #[error("not a pcap file: starts with {0:#010x}, expected 0xa1b2c3d4 or 0xa1b23c4d in either byte order")]
    Magic(u32),
    /// The frames are not Ethernet frames.
    #[error("link type {0} is not Ethernet (1)")]
    LinkType(u32),
    /// The file ends within its header or a record.
    #[error("the file ends within {0}")]
    Truncated(&'static str),
    /// The length of a record exceeds the maximum.
    #[error("a record of {0} bytes is longer than {RECORD_LEN_MAX}")]
    RecordTooLong(u32),
}

/// One captured frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// When, since 1970.
    pub time: Duration,
    /// Length of the frame on the wire, which may exceed the captured bytes.
    pub wire_len: u32,
    /// The captured bytes.
    pub frame: Vec<u8>,
}

/// Reads a capture file record by record.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    big_endian: bool,
    nanoseconds: bool,
}

impl Reader<io::BufReader<File>> {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, PcapError> {
        Self::new(io::BufReader::new(File::open(path)?))
    }
}

impl<R: Read> Reader<R> {
    /// Reads the file header from `input`.
    pub fn new(mut input: R) -> Result<Self, PcapError> {
        let mut header = [0; HEADER_LEN];
        if !read_whole(&mut input, &mut header, "the file header")? {
            return Err(PcapError::Truncated("the file header"));
        }
        let [m0, m1, m2, m3, .., l0, l1, l2, l3] = header;
        let magic = u32::from_le_bytes([m0, m1, m2, m3]);
        let (big_endian, nanoseconds) = match (magic, magic.swap_bytes()) {
            (MAGIC_US, _) => (false, false),
            (MAGIC_NS, _) => (false, true),
            (_, MAGIC_US) => (true, false),
            (_, MAGIC_NS) => (true, true),
            _ => return Err(PcapError::Magic(magic)),
        };
        let reader = Self { input, big_endian, nanoseconds };
        // The upper bits describe a frame check sequence.
        let link_type = reader.number([l0, l1, l2, l3]) & 0x0fff_ffff;
        if link_type != LINKTYPE_ETHERNET {
            return Err(PcapError::LinkType(link_type));
        }
        Ok(reader)
    }

    /// The next record; `None` at the end of the file.
    pub fn next_record(&mut self) -> Result<Option<Record>, PcapError> {
        let mut header = [0; 16];
        if !read_whole(&mut self.input, &mut header, "a record header")? {
            return Ok(None);
        }
        let [s0, s1, s2, s3, f0, f1, f2, f3, c0, c1, c2, c3, w0, w1, w2, w3] = header;
        let len = self.number([c0, c1, c2, c3]);
        if len > RECORD_LEN_MAX {
            return Err(PcapError::RecordTooLong(len));
        }
        let fraction = u64::from(self.number([f0, f1, f2, f3]));
        let fraction = if self.nanoseconds { Duration::from_nanos(fraction) } else { Duration::from_micros(fraction) };
        let mut frame = Vec::new();
        self.input.by_ref().take(len.into()).read_to_end(&mut frame)?;
        if frame.len() < len as usize {
            return Err(PcapError::Truncated("a record"));
        }
        let time = Duration::from_secs(self.number([s0, s1, s2, s3]).into()) + fraction;
        Ok(Some(Record { time, wire_len: self.number([w0, w1, w2, w3]), frame }))
    }

    fn number(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, PcapError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

/// Fills `buf`; `false` if the input ended before the first byte.
fn read_whole(input: &mut impl Read, buf: &mut [u8], what: &'static str) -> Result<bool, PcapError> {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(PcapError::Truncated(what)),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}

/// Writes a capture file. Each record is written in one call.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
}

impl Writer<File> {
    /// Opens a file for appending; writes the file header if it is new or empty.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        if file.metadata()?.len() == 0 { Self::new(file) } else { Ok(Self { output: file }) }
    }
}

impl<W: Write> Writer<W> {
    /// Writes the file header to `output`.
    pub fn new(mut output: W) -> io::Result<Self> {
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(&MAGIC_US.to_ne_bytes());
        header.extend_from_slice(&2u16.to_ne_bytes());
        header.extend_from_slice(&4u16.to_ne_bytes());
        header.extend_from_slice(&[0; 8]);
        header.extend_from_slice(&SNAPLEN.to_ne_bytes());
        header.extend_from_slice(&LINKTYPE_ETHERNET.to_ne_bytes());
        output.write_all(&header)?;
        Ok(Self { output })
    }

    /// Writes `frame` with the current time.
    pub fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.write_at(frame, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Writes `frame` with a time since 1970.
    pub fn write_at(&mut self, frame: &[u8], time: Duration) -> io::Result<()> {
        let len = u32::try_from(frame.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut record = Vec::with_capacity(16 + frame.len());
        for number in [time.as_secs() as u32, time.subsec_micros(), len, len] {
            record.extend_from_slice(&number.to_ne_bytes());
        }
        record.extend_from_slice(frame);
        self.output.write_all(&record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(magic: [u8; 4], big: bool) -> Vec<u8> {
        let n = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        [magic, n(if big { 0x0002_0004 } else { 0x0004_0002 }), n(0), n(0), n(65535), n(1)].concat()
    }

    #[test]
    fn all_four_variants() {
        for (magic, big, ns) in [
            ([0xd4, 0xc3, 0xb2, 0xa1], false, false),
            ([0x4d, 0x3c, 0xb2, 0xa1], false, true),
            ([0xa1, 0xb2, 0xc3, 0xd4], true, false),
            ([0xa1, 0xb2, 0x3c, 0x4d], true, true),
        ] {
            let n = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
            let file = [header(magic, big), [n(5), n(7), n(3), n(60)].concat(), vec![1, 2, 3]].concat();
            let mut reader = Reader::new(&file[..]).expect("header");
            let record = reader.next_record().expect("record").expect("one");
            let fraction = if ns { Duration::from_nanos(7) } else { Duration::from_micros(7) };
            assert_eq!(record.time, Duration::from_secs(5) + fraction);
            assert_eq!((record.wire_len, &record.frame[..]), (60, &[1, 2, 3][..]));
            assert_eq!(reader.next_record().expect("end"), None);
        }
    }

    #[test]
    fn bad_files_are_errors() {
        let good = header([0xd4, 0xc3, 0xb2, 0xa1], false);
        let error = |bytes: &[u8]| match Reader::new(bytes) {
            Ok(mut r) => r.next_record().expect_err("bad"),
            Err(e) => e,
        };
        assert!(matches!(error(&[]), PcapError::Truncated(_)));
        assert!(matches!(error(&[0; 24]), PcapError::Magic(0)));
        assert!(matches!(error(&[&good[..], &[0; 3]].concat()), PcapError::Truncated("a record header")));
        let long = [&good[..], &[0; 8], &[0xff; 8]].concat();
        assert!(matches!(error(&long), PcapError::RecordTooLong(u32::MAX)));
        let short = [&good[..], &[0; 8], &[9, 0, 0, 0, 9, 0, 0, 0, 1]].concat();
        assert!(matches!(error(&short), PcapError::Truncated("a record")));
    }

    #[test]
    fn appending_keeps_one_header() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("x.pcap");
        for n in 0..3u8 {
            Writer::append(&path).expect("open").write(&[n; 60]).expect("write");
        }
        let frames: Vec<_> = Reader::open(&path).expect("open").map(|r| r.expect("record").frame[0]).collect();
        assert_eq!(frames, [0, 1, 2]);
    }

    tally::proptest! {
        #[test]
        fn round_trip(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
            let mut file = Vec::new();
            let mut writer = Writer::new(&mut file).unwrap();
            for frame in &frames {
                writer.write_at(frame, Duration::new(7, 1000)).unwrap();
            }
            let read: Vec<_> = Reader::new(&file[..]).unwrap().map(|r| r.unwrap().frame).collect();
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300), magic in any::<bool>()) {
            let head = if magic { header([0xd4, 0xc3, 0xb2, 0xa1], false) } else { Vec::new() };
            let file = [head, bytes].concat();
            if let Ok(mut reader) = Reader::new(&file[..]) {
                while let Ok(Some(record)) = reader.next_record() {
                    prop_assert!(record.frame.len() <= file.len());
                }
            }
        }
    }
}
