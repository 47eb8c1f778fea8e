//! Compact keys of frames with a VLAN tag, of ICMP, of IPv6, and of MPLS ([`crate::plain`] handles the most frequent frames).
//!
//! The keys equal the result of [`crate::extract()`]; unsupported frames give `None`.

use base::PortNo;

use crate::extract::{Layers, be16, ethertype, ip_misc, ipproto};
use crate::plain::untagged;
use crate::{PlainKey, WideKey};

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const TCP_LEN: usize = 20;
const SCTP_LEN: usize = 12;
/// UDP header, and the part of the header that all ICMP messages share.
const UDP_LEN: usize = 8;
/// Neighbour solicitations and advertisements (RFC 4861 section 4): their keys use more words.
const NEIGHBOUR_MESSAGES: [u8; 2] = [135, 136];

/// The Ethernet header of a frame with at most one VLAN tag.
#[derive(Clone, Copy)]
struct Ethernet {
    /// Words of the key, without the Ethernet type.
    dst: u64,
    src: u64,
    vlan: u64,
    ethertype: u16,
    /// Where it ends.
    len: usize,
}

/// Eight bytes of `bytes` at `at`; 0 beyond the end.
#[inline(always)]
fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[inline(always)]
fn ethernet(frame: &[u8]) -> Option<Ethernet> {
    let h = frame.first_chunk::<18>()?;
    let (dst, src) = (be64(h, 0) & !0xffff, be64(h, 6) & !0xffff);
    Some(match be16([h[12], h[13]]) {
        tpid @ (ethertype::VLAN | ethertype::QINQ) => Ethernet {
            dst,
            src: src | u64::from(be16([h[14], h[15]]) | 0x1000),
            vlan: u64::from(tpid) << 48,
            ethertype: be16([h[16], h[17]]),
            len: 18,
        },
        ethertype => Ethernet { dst, src, vlan: 0, ethertype, len: 14 },
    })
}

/// The key's word of ports and TCP flags; `None` if the header is truncated or the protocol is not one of plain
/// packets.
#[inline(always)]
fn transport(proto: u8, l4: &[u8]) -> Option<u64> {
    let first = u64::from(u32::from_be_bytes(*l4.first_chunk()?));
    match proto {
        ipproto::TCP => Some(first << 32 | u64::from(tcp_flags(l4)?) << 16),
        ipproto::UDP if l4.len() >= UDP_LEN => Some(first << 32),
        ipproto::SCTP if l4.len() >= SCTP_LEN => Some(first << 32),
        _ => None,
    }
}

#[inline(always)]
fn tcp_flags(l4: &[u8]) -> Option<u16> {
    let h = l4.first_chunk::<TCP_LEN>()?;
    let header = usize::from(h[12] >> 4) * 4;
    (header >= TCP_LEN && header <= l4.len()).then(|| be16([h[12], h[13]]) & 0xfff)
}

/// Type and code of an ICMP message, in the key's word of ports.
#[inline(always)]
fn icmp(l4: &[u8]) -> Option<u64> {
    let h = l4.first_chunk::<UDP_LEN>()?;
    Some(u64::from(h[0]) << 48 | u64::from(h[1]) << 32)
}

/// The payload of an IPv4 packet without options, fragments and Ethernet padding.
#[inline(always)]
fn l4_of_v4(rest: &[u8]) -> Option<&[u8]> {
    let h = rest.first_chunk::<IPV4_LEN>()?;
    let total = usize::from(be16([h[2], h[3]]));
    let is_fragment = be16([h[6], h[7]]) & 0x3fff != 0;
    if h[0] != 0x45 || is_fragment { None } else { rest.get(IPV4_LEN..total) }
}

/// The payload of an IPv6 packet, of the protocol in its next header field, without Ethernet padding.
#[inline(always)]
fn l4_of_v6(rest: &[u8]) -> Option<&[u8]> {
    let h = rest.first_chunk::<IPV6_LEN>()?;
    rest.get(IPV6_LEN..IPV6_LEN + usize::from(be16([h[4], h[5]])))
}

/// The word of ports for an ICMPv6 message whose other words are zero; `None` for neighbour discovery.
#[inline(always)]
fn icmp_v6(l4: &[u8]) -> Option<u64> {
    let word = icmp(l4)?;
    let is_neighbours = NEIGHBOUR_MESSAGES.contains(l4.first()?) && l4.get(1) == Some(&0);
    (!is_neighbours).then_some(word)
}

fn layers(eth: &Ethernet, header: usize, l4: &[u8]) -> Layers {
    let at = eth.len + header;
    Layers { l2_5: None, l3: Some(eth.len as u16), l4: Some(at as u16), end: at + l4.len() }
}

