//! The meter action: applies the bands of a meter to packets.

use base::DropReason;
use dpif::{BandKind, MeterId};
use flow::Field;
use flow::extract::ethertype;
use netdev::pool;
use packet::{Batch, Packet};

use super::headers::Headers;
use super::set;
use crate::port::Port;
use crate::shared::SharedState;

/// Sends packets received on `from` through a meter, which removes and counts the packets that it drops. A meter that
/// does not exist passes all packets.
pub(crate) fn run(shared: &SharedState, from: Option<&Port>, id: MeterId, packets: &mut Batch) {
    let Some(verdicts) = shared.meters.classify(id, packets, shared.clock.now()) else { return };
    if verdicts.iter().all(Option::is_none) {
        return;
    }
    let before = packets.len();
    let mut verdicts = verdicts.into_iter();
    packets.retain_mut(|packet| match verdicts.next().flatten() {
        None => true,
        Some(BandKind::DscpRemark { prec_level }) => {
            remark(packet, prec_level);
            true
        }
        Some(BandKind::Drop) => {
            pool::recycle(std::mem::take(packet));
            false
        }
    });
    shared.count_drop(from, DropReason::Meter, (before - packets.len()) as u64);
}

/// Raises the drop precedence of an IP packet.
fn remark(packet: &mut Packet, levels: u8) {
    let headers = Headers::of(packet);
    let class = match (headers.ip, packet.data().get(headers.l3..)) {
        (Some(_), Some([_, tos, ..])) if headers.is(ethertype::IPV4) => *tos,
        (Some(_), Some([high, low, ..])) if headers.is(ethertype::IPV6) => high << 4 | low >> 4,
        _ => return,
    };
    if let Some(dscp) = raised(class >> 2, levels) {
        let written = set::set(packet, &headers, Field::IpDscp, dscp.into(), 0x3f);
        debug_assert_eq!(written, Ok(()), "the header is there");
    }
}

/// Returns an assured forwarding codepoint (RFC 2597 section 6) with a higher drop precedence; `None` for other
/// codepoints. The class, 1 to 4, is in the upper three bits, and the precedence, 1 to 3, in the next two.
fn raised(dscp: u8, levels: u8) -> Option<u8> {
    let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
    let assured = (1..=4).contains(&class) && precedence >= 1 && dscp & 1 == 0;
    assured.then(|| class << 3 | precedence.saturating_add(levels).min(3) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::checksum::{Verdict, verify};
    use packet::wire::{EthernetRepr, Ipv4Repr, Ipv6Repr};

    #[test]
    fn remarking_raises_the_drop_precedence() {
        // AF21, AF22, AF23.
        assert_eq!([18, 20, 22].map(|dscp| raised(dscp, 1)), [Some(20), Some(22), Some(22)]);
        assert_eq!([10, 38].map(|dscp| raised(dscp, 255)), [Some(14), Some(38)]);
        // Best effort, class selectors, expedited forwarding, odd codepoints.
        assert_eq!([0, 8, 40, 46, 19, 42].map(|dscp| raised(dscp, 1)), [None; 6]);
        assert_eq!((0..64).filter(|dscp| raised(*dscp, 1).is_some()).count(), 12);
    }

    #[test]
    fn only_ip_packets_are_remarked() {
        let packet = |ethertype, header: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = Vec::new();
            EthernetRepr { ethertype, ..EthernetRepr::default() }.emit(&mut frame);
            header(&mut frame);
            frame.extend([0; 8]);
            Packet::from_slice(&frame)
        };
        let v4 = |tos| packet(ethertype::IPV4, &move |f| Ipv4Repr { tos, ttl: 9, ..Ipv4Repr::default() }.emit(8, f));
        let v6 = |class| packet(ethertype::IPV6, &move |f| Ipv6Repr { class, ..Ipv6Repr::default() }.emit(8, f));
        let (mut a, mut b) = (v4(18 << 2 | 1), v6(18 << 2 | 3));
        remark(&mut a, 1);
        remark(&mut b, 1);
        assert_eq!((&a, &b), (&v4(20 << 2 | 1), &v6(20 << 2 | 3)));
        assert_eq!(verify(a.data()), Verdict::Good);
        let mut labelled = packet(ethertype::MPLS, &|f| f.extend([0x45; 20]));
        let before = labelled.clone();
        remark(&mut labelled, 1);
        assert_eq!(labelled, before);
        let mut cut = Packet::from_slice(&v4(18 << 2).data()[..20]);
        remark(&mut cut, 1);
        assert_eq!(cut.data(), &v4(18 << 2).data()[..20]);
    }
}
