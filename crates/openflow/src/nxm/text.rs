//! The text of entries as they are on the wire: `NXM_OF_ETH_TYPE(0800), NXM_OF_IP_SRC_W(0a000000/ff000000)`.

use super::{COOKIE, Header};
use crate::wire::Reader;
use flow::field::Loc;

/// Returns the name of a header, without the `_W` suffix for masks.
fn name_of(header: Header) -> Option<&'static str> {
    let width = header.payload >> u8::from(header.has_mask);
    if (header.class, header.number, width) == (COOKIE.class, COOKIE.number, COOKIE.payload) {
        return Some("NXM_NX_COOKIE");
    }
    let names = header.field()?.info().nxm;
    let same = |n: &&flow::field::Nxm| {
        (n.class, n.number, n.experimenter) == (header.class, header.number, header.experimenter)
    };
    names.iter().find(same).map(|n| n.name)
}

/// Formats entries, by class and number if they have no name; `<any>` if there are none. Values and masks of tunnel
/// options are zeros, as Open vSwitch prints them.
pub fn entries_to_string(bytes: &[u8]) -> String {
    let mut r = Reader::new(bytes);
    let mut entries = Vec::new();
    while let Ok(header) = Header::decode(&mut r) {
        let Ok(payload) = r.bytes(header.payload) else { break };
        let name = name_of(header).map_or_else(
            || format!("{}:{}", header.class, header.number),
            |name| format!("{name}{}", if header.has_mask { "_W" } else { "" }),
        );
        let shown = if header.field().is_some_and(|f| matches!(f.info().loc, Loc::TunMetadata(_))) { 0 } else { 0xff };
        let digits = |bytes: &[u8]| bytes.iter().map(|b| format!("{:02x}", b & shown)).collect::<String>();
        let n = payload.len() >> u8::from(header.has_mask);
        // The last byte of an odd length belongs to neither.
        let (value, mask) = (&payload[..n], payload.get(n..2 * n).unwrap_or_default());
        let mask = if header.has_mask { format!("/{}", digits(mask)) } else { String::new() };
        entries.push(format!("{name}({}{mask})", digits(value)));
    }
    if entries.is_empty() { "<any>".into() } else { entries.join(", ") }
}