/// The compact key of a plain IPv4 frame with a VLAN tag, or of SCTP or ICMP.
#[inline(never)]
pub(crate) fn plain_v4(frame: &[u8], in_port: PortNo) -> Option<(PlainKey, Layers)> {
    v4(&ethernet(frame)?, frame, in_port)
}

#[inline(always)]
fn v4(eth: &Ethernet, frame: &[u8], in_port: PortNo) -> Option<(PlainKey, Layers)> {
    if eth.ethertype != ethertype::IPV4 {
        return None;
    }
    let rest = frame.get(eth.len..)?;
    let h = rest.first_chunk::<IPV4_LEN>()?;
    let l4 = l4_of_v4(rest)?;
    let ports = if h[9] == ipproto::ICMP { icmp(l4) } else { transport(h[9], l4) }?;
    let key = PlainKey::new([
        u64::from(in_port.0) << 32,
        eth.dst | u64::from(ethertype::IPV4),
        eth.src,
        be64(h, 12),
        ip_misc(0, h[1], h[8], h[9]),
        ports,
        eth.vlan,
        0,
    ]);
    Some((key, layers(eth, IPV4_LEN, l4)))
}

/// The compact key of a plain IPv6 frame, or of one with MPLS labels; it equals the result of [`crate::extract()`] under any
/// limit of VLAN tags. `None` for any other frame.
#[cfg(test)]
pub(crate) fn extract_wide(frame: &[u8], in_port: PortNo) -> Option<WideKey> {
    let (mut plain, mut wide) = (PlainKey::default(), WideKey::default());
    let found = extract_other(frame, in_port, &mut plain, &mut wide);
    (found == Some(Compact::Wide)).then_some(wide)
}

#[inline(always)]
fn v6(eth: &Ethernet, frame: &[u8], in_port: PortNo) -> Option<WideKey> {
    if eth.ethertype != ethertype::IPV6 {
        return None;
    }
    let rest = frame.get(eth.len..)?;
    let h = rest.first_chunk::<IPV6_LEN>()?;
    let l4 = l4_of_v6(rest)?;
    let ports = if h[6] == ipproto::ICMPV6 { icmp_v6(l4) } else { transport(h[6], l4) }?;
    let first = u32::from_be_bytes([h[0], h[1], h[2], h[3]]);
    let misc = u64::from(first & 0xf_ffff) << 32 | ip_misc(0, (first >> 20) as u8, h[7], h[6]);
    let port = u64::from(in_port.0) << 32;
    Some(WideKey::new(
        [port, eth.dst | u64::from(ethertype::IPV6), eth.src, 0, misc, ports, eth.vlan, 0],
        [be64(h, 8), be64(h, 16), be64(h, 24), be64(h, 32), 0],
    ))
}

/// The bottom of stack bit of an MPLS label stack entry (RFC 3032 section 2.1).
const BOTTOM: u64 = 0x100;

/// The compact key of a frame with one or two MPLS labels; `None` for deeper stacks.
#[inline(always)]
fn mpls(eth: &Ethernet, frame: &[u8], in_port: PortNo) -> Option<WideKey> {
    let stack = frame.get(eth.len..)?;
    let first = u64::from(u32::from_be_bytes(*stack.first_chunk()?)) << 32;
    let labels = if first >> 32 & BOTTOM != 0 { first } else { u64::from_be_bytes(*stack.first_chunk()?) };
    if first >> 32 & BOTTOM == 0 && labels & BOTTOM == 0 {
        return None;
    }
    let port = u64::from(in_port.0) << 32;
    let dst = eth.dst | u64::from(eth.ethertype);
    Some(WideKey::new([port, dst, eth.src, 0, 0, 0, eth.vlan, 0], [0, 0, 0, 0, labels]))
}

/// The compact key that a frame has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compact {
    /// A [`PlainKey`].
    Plain,
    /// A [`WideKey`].
    Wide,
}

/// Extracts the compact key of a frame into `plain` or `wide`, and returns which. `None` if the frame has neither.
///
/// The most frequent frames, untagged TCP and UDP over IPv4, have a path of their own, which makes the key in its place.
#[inline(always)]
pub fn extract_compact(frame: &[u8], in_port: PortNo, plain: &mut PlainKey, wide: &mut WideKey) -> Option<Compact> {
    if let Some((key, _)) = untagged(frame, in_port) {
        *plain = key;
        return Some(Compact::Plain);
    }
    extract_other(frame, in_port, plain, wide)
}

