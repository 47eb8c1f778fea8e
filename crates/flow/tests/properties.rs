//! Properties of all frames and all texts.

mod corpus;

use base::PortNo;
use base::rng::Rng;
use flow::text::{NoNames, flow_key_to_string, match_to_string, parse_match};
use flow::{Field, Match, compose, extract};
use packet::checksum::{Verdict, verify};

/// Number of random frames and matches.
const CASES: u32 = 20_000;

#[test]
fn composed_frames_have_their_key() {
    let mut rng = Rng::seeded(3);
    for _ in 0..CASES {
        let frame = corpus::frames::frame(&mut rng);
        let (key, _) = extract(&frame, PortNo(7));
        if key.eth_type() == 0 {
            continue;
        }
        let back = compose(&key, b"payload");
        let (again, layers) = extract(&back, PortNo(7));
        let text = |k| flow_key_to_string(k, &NoNames);
        assert_eq!(text(&again), text(&key), "{frame:02x?} became {back:02x?}");
        assert_eq!(again, key);
        assert!(layers.end <= back.len());
        let later = key.get(flow::Field::IpFrag) != 0;
        assert!(later || verify(&back) != Verdict::Bad, "{back:02x?}");
    }
    tally::report!("{CASES} frames");
}

#[test]
fn printed_matches_parse_to_the_same_match() {
    let mut rng = Rng::seeded(4);
    for _ in 0..CASES {
        let text = corpus::matches::valid(&mut rng);
        let mut m = parse_match(&text, &NoNames).unwrap_or_else(|e| panic!("{text}: {e}"));
        m.normalize(&NoNames);
        let printed = match_to_string(&m, &NoNames);
        // These fields are printed under another name.
        let printed = printed.replace("gtpu_flags", "tun_gtpu_flags").replace("gtpu_msgtype", "tun_gtpu_msgtype");
        // The masks of these fields are never printed.
        if text.contains("tun_gbp_flags") {
            continue;
        }
        let again = parse_match(&printed, &NoNames).unwrap_or_else(|e| panic!("{printed}: {e}"));
        // A mask of all TCP flags is printed as an exact match, which has more bits.
        if let (flags, 0xfff) = m.get(Field::TcpFlags) {
            m.set(Field::TcpFlags, flags);
        }
        assert_eq!(again, m, "{text} was printed as {printed}");
    }
    tally::report!("{CASES} matches");
}

#[test]
fn offsets_point_at_the_headers() {
    let mut rng = Rng::seeded(5);
    for _ in 0..CASES {
        let frame = corpus::frames::frame(&mut rng);
        let (key, layers) = extract(&frame, PortNo(1));
        let mut used = flow::FlowKey([0; flow::WORDS]);
        used.0[flow::layout::ETH_DST..].fill(u64::MAX);
        used.set_in_port(PortNo(9));
        assert_eq!(flow::extract::extract_into(&mut used, &frame, PortNo(1), 2), layers);
        assert_eq!(used, key);
        let at = |o: Option<u16>| o.map_or(0, usize::from);
        assert!(at(layers.l2_5) <= frame.len() && at(layers.l3) <= frame.len());
        assert!(at(layers.l4) <= layers.end && layers.end <= frame.len());
        if let Some(ip) = packet::wire::ip(&frame)
            && !ip.fragment
            && let Some(l4) = layers.l4
        {
            assert_eq!((usize::from(l4), layers.end), (ip.l4, ip.end));
        }
    }
    tally::report!("{CASES} frames");
}

tally::proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let (key, _) = extract(&bytes, PortNo(1));
        flow_key_to_string(&key, &NoNames);
    }

    #[test]
    fn no_text_panics(text: String) {
        if let Ok(m) = parse_match(&text, &NoNames) {
            match_to_string(&m, &NoNames);
        }
    }

    #[test]
    fn no_damaged_text_panics(seed: u64) {
        if let Ok(mut m) = parse_match(&corpus::matches::damaged(&mut Rng::seeded(seed)), &NoNames) {
            m.normalize(&NoNames);
            match_to_string(&m, &NoNames);
        }
    }

    #[test]
    fn every_match_is_printed(words: Vec<u64>) {
        let mut words = words.iter().copied().cycle();
        let mut key = || flow::FlowKey(std::array::from_fn(|_| words.next().unwrap_or(0)));
        let (value, mask) = (key(), key());
        match_to_string(&Match::new(&value, mask), &NoNames);
        compose(&value, &[0; 10]);
    }
}
