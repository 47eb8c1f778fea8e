//! Compact keys of packets that came out of a tunnel: a plain packet's key, the fields of the outer headers, and the options that
//! the switch knows.
//!
//! Such keys equal the result of [`crate::extract()`] with the packet's metadata and options. Packets with other metadata, such
//! as a connection, have whole keys only.

use packet::metadata::Tunnel;
use std::net::IpAddr;

use crate::plain::{Code, OTHERS, PLAIN_WORDS, Words, coded_words};
use crate::{FlowKey, PlainKey, ReceivedOptions, WideKey, layout};

/// The first word with fields of the outer headers.
const FIRST: usize = layout::TUN_ID;
/// Number of these words.
const N: usize = layout::SKB_PKT - FIRST;
/// The place of words that are zero.
const ZERO: usize = OTHERS + N;
/// The first place of the options' words.
const OPTIONS: usize = ZERO + 1;
/// Number of these words.
const N_OPTIONS: usize = layout::REGS - layout::TUN_METADATA;
const PLACES: usize = OPTIONS + N_OPTIONS;

/// Whether a word has fields of the outer headers or of options.
pub(crate) fn is_of_tunnel(word: usize) -> bool {
    (FIRST..FIRST + N).contains(&word) || (layout::TUN_METADATA..layout::REGS).contains(&word)
}

/// Shift of the flags in their word.
const FLAGS_SHIFT: u32 = 48;

/// The place of the word of each code.
static PLACE_OF: [u8; 128] = {
    let mut places = [ZERO as u8; 128];
    let mut code = 0;
    while code < OTHERS {
        places[code] = code as u8;
        code += 1;
    }
    let mut word = 0;
    while word < N {
        places[OTHERS + FIRST + word] = (OTHERS + word) as u8;
        word += 1;
    }
    word = 0;
    while word < N_OPTIONS {
        places[OTHERS + layout::TUN_METADATA + word] = (OPTIONS + word) as u8;
        word += 1;
    }
    places
};

/// The place of each word.
static PLACE_OF_WORD: [u8; layout::WORDS] = {
    let mut places = [ZERO as u8; layout::WORDS];
    let mut word = 0;
    while word < layout::WORDS {
        places[word] = PLACE_OF[Code::of(word).number()];
        word += 1;
    }
    places
};

/// The key of a plain packet that came out of a tunnel: the words of a [`WideKey`] in code order, those of the outer headers, and
/// those of options.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub struct TunneledKey {
    words: [u64; PLACES],
    /// Some of the options' words may not be zero.
    has_options: bool,
}

impl Default for TunneledKey {
    fn default() -> Self {
        Self { words: [0; PLACES], has_options: false }
    }
}

impl TunneledKey {
    /// Becomes the key of a plain packet over IPv4 that came out of this tunnel. `known` returns the options that the switch
    /// knows; it is called if the packet has options.
    #[inline]
    pub fn set_plain<'a>(&mut self, key: &PlainKey, tunnel: &Tunnel, known: impl FnOnce() -> &'a ReceivedOptions) {
        let words = key.words();
        self.words[..words.len()].copy_from_slice(words);
        self.words[words.len()..OTHERS].fill(0);
        self.set_tunnel(tunnel, known);
    }

    /// The same for a plain packet over IPv6, or with MPLS labels.
    #[inline]
    pub fn set_wide<'a>(&mut self, key: &WideKey, tunnel: &Tunnel, known: impl FnOnce() -> &'a ReceivedOptions) {
        self.words[..OTHERS].copy_from_slice(&key.words()[..OTHERS]);
        self.set_tunnel(tunnel, known);
    }

    #[inline]
    fn set_tunnel<'a>(&mut self, tunnel: &Tunnel, known: impl FnOnce() -> &'a ReceivedOptions) {
        if let Some(words) = self.words.get_mut(OTHERS..ZERO).and_then(|words| words.first_chunk_mut()) {
            *words = words_of(tunnel);
        }
        if std::mem::take(&mut self.has_options) {
            self.words[OPTIONS..].fill(0);
        }
        if !tunnel.options.is_empty() {
            self.has_options = true;
            let flags = known().place(&mut self.words[OPTIONS..], &tunnel.options);
            self.words[OTHERS + layout::TUN_ATTR - FIRST] |= u64::from(flags) << FLAGS_SHIFT;
        }
    }

    /// The whole key.
    pub fn expand(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        for (code, word) in coded_words() {
            key.0[word] = self.words[code];
        }
        key.0[FIRST..FIRST + N].copy_from_slice(&self.words[OTHERS..ZERO]);
        key.0[layout::TUN_METADATA..layout::REGS].copy_from_slice(&self.words[OPTIONS..]);
        key
    }
}

