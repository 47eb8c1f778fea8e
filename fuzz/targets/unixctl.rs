//! Any stream of bytes on a control socket: requests read the same when they were written.
#![no_main]

use unixctl::decode;

fuzz::target!(|bytes: &[u8]| {
    for request in decode(bytes).unwrap_or_default() {
        let again = decode(&request.to_bytes()).expect("our own request");
        assert_eq!(again, [request]);
    }
});
