//! Any stream of bytes, in pieces of any size, as OpenFlow messages: the pieces do not matter.
#![no_main]

use fuzz::Input;
use openflow::stream::{Framer, StreamError};

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let seed = input.number(2) as usize;
    let whole = messages([input.0].into_iter());
    assert_eq!(messages(input.0.chunks(1 + seed % 300)), whole);
});

fn messages<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<StreamError>) {
    let (mut framer, mut out) = (Framer::default(), Vec::new());
    for piece in pieces {
        framer.push(piece);
        loop {
            match framer.next_message() {
                Ok(Some(message)) => out.push(message.to_vec()),
                Ok(None) => break,
                Err(e) => return (out, Some(e)),
            }
        }
    }
    (out, None)
}