/// The words of the outer headers' fields, from [`FIRST`] on.
#[inline]
fn words_of(tunnel: &Tunnel) -> [u64; N] {
    // Options are apart; outer ports are not part of a key.
    let Tunnel { src, dst, key, flags, tos, ttl, src_port: _, dst_port: _, group_policy, erspan, gtpu, options: _ } =
        tunnel;
    let mut words = [0; N];
    words[layout::TUN_ID - FIRST] = *key;
    words[layout::TUN_ATTR - FIRST] = u64::from(*flags) << FLAGS_SHIFT
        | u64::from(*tos) << 40
        | u64::from(*ttl) << 32
        | u64::from(group_policy & 0xffff) << 16
        | u64::from(group_policy >> 16 & 0xff) << 8;
    words[layout::TUN_ERSPAN - FIRST] = *erspan;
    words[layout::TUN_GTPU - FIRST] = *gtpu;
    for (address, at, shift) in [(src, layout::TUN_IPV6_SRC, 32), (dst, layout::TUN_IPV6_DST, 0)] {
        match address {
            IpAddr::V4(address) => words[layout::TUN_IPV4 - FIRST] |= u64::from(address.to_bits()) << shift,
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                (words[at - FIRST], words[at + 1 - FIRST]) = ((bits >> 64) as u64, bits as u64);
            }
        }
    }
    words
}

impl Words for TunneledKey {
    #[inline]
    fn word(&self, word: usize) -> u64 {
        let place = PLACE_OF_WORD.get(word).map_or(ZERO, |place| usize::from(*place));
        self.words[place.min(PLACES - 1)]
    }

    #[inline]
    fn coded(&self, code: Code) -> u64 {
        self.words[usize::from(PLACE_OF[code.number() % 128]).min(PLACES - 1)]
    }

    #[inline]
    fn plain(&self) -> Option<&[u64; PLAIN_WORDS]> {
        self.words.first_chunk()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::{Compact, FORMS, extract_compact, frame_of, proto_of};
    use crate::extract::{PacketContext, extract_with_into};
    use crate::{Field, OTHER_LENGTH, OptionPlace, PlacedOption, UNKNOWN_OPTION};
    use base::PortNo;
    use base::rng::Rng;
    use packet::Metadata;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn tunnel(rng: &mut Rng) -> Tunnel {
        let is_v6 = rng.below(2) == 0;
        let mut address = || -> IpAddr {
            if is_v6 {
                Ipv6Addr::from(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).into()
            } else {
                Ipv4Addr::from(rng.next_u64() as u32).into()
            }
        };
        let (src, dst) = (address(), address());
        let class = |rng: &mut Rng| [1, 2, rng.below(3) as u8 | if rng.below(4) == 0 { 0x80 } else { 0 }];
        let option = |rng: &mut Rng| [&class(rng)[..], &[1, 9, 8, 7, rng.below(256) as u8]].concat();
        Tunnel {
            src,
            dst,
            key: rng.next_u64(),
            flags: rng.next_u64() as u16 & !(UNKNOWN_OPTION | OTHER_LENGTH),
            tos: rng.next_u64() as u8,
            ttl: rng.next_u64() as u8,
            src_port: rng.next_u64() as u16,
            dst_port: rng.next_u64() as u16,
            group_policy: rng.next_u64() as u32 & 0xff_ffff,
            erspan: rng.next_u64(),
            gtpu: rng.next_u64(),
            options: (0..rng.below(3)).flat_map(|_| option(rng)).collect(),
        }
    }

    /// The options of class 0x0102 and types 1 and 0x81.
    fn known() -> ReceivedOptions {
        let fields = [(Field::TunMetadata0, 5, 1), (Field::TunMetadata1, 60, 0x81)];
        let options = fields.map(|(field, at, kind)| {
            let places: Vec<_> = OptionPlace::new(at).into_iter().collect();
            PlacedOption::new(field, &places).expect("an option").with_id(0x0102, kind)
        });
        options.into_iter().collect()
    }

    #[test]
    fn tunneled_keys_equal_the_keys_of_the_general_parser() {
        let (mut rng, mut key, mut tunneled) = (Rng::seeded(4), FlowKey::ZERO, TunneledKey::default());
        let (known, frames, mut placed, mut unknown) = (known(), 20_000u64, 0u64, 0u64);
        for n in 0..frames {
            let form = FORMS[n as usize % FORMS.len()];
            let frame = frame_of(form, proto_of(form, &mut rng), rng.below(30) as usize);
            let metadata = Metadata { tunnel: Some(tunnel(&mut rng).into()), ..Metadata::default() };
            let tunnel = metadata.tunnel.as_ref().expect("a tunnel");
            let in_port = PortNo(rng.next_u64() as u32);
            let (mut plain, mut wide) = (PlainKey::default(), WideKey::default());
            match extract_compact(&frame, in_port, &mut plain, &mut wide).expect("plain") {
                Compact::Plain => tunneled.set_plain(&plain.with_recirculation(7, 9), tunnel, || &known),
                Compact::Wide => tunneled.set_wide(&wide.with_recirculation(7, 9), tunnel, || &known),
            }
            let context = PacketContext {
                in_port,
                recirc_id: 7,
                dp_hash: 9,
                metadata: Some(&metadata),
                ..PacketContext::default()
            };
            extract_with_into(&mut key, &frame, &context, 2);
            known.put(&mut key, &tunnel.options);
            assert_eq!(tunneled.expand(), key);
            for word in 0..layout::WORDS {
                assert_eq!((tunneled.word(word), tunneled.coded(Code::of(word))), (key.0[word], key.0[word]));
            }
            placed += u64::from(key.0[layout::REGS - 1] != 0);
            unknown += u64::from(key.get(Field::TunFlags) as u16 & UNKNOWN_OPTION != 0);
        }
        tally::report!("{frames} frames, {placed} with known options, {unknown} with unknown ones");
        assert!(placed > frames / 10 && unknown > frames / 20);
    }
}
