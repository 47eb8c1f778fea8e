//! Any bytes as an OpenFlow message: it is printed; a decoded message can be encoded, and encodes the same after
//! decoding again.
#![no_main]

use openflow::print::{Style, print};
use openflow::{Options, decode_with, encode_with};

fuzz::target!(|bytes: &[u8]| {
    for verbosity in 0..3 {
        print(bytes, Style::plain(verbosity));
    }
    for (flow_mod_table_id, shown) in [(false, false), (true, false), (false, true)] {
        let options = Options { flow_mod_table_id, shown, ..Options::default() };
        let Ok((version, xid, message)) = decode_with(bytes, options) else { continue };
        let written = encode_with(version, xid, &message, options);
        match decode_with(&written, options) {
            // Bytes, not values: information without an encoding, such as the value of a cookie without a mask, is
            // lost.
            Ok((_, _, again)) => {
                assert_eq!(encode_with(version, xid, &again, options), written, "{message:?} {again:?}")
            }
            Err(e) => panic!("{message:?} becomes {written:02x?}: {e}"),
        }
    }
});