/// Makes `plain` the compact key of a plain frame over IPv4. Returns false for other frames.
#[inline(always)]
pub fn extract_plain_into(frame: &[u8], in_port: PortNo, plain: &mut PlainKey) -> bool {
    if let Some((key, _)) = untagged(frame, in_port) {
        *plain = key;
        return true;
    }
    extract_other_plain(frame, in_port, plain)
}

#[inline(never)]
fn extract_other_plain(frame: &[u8], in_port: PortNo, plain: &mut PlainKey) -> bool {
    let Some((key, _)) = plain_v4(frame, in_port) else { return false };
    *plain = key;
    true
}

#[inline(never)]
fn extract_other(frame: &[u8], in_port: PortNo, plain: &mut PlainKey, wide: &mut WideKey) -> Option<Compact> {
    let eth = ethernet(frame)?;
    match eth.ethertype {
        ethertype::IPV6 => *wide = v6(&eth, frame, in_port)?,
        ethertype::MPLS | ethertype::MPLS_MCAST => *wide = mpls(&eth, frame, in_port)?,
        _ => {
            *plain = v4(&eth, frame, in_port)?.0;
            return Some(Compact::Plain);
        }
    }
    Some(Compact::Wide)
}

/// The headers of a plain frame that determine the offsets of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Form {
    /// The tag protocol of its VLAN tag, 0 without one.
    pub(crate) tpid: u16,
    pub(crate) is_v6: bool,
    /// ICMP (over IPv4) or ICMPv6 (over IPv6) instead of ports.
    pub(crate) is_icmp: bool,
}

impl Form {
    /// Offset of the IP header.
    pub(crate) fn l3(self) -> usize {
        if self.tpid == 0 { 14 } else { 18 }
    }

    /// Offset of the transport header.
    pub(crate) fn l4(self) -> usize {
        self.l3() + if self.is_v6 { IPV6_LEN } else { IPV4_LEN }
    }

    /// Checks the protocol and lengths of a frame whose Ethernet header has this form and which, over IPv4, has no
    /// options and is no fragment. Returns the TCP flags, or 0 for other protocols; `None` if the frame does not have
    /// this form.
    #[inline]
    pub(crate) fn tcp_flags(self, frame: &[u8]) -> Option<u16> {
        let rest = frame.get(self.l3()..)?;
        let (l4, proto) = if self.is_v6 {
            (l4_of_v6(rest)?, *rest.get(6)?)
        } else {
            let h = rest.first_chunk::<IPV4_LEN>()?;
            (rest.get(IPV4_LEN..usize::from(be16([h[2], h[3]])))?, h[9])
        };
        match proto {
            ipproto::TCP if !self.is_icmp => tcp_flags(l4),
            ipproto::ICMP if self.is_icmp && !self.is_v6 => icmp(l4).map(|_| 0),
            ipproto::ICMPV6 if self.is_icmp && self.is_v6 => icmp_v6(l4).map(|_| 0),
            _ if !self.is_icmp => transport(proto, l4).map(|_| 0),
            _ => None,
        }
    }
}

/// A frame of this form for tests, TCP if `proto` is TCP. Its bytes all differ.
#[cfg(test)]
pub(crate) fn frame_of(form: Form, proto: u8, payload: usize) -> Vec<u8> {
    let l4 = if proto == ipproto::TCP { TCP_LEN } else { SCTP_LEN } + payload;
    let mut frame: Vec<u8> = (0..form.l4() + l4).map(|i| i as u8).collect();
    let ethertype = if form.is_v6 { ethertype::IPV6 } else { ethertype::IPV4 };
    frame[form.l3() - 2..form.l3()].copy_from_slice(&ethertype.to_be_bytes());
    if form.tpid != 0 {
        frame[12..14].copy_from_slice(&form.tpid.to_be_bytes());
    }
    let ip = &mut frame[form.l3()..];
    if form.is_v6 {
        ip[4..6].copy_from_slice(&(l4 as u16).to_be_bytes());
        ip[6] = proto;
    } else {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((IPV4_LEN + l4) as u16).to_be_bytes());
        ip[6..8].fill(0);
        ip[9] = proto;
    }
    if proto == ipproto::TCP {
        frame[form.l4() + 12] = 0x5a;
    }
    frame
}

#[cfg(test)]
pub(crate) const FORMS: [Form; 12] = {
    let mut forms = [Form { tpid: 0, is_v6: false, is_icmp: false }; 12];
    let mut i = 0;
    while i < 12 {
        let tpid = [0, ethertype::VLAN, ethertype::QINQ][i / 4];
        forms[i] = Form { tpid, is_v6: i % 2 == 1, is_icmp: i / 2 % 2 == 1 };
        i += 1;
    }
    forms
};

