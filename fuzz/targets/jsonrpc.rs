//! Any stream of bytes as JSON-RPC: whole messages read the same when they were written, and pieces do not matter.
#![no_main]

use fuzz::Input;
use ovsdb::jsonrpc::{FrameError, Framer, Limits, Message, Remote, decode};

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let piece = 1 + input.number(1) as usize;
    let limits = Limits { bytes_max: 4000, depth_max: 120 };
    let (whole, error) = decode(input.0, limits);
    assert_eq!(in_pieces(input.0, piece, limits).0, whole, "{error:?}");
    for message in whole {
        let (again, error) = decode(&message.to_bytes(), Limits::default());
        assert_eq!((again.as_slice(), error), ([message].as_slice(), None));
    }
    if let Some(text) = fuzz::text(input.0) {
        let _ = Remote::parse(text);
    }
});

fn in_pieces(bytes: &[u8], piece: usize, limits: Limits) -> (Vec<Message>, Option<FrameError>) {
    let (mut framer, mut out) = (Framer::new(limits), Vec::new());
    for piece in bytes.chunks(piece) {
        framer.push(piece);
        loop {
            match framer.next_message() {
                Ok(Some(message)) => out.push(message),
                Ok(None) => break,
                Err(error) => return (out, Some(error)),
            }
        }
    }
    (out, None)
}
