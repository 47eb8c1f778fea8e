//! Round trips of every field of the table: a printed value parses to the same value.
//!
//! Open vSwitch prints some fields in a form that does not parse, and the output here equals Open vSwitch's. [`oddity`]
//! lists these fields with the exact deviation of each.

use base::rng::Rng;
use flow::table::FIELDS;
use flow::text::{NoNames, format_value, match_to_string, parse_match, parse_value};
use flow::{Field, FieldInfo, Format, Loc, Maskable, Prereq};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Why the printed form of a field does not parse back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Oddity {
    /// It parses to the same value.
    None,
    /// The value in hexadecimal without `0x`.
    HexWithoutPrefix,
    /// The value without the mask.
    NoMask,
    /// The value under this name, which does not parse, and without the mask.
    Renamed(&'static str),
}

fn oddity(field: Field) -> Oddity {
    match field {
        Field::TunTos => Oddity::HexWithoutPrefix,
        Field::TunGbpFlags | Field::TunErspanIdx | Field::TunErspanVer | Field::TunErspanDir | Field::TunErspanHwid => {
            Oddity::NoMask
        }
        Field::TunGtpuFlags => Oddity::Renamed("gtpu_flags"),
        Field::TunGtpuMsgtype => Oddity::Renamed("gtpu_msgtype"),
        _ => Oddity::None,
    }
}

/// The fields that can be parsed: the locations of tunnel options depend on the switch.
fn fields() -> impl Iterator<Item = &'static FieldInfo> {
    FIELDS.iter().filter(|f| !matches!(f.loc, Loc::TunMetadata(_)))
}

/// A match that satisfies a prerequisite.
fn needed(prereq: Prereq) -> &'static str {
    match prereq {
        Prereq::None | Prereq::Ethernet => "",
        Prereq::Arp => "arp,",
        Prereq::VlanVid => "dl_vlan=5,",
        Prereq::Ipv4 | Prereq::Ip => "ip,",
        Prereq::Ipv6 => "ipv6,",
        Prereq::Mpls => "mpls,",
        Prereq::Tcp => "tcp,",
        Prereq::Udp => "udp,",
        Prereq::Sctp => "sctp,",
        Prereq::Icmpv4 => "icmp,",
        Prereq::Icmpv6 => "icmp6,",
        Prereq::Nd | Prereq::NdSolicit => "icmp6,icmp_type=135,icmp_code=0,",
        Prereq::NdAdvert => "icmp6,icmp_type=136,icmp_code=0,",
        Prereq::Nsh => "dl_type=0x894f,",
        Prereq::Pbb => "dl_type=0x88e7,",
        Prereq::Ct => "ct_state=+trk,ip,",
    }
}

/// Numbers that look the same in two bases, the ends of the range, and others.
fn numbers(rng: &mut Rng, most: u128) -> Vec<u128> {
    let mut out = vec![0, 1, 7, 8, 9, 10, 11, 16, 32, 50, 80, 100, most, most / 2, most - most / 3];
    out.extend((0..100).map(|_| {
        let n = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        n >> rng.below(128)
    }));
    out.retain(|n| *n <= most);
    out
}

/// A value in each of its notations, which all parse to the same value.
fn spellings(f: &FieldInfo, n: u128) -> Vec<String> {
    match f.format {
        Format::Mac => vec![base::MacAddr::from_u64(n as u64).to_string()],
        Format::Ipv4 => vec![Ipv4Addr::from(n as u32).to_string()],
        Format::Ipv6 => vec![Ipv6Addr::from(n).to_string()],
        Format::PacketType => {
            vec![format!("({},{})", n >> 16, n & 0xffff), format!("({:#x},{:#x})", n >> 16, n & 0xffff)]
        }
        Format::Frag => vec![["no", "yes", "first", "later", "not_later"][n as usize % 5].into()],
        // Numbers of OpenFlow 1.0, as later versions have gaps.
        Format::OfPort | Format::OfPort32 => vec![(n & 0xffff).to_string()],
        _ if n <= u64::MAX.into() => {
            vec![format!("{n:#x}"), format!("{n}"), format!("0{n:o}"), format!("{n:#X}").replace('X', "x")]
        }
        _ => vec![format!("{n:#x}")],
    }
}

/// Values of the field without a mask; each has one or more texts that parse to the same value.
fn values(f: &FieldInfo, rng: &mut Rng) -> Vec<Vec<String>> {
    numbers(rng, settable(f)).into_iter().map(|n| spellings(f, n)).collect()
}

/// The bits of a field that text can set: the mask of `tcp_flags` has four more.
fn settable(f: &FieldInfo) -> u128 {
    if f.format == Format::TcpFlags { 0xfff } else { f.full_mask() }
}

