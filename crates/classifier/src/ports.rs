//! Prefix tracking on transport ports: how many leading bits of the ports show that a tuple holds no matching rule.
//!
//! Each tuple that matches on ports has its own trie, over the leading mask bits of the source port followed by those
//! of the destination port. (One trie for all tuples would mix protocols, as the source port field also holds the ICMP
//! type.)
//!
//! A lookup asks the trie when all stages before L4 have matched, so the protocol of the ports has been read by then.

use crate::trie::Trie;
use flow::{FlowKey, FlowMask, Reads, layout};

/// Shift of the source port in [`layout::TP`].
const SRC_SHIFT: u8 = 48;
/// Shift of the destination port.
const DST_SHIFT: u8 = 32;

/// The port values of the rules of a tuple.
#[derive(Debug)]
pub(crate) struct PortsTrie {
    /// Number of leading bits of the source port in the mask.
    src_len: u8,
    /// Number of leading bits of the destination port in the mask.
    dst_len: u8,
    /// Values, left aligned.
    values: Trie<u32>,
}

impl PortsTrie {
    /// The trie for a tuple with this mask; `None` if the mask has no leading bits of a port.
    pub(crate) fn new(mask: &FlowMask) -> Option<Self> {
        let len = |shift: u8| ((mask.0[layout::TP] >> shift) as u16).leading_ones() as u8;
        let trie = Self { src_len: len(SRC_SHIFT), dst_len: len(DST_SHIFT), values: Trie::new() };
        (trie.src_len + trie.dst_len > 0).then_some(trie)
    }

    /// Whether no rule of the tuple has the ports of `key`. Records the bits read to find out.
    pub(crate) fn excludes(&self, key: &FlowKey, reads: &mut Reads) -> bool {
        let len = self.src_len + self.dst_len;
        let common = self.values.common(self.value(key.0[layout::TP])).map(|c| c.min(len));
        // In an empty trie, no bit is read.
        let read = common.map_or(0, |c| len.min(c + 1));
        reads.note_prefix(layout::TP, SRC_SHIFT, 16, read.min(self.src_len));
        reads.note_prefix(layout::TP, DST_SHIFT, 16, read.saturating_sub(self.src_len));
        common != Some(len)
    }

    /// Records the bits read for ports that some rule has.
    pub(crate) fn note(&self, reads: &mut Reads) {
        if self.src_len > 0 {
            reads.note_prefix(layout::TP, SRC_SHIFT, 16, self.src_len);
        }
        if self.dst_len > 0 {
            reads.note_prefix(layout::TP, DST_SHIFT, 16, self.dst_len);
        }
    }

    pub(crate) fn insert(&mut self, tp: u64) {
        self.values.insert(self.value(tp));
    }

    pub(crate) fn remove(&mut self, tp: u64) {
        self.values.remove(self.value(tp));
    }

    /// The masked leading bits of source and destination port of [`layout::TP`], concatenated.
    fn value(&self, tp: u64) -> u32 {
        let leading = |shift: u8, len: u8| u64::from((tp >> shift) as u16) >> (16 - len) << (32 - len);
        (leading(SRC_SHIFT, self.src_len) | leading(DST_SHIFT, self.dst_len) >> self.src_len) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, Match};

    fn read(trie: &PortsTrie, src: u16, dst: u16) -> (bool, u128, u128) {
        let mut key = FlowKey::ZERO;
        key.set(Field::TcpSrc, src.into());
        key.set(Field::TcpDst, dst.into());
        let mut reads = Reads::new();
        let out = trie.excludes(&key, &mut reads);
        (out, reads.mask().get(Field::TcpSrc), reads.mask().get(Field::TcpDst))
    }

    #[test]
    fn only_deciding_bits_are_read() {
        let mut m = Match::ANY;
        m.set(Field::TcpDst, 80);
        let mut trie = PortsTrie::new(m.mask()).unwrap();
        assert_eq!(read(&trie, 1, 80), (true, 0, 0));
        trie.insert(m.key().0[layout::TP]);
        assert_eq!(read(&trie, 1, 80), (false, 0, 0xffff));
        assert_eq!(read(&trie, 1, 81), (true, 0, 0xffff));
        assert_eq!(read(&trie, 1, 443), (true, 0, 0xff00));
        assert_eq!(read(&trie, 1, 0x8000), (true, 0, 0x8000));
        trie.remove(m.key().0[layout::TP]);
        assert_eq!(read(&trie, 1, 80), (true, 0, 0));
    }

    #[test]
    fn a_pair_of_ports_is_one_value() {
        let mut trie: Option<PortsTrie> = None;
        for (src, dst) in [(0x100, 80), (0x200, 443)] {
            let mut m = Match::ANY;
            m.set_masked(Field::UdpSrc, src, 0xff00);
            m.set(Field::UdpDst, dst);
            trie.get_or_insert_with(|| PortsTrie::new(m.mask()).unwrap()).insert(m.key().0[layout::TP]);
        }
        let trie = trie.unwrap();
        assert_eq!(read(&trie, 0x1ff, 80), (false, 0xff00, 0xffff));
        assert_eq!(read(&trie, 0x1ff, 443), (true, 0xff00, 0xff00));
        assert_eq!(read(&trie, 0x8000, 443), (true, 0x8000, 0));
        assert!(PortsTrie::new(&FlowMask::ZERO).is_none());
    }
}
