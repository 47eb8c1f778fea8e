//! Flushing of tracked connections for controllers (NXT_CT_FLUSH, NXT_CT_FLUSH_ZONE).

use crate::bridge::Ofproto;
use conntrack::key::number_of;
use dpif::connections::TupleFilter;
use dpif::{ConnectionFilter, Dpif};
use openflow::ct_flush::{CtFlush, Direction};
use std::net::Ipv6Addr;

impl Ofproto {
    /// Removes connections from the datapath, which all its bridges share.
    pub(crate) fn flush_connections(&self, flush: &CtFlush) {
        let Some(switch) = self.switch() else { return };
        if let Some(dpif) = switch.dpif() {
            execute(&**dpif, switch.datapath_name(), flush);
        }
    }
}

/// Removes connections from a datapath of this name, and returns their number.
pub fn execute(dpif: &dyn Dpif, name: &str, flush: &CtFlush) -> u64 {
    tracing::debug!(target: "ct_dpif", "{name}: ct_flush: {flush}");
    dpif.flush_connections(&filter(flush))
}

/// The connections to which a flush applies.
pub fn filter(flush: &CtFlush) -> ConnectionFilter {
    ConnectionFilter {
        zone: flush.zone,
        proto: flush.ip_proto,
        is_v6: flush.is_ipv4.map(|is_ipv4| !is_ipv4),
        mark: flush.mark,
        label: flush.labels,
        original: tuple(&flush.original, flush.is_icmp()),
        reply: tuple(&flush.reply, flush.is_icmp()),
    }
}

fn tuple(direction: &Direction, is_icmp: bool) -> TupleFilter {
    TupleFilter {
        src: address(direction.src),
        dst: address(direction.dst),
        src_port: direction.src_port,
        // The message has the type of ICMP in the lower byte, a key has it in the upper one.
        dst_port: if is_icmp { direction.dst_port.swap_bytes() } else { direction.dst_port },
    }
}

/// An address of zeros is any, but not one that is mapped from IPv4.
fn address(address: Ipv6Addr) -> Option<[u64; 2]> {
    (!address.is_unspecified()).then(|| number_of(address.to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conntrack::Key;

    fn parsed(words: &[&str]) -> ConnectionFilter {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        filter(&CtFlush::parse(&words).expect("a flush"))
    }

    #[test]
    fn flushes_become_filters() {
        assert_eq!(parsed(&[]), ConnectionFilter::default());
        assert_eq!(parsed(&["zone=7"]), ConnectionFilter::of_zone(Some(7)));
        let wanted = parsed(&["mark=5/0xf", "ct_nw_src=10.0.0.1,ct_nw_proto=6,ct_tp_dst=80", "ct_nw_dst=10.0.0.1"]);
        assert_eq!((wanted.proto, wanted.is_v6, wanted.mark), (6, Some(false), (5, 0xf)));
        assert_eq!((wanted.original.src, wanted.original.dst_port), (Some([0, 0x0a00_0001]), 80));
        assert_eq!((wanted.reply.src, wanted.reply.dst), (None, Some([0, 0x0a00_0001])));
        let v6 = parsed(&["ct_ipv6_src=fc00::1"]);
        assert_eq!((v6.is_v6, v6.original.src), (Some(true), Some([0xfc00 << 48, 1])));
        assert_eq!(parsed(&["ct_ipv6_src=::"]), ConnectionFilter { is_v6: Some(true), ..ConnectionFilter::default() });
        assert_eq!(parsed(&["ct_nw_src=0.0.0.0"]).original.src, Some([0, 0]));
    }

    #[test]
    fn icmp_has_type_and_code_in_the_order_of_keys() {
        let wanted =
            parsed(&["ct_nw_proto=1,icmp_id=5,icmp_type=8,icmp_code=3", "ct_nw_proto=1,icmp_id=5,icmp_code=3"]);
        let key = Key { src_port: 5, dst_port: 0x0803, proto: 1, ..Key::default() };
        assert!(wanted.matches(&[key, key.reversed()], 0, 0));
        assert!(!wanted.matches(&[key.reversed(), key], 0, 0));
    }
}
