//! Any bytes as a capture file: its frames read the same when they were written.
#![no_main]

use netdev::pcap::{Reader, Writer};

fuzz::target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::new(bytes) else { return };
    let frames: Vec<_> = reader.map_while(Result::ok).map(|record| record.frame).collect();
    let mut out = Vec::new();
    {
        let mut writer = Writer::new(&mut out).expect("memory");
        frames.iter().for_each(|frame| writer.write(frame).expect("memory"));
    }
    let again: Vec<_> = Reader::new(out.as_slice()).expect("our own file").collect::<Result<_, _>>().expect("the same");
    assert!(again.iter().map(|record| &record.frame).eq(&frames));
});