/// A random protocol of this form.
#[cfg(test)]
pub(crate) fn proto_of(form: Form, rng: &mut base::rng::Rng) -> u8 {
    match (form.is_icmp, form.is_v6) {
        (true, false) => ipproto::ICMP,
        (true, true) => ipproto::ICMPV6,
        (false, _) => [ipproto::TCP, ipproto::UDP, ipproto::SCTP][rng.below(3) as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::{extract_into, extract_vlans, without_compact_keys};
    use crate::plain::extract_plain;
    use crate::{FlowKey, layout};
    use base::rng::Rng;

    #[test]
    fn compact_keys_equal_the_keys_of_the_general_parser() {
        let (mut rng, port) = (Rng::seeded(17), PortNo(9));
        let (mut compact, frames) = (0u32, 60_000);
        for n in 0..frames {
            let form = FORMS[n % FORMS.len()];
            let mut frame = frame_of(form, proto_of(form, &mut rng), rng.below(12) as usize);
            for _ in 0..rng.below(3) {
                let at = rng.below(frame.len() as u64) as usize;
                frame[at] = if rng.below(2) == 0 { frame[at] ^ 1 << rng.below(8) } else { rng.next_u64() as u8 };
            }
            match rng.below(6) {
                0 => frame.truncate(frame.len() - rng.below(30) as usize),
                1 => frame.resize(frame.len() + rng.below(30) as usize, 7),
                _ => {}
            }
            for vlans_max in [1, 2] {
                let expected = without_compact_keys(&frame, port, vlans_max);
                let (key, slow_layers) = extract_vlans(&frame, port, vlans_max);
                assert_eq!(key, expected, "{frame:x?}");
                let mut again = FlowKey::ZERO;
                assert_eq!(extract_into(&mut again, &frame, port, vlans_max), slow_layers);
                let plain = extract_plain(&frame, port).map(|key| key.expand());
                let wide = extract_wide(&frame, port).map(|key| key.expand());
                if let Some(fast) = plain.as_ref().or(wide.as_ref()) {
                    assert_eq!(*fast, expected, "{frame:x?}");
                    compact += 1;
                }
                assert!(plain.is_none() || wide.is_none());
                let is_v6 = expected.0[layout::ETH_DST] as u16 == ethertype::IPV6;
                assert!(wide.is_none() || is_v6);
            }
        }
        tally::report!("{frames} frames, {compact} compact keys");
        assert!(compact > frames as u32 / 2);
    }

    #[test]
    fn compact_keys_of_mpls_equal_the_keys_of_the_general_parser() {
        let (mut rng, port) = (Rng::seeded(18), PortNo(9));
        let (mut compact, frames) = (0u32, 20_000);
        for _ in 0..frames {
            let mut frame: Vec<u8> = (0..12).map(|i| i as u8).collect();
            if rng.below(3) == 0 {
                frame.extend([0x81, 0, 0x20, 7]);
            }
            frame.extend([0x88, 0x47 + rng.below(2) as u8]);
            let labels = 1 + rng.below(4);
            for label in 1..=labels {
                let bottom = u32::from(label == labels || rng.below(8) == 0);
                frame.extend((rng.next_u64() as u32 & !0x100 | bottom << 8).to_be_bytes());
            }
            frame.extend((0..rng.below(40)).map(|i| i as u8));
            if rng.below(4) == 0 {
                frame.truncate(10 + rng.below(frame.len() as u64 - 10) as usize);
            }
            let fast = extract_wide(&frame, port).map(|key| key.expand());
            for vlans_max in [1, 2] {
                let expected = without_compact_keys(&frame, port, vlans_max);
                assert_eq!(extract_vlans(&frame, port, vlans_max).0, expected, "{frame:x?}");
                assert!(fast.as_ref().is_none_or(|fast| *fast == expected), "{frame:x?}");
            }
            compact += u32::from(fast.is_some());
        }
        tally::report!("{frames} frames, {compact} compact keys");
        assert!(compact > frames / 4);
    }

    #[test]
    fn each_form_has_a_compact_key() {
        let mut rng = Rng::seeded(1);
        for form in FORMS {
            let frame = frame_of(form, proto_of(form, &mut rng), 0);
            let found = (extract_plain(&frame, PortNo(1)).is_some(), extract_wide(&frame, PortNo(1)).is_some());
            assert_eq!(found, (!form.is_v6, form.is_v6), "{form:?}");
            assert!(form.tcp_flags(&frame).is_some(), "{form:?}");
            let other = Form { is_icmp: !form.is_icmp, ..form };
            assert_eq!(other.tcp_flags(&frame), None, "{form:?}");
        }
    }
}
