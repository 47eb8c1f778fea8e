//! Explicit congestion notification through tunnels, as Open vSwitch 4.0.0 does it.
//!
//! Encapsulation follows the full-functionality option of RFC 3168 section 9.1.1: the outer header has the inner mark,
//! but ECT(0) in place of CE. Decapsulation copies an outer CE to the inner packet, or drops the packet if that is not
//! capable of ECN; all other outer marks have no effect, also the outer ECT(1) that RFC 6040 propagates.

/// The two bits in a type of service.
pub const MASK: u8 = 3;
/// Not capable of ECN.
pub const NOT_ECT: u8 = 0;
/// Capable of ECN.
pub const ECT_0: u8 = 2;
/// Congestion experienced.
pub const CE: u8 = 3;

/// What an outer header's mark means for the inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decapsulated {
    /// The inner packet stays as it is.
    Unchanged,
    /// The inner packet's mark becomes CE.
    Mark,
    /// The packet is dropped. Open vSwitch logs [`DROPPED`].
    Drop,
}

/// The warning about a packet that is dropped.
pub const DROPPED: &str = "dropping tunnel packet marked ECN CE but is not ECN capable";

/// The effect of an outer type of service on an inner packet, whose own is `None` if it is not IP. Second, whether the
/// answer depends on the inner mark: only if the outer one is CE. It always depends on the outer one.
pub fn decapsulate(outer_tos: u8, inner_tos: Option<u8>) -> (Decapsulated, bool) {
    match inner_tos {
        Some(inner) if outer_tos & MASK == CE => match inner & MASK {
            NOT_ECT => (Decapsulated::Drop, true),
            CE => (Decapsulated::Unchanged, true),
            _ => (Decapsulated::Mark, true),
        },
        _ => (Decapsulated::Unchanged, false),
    }
}

/// The mark of the outer header of a packet with this type of service.
pub fn encapsulate(inner_tos: u8) -> u8 {
    match inner_tos & MASK {
        CE => ECT_0,
        mark => mark,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the frames that Open vSwitch received, and the megaflows that it made of them.
    #[test]
    fn marks_are_copied_or_drop_the_packet() {
        use Decapsulated::{Drop, Mark, Unchanged};
        for (outer, inner, expected) in [
            (0, Some(0), (Unchanged, false)),
            (3, Some(0), (Drop, true)),
            (3, Some(1), (Mark, true)),
            (7, Some(2), (Mark, true)),
            (3, Some(0x12), (Mark, true)),
            (3, Some(3), (Unchanged, true)),
            (0, Some(3), (Unchanged, false)),
            (1, Some(0), (Unchanged, false)),
            (1, Some(2), (Unchanged, false)),
            (3, None, (Unchanged, false)),
        ] {
            assert_eq!(decapsulate(outer, inner), expected, "{outer} {inner:?}");
        }
        assert_eq!([32, 33, 34, 35].map(encapsulate), [0, 1, 2, 2]);
    }
}