/// Values with masks, if the field supports them.
fn masked(f: &FieldInfo, rng: &mut Rng) -> Vec<Vec<String>> {
    if f.maskable == Maskable::None || f.format == Format::Frag {
        return Vec::new();
    }
    let values = numbers(rng, settable(f));
    let masks = numbers(rng, settable(f));
    let pairs = values.into_iter().zip(masks.into_iter().rev());
    pairs
        // A mask of all TCP flags is printed as an exact match, which has more bits.
        .filter(|(_, mask)| *mask != 0 && (f.format != Format::TcpFlags || *mask != 0xfff))
        .map(|(value, mask)| {
            // The text of a mask of IPv6 addresses begins with a letter: with a digit it would be the length of a prefix.
            let mask = if f.format == Format::Ipv6 { mask | 0xf << 124 } else { mask };
            let mask = &spellings(f, mask)[0];
            spellings(f, value).into_iter().map(|v| format!("{v}/{mask}")).collect()
        })
        .collect()
}

/// Converts the printed form of an odd field into one that parses.
fn readable(f: &FieldInfo, printed: &str) -> String {
    let replaced = |from: &str, to: &str| {
        assert_eq!(printed.matches(from).count(), 1, "{printed}");
        printed.replace(from, to)
    };
    match oddity(f.id) {
        Oddity::None | Oddity::NoMask => printed.into(),
        Oddity::HexWithoutPrefix => replaced(&format!("{}=", f.name), &format!("{}=0x", f.name)),
        Oddity::Renamed(name) => replaced(&format!("{name}="), &format!("{}=", f.name)),
    }
}

#[test]
fn printed_matches_of_all_fields_parse_back() {
    let mut rng = Rng::seeded(6);
    let mut cases = 0;
    for f in fields() {
        let read = |text: &str| parse_match(text, &NoNames).unwrap_or_else(|e| panic!("{text}: {e}"));
        let exact = values(f, &mut rng).into_iter().map(|v| (v, false));
        let partial = masked(f, &mut rng).into_iter().map(|v| (v, true));
        for (texts, has_mask) in exact.chain(partial).collect::<Vec<_>>() {
            let text = |value: &str| format!("{}{}={value}", needed(f.prereq), f.name);
            let m = read(&text(&texts[0]));
            for other in &texts {
                assert_eq!(read(&text(other)), m, "{} and {}", text(other), text(&texts[0]));
                if !f.alias.is_empty() {
                    assert_eq!(read(&text(other).replace(f.name, f.alias)), m, "{}", text(other));
                }
            }
            let printed = match_to_string(&m, &NoNames);
            let again = read(&readable(f, &printed));
            if has_mask && oddity(f.id) != Oddity::None {
                let mut without = m.clone();
                without.set(f.id, m.get(f.id).0);
                assert_eq!(again, without, "{} was printed as {printed}", text(&texts[0]));
            } else {
                assert_eq!(again, m, "{} was printed as {printed}", text(&texts[0]));
            }
            cases += 1;
        }
    }
    tally::report!("{cases} matches of {} fields", fields().count());
}

/// Each exception is needed.
#[test]
fn oddities_do_not_parse_back() {
    for f in fields() {
        let name = f.name;
        let printed = |text: &str| match_to_string(&parse_match(text, &NoNames).expect("a match"), &NoNames);
        match oddity(f.id) {
            Oddity::None => {}
            Oddity::HexWithoutPrefix => {
                assert_eq!(printed(&format!("{name}=80")), format!("{name}=50"));
                assert_eq!(printed(&format!("{name}=0xa")), format!("{name}=a"));
                parse_match(&format!("{name}=a"), &NoNames).expect_err("not decimal");
            }
            Oddity::NoMask => assert!(!printed(&format!("{name}=1/0x1")).contains('/'), "{name}"),
            Oddity::Renamed(other) => {
                assert!(printed(&format!("{name}=1/0x1")).starts_with(&format!("{other}=")), "{name}");
                parse_match(&format!("{other}=1"), &NoNames).expect_err("not a name that is read");
            }
        }
    }
}

/// In the syntax of `set_field` and `learn`, no field is odd, but tunnel options need their table to be parsed. (A mask
/// of zeros, printed as `ANY`, cannot be set or learned.)
#[test]
fn printed_values_of_all_fields_parse_back() {
    let mut rng = Rng::seeded(7);
    let mut cases = 0;
    for f in fields() {
        let read = |text: &str| parse_value(f.id, text, &NoNames).unwrap_or_else(|e| panic!("{} {text}: {e}", f.name));
        for text in values(f, &mut rng).into_iter().chain(masked(f, &mut rng)).flatten() {
            let (value, mask) = read(&text);
            let mut printed = String::new();
            format_value(f.id, value, mask, &NoNames, &mut printed);
            assert_eq!(read(&printed), (value, mask), "{} {text} was printed as {printed}", f.name);
            cases += 1;
        }
    }
    tally::report!("{cases} values of {} fields", fields().count());
}
