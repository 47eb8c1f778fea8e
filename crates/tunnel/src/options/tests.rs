//! Configurations against what Open vSwitch 4.0.0 shows of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::*;

/// Interfaces `t0` and what Open vSwitch 4.0.0 makes of them: its errors, or its form of the options, the datapath's
/// port, the line of `ofproto/list-tunnels`, and the warnings in its log.
const OBSERVED: &str = include_str!("observed.txt");

/// Words of a line; quotes keep white space.
pub(crate) fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut is_started) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '"' => (is_quoted, is_started) = (!is_quoted, true),
            ' ' if !is_quoted => {
                if is_started {
                    words.push(std::mem::take(&mut word));
                }
                is_started = false;
            }
            c => {
                word.push(c);
                is_started = true;
            }
        }
    }
    if is_started {
        words.push(word);
    }
    words
}

/// A type and its options from the words `type option=value ...`.
pub(crate) fn parse_words(name: &str, words: &[String]) -> Result<Parsed, OptionError> {
    let options: BTreeMap<String, String> = words[1..]
        .iter()
        .map(|word| word.split_once('=').expect("option"))
        .map(|(k, v)| (k.into(), v.into()))
        .collect();
    Config::parse(name, TunnelType::named(&words[0]).expect("type"), &options)
}

/// Lines of errors or warnings in any order, since Open vSwitch visits options in the order of a hash table.
fn sorted<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn options_are_those_of_open_vswitch() {
    let mut counts = [0; 3];
    for block in OBSERVED.split("# ").filter(|block| !block.trim().is_empty()) {
        let (row, rest) = block.split_once('\n').expect("lines");
        let of = |what: &str| {
            rest.lines()
                .filter_map(|line| line.split_once(' '))
                .filter(|line| line.0 == what)
                .map(|line| line.1)
                .collect()
        };
        let [errors, show, datapath, list, warnings]: [Vec<&str>; 5] =
            ["error", "show", "datapath", "list", "warning"].map(of);
        match parse_words("t0", &words(row)) {
            Ok(Parsed { config, warnings: ours, address_errors: _ }) => {
                assert_eq!(vec![config.text()], show, "{row}");
                assert_eq!(sorted(ours.iter().map(String::as_str)), sorted(warnings), "{row}");
                let port = config.datapath_port();
                assert_eq!(vec![format!("{} ({})", port.name, port.config.text())], datapath, "{row}");
                let number = list[0].strip_prefix("port ").and_then(|line| line.split(':').next()).expect("number");
                let number: u32 = number.parse().expect("number");
                let description = config.description(number);
                assert_eq!(vec![format!("port {number}: t0 ({description})")], list, "{row}");
                counts[0] += 1;
            }
            Err(error) => {
                let ours = error.to_string();
                let (ours, errors) = (sorted(ours.lines()), sorted(errors));
                if ours == errors {
                    counts[1] += 1;
                } else {
                    // Open vSwitch stops at the first fatal option, after some of the warnings.
                    assert!(errors.len() < ours.len(), "{row}: {ours:?}, not {errors:?}");
                    assert!(rest.contains("argument") || errors.len() == 1, "{row}: {ours:?}, not {errors:?}");
                    counts[2] += 1;
                }
            }
        }
    }
    tally::report!("{} interfaces and {} errors, {} of another order", counts[0], counts[1], counts[2]);
    assert!(counts[2] <= 10, "{counts:?}");
}

#[test]
fn canonical_options_give_the_same_configuration() {
    for block in OBSERVED.split("# ").filter(|block| !block.trim().is_empty()) {
        let row = words(block.lines().next().expect("line"));
        let Ok(Parsed { config, .. }) = parse_words("t0", &row) else { continue };
        let options = config.options().into_iter().map(|(k, v)| (k.to_string(), v)).collect::<BTreeMap<_, _>>();
        // These show only in the datapath, or are rounded to a default that the option cannot express.
        let hidden = ["exts=", "srv6_", "payload_type=", "dst_port=", "erspan_", "::ffff:", "0.0.0.0"];
        if config.options().contains(&("key", "0".into()))
            && (config.in_key, config.out_key) != (Key::Fixed(0), Key::Fixed(0))
        {
            continue;
        }
        if row.iter().any(|word| hidden.iter().any(|hidden| word.contains(hidden))) || config.tunnel_type.is_erspan() {
            continue;
        }
        assert_eq!(Config::parse("t0", config.tunnel_type, &options).map(|p| p.config), Ok(config), "{row:?}");
    }
}

#[test]
fn malformed_addresses_are_logged() {
    let errors = |text: &str| match parse_words("t0", &words(text)) {
        Ok(parsed) => parsed.address_errors,
        Err(OptionError::Invalid { address_errors, .. }) => address_errors,
        Err(other) => panic!("{other}"),
    };
    assert_eq!(errors("gre remote_ip=1.2.3"), ["\"1.2.3\" is not a valid IP address"]);
    assert_eq!(errors("gre remote_ip=::1%eth0"), ["\"::1%eth0\" is not a valid IPv6 address"]);
    assert_eq!(errors("gre remote_ip=1.2.3.4 local_ip=\"\""), ["\"\" is not a valid IP address"]);
}

#[test]
fn segments_stop_at_a_malformed_one() {
    let segments = |text: &str| {
        parse_words("t0", &words(&format!("srv6 remote_ip=::1 srv6_segs={text}"))).expect("valid").config.segments.len()
    };
    for (text, count) in [
        ("::1,::2", 2),
        ("::1,bad,::2", 1),
        (",::1,,::4,", 2),
        ("bad", 0),
        ("::1,::2,::3,::4,::5,::6,::7", 6),
        ("::1,1.2.3.4", 1),
    ] {
        assert_eq!(segments(text), count, "{text}");
    }
}

#[test]
fn addresses_are_printed_like_the_c_library_does() {
    for text in
        ["::", "::1", "::102", "::1.2.3.4", "::0.1.0.2", "::1:0:0:1", "1::2:3:4:5:6", "1:0:2:3:4:5:6:7", "1.2.3.4"]
    {
        assert_eq!(address_text(text.parse::<IpAddr>().expect("address")), text);
    }
}

#[test]
fn the_status_shows_the_route_to_the_remote_address() {
    let route = |text: &str| parse_words("t0", &words(text)).expect("valid").config.status_route();
    assert_eq!(route("vxlan remote_ip=1.2.3.4 egress_pkt_mark=7"), ([1, 2, 3, 4].into(), 7));
    assert_eq!(route("vxlan remote_ip=flow local_ip=1.2.3.4"), (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0));
}

/// Names of options, and values that most of them accept.
const NAMES: [&str; 24] = [
    "remote_ip",
    "local_ip",
    "key",
    "in_key",
    "out_key",
    "dst_port",
    "tos",
    "ttl",
    "df_default",
    "csum",
    "seq",
    "egress_pkt_mark",
    "packet_type",
    "exts",
    "erspan_ver",
    "erspan_idx",
    "erspan_dir",
    "erspan_hwid",
    "payload_type",
    "srv6_segs",
    "srv6_flowlabel",
    "psk",
    "ipsec_mode",
    "other",
];
const VALUES: [&str; 16] = [
    "flow",
    "1.2.3.4",
    "2001:db8::1",
    "::",
    "1",
    "2",
    "0",
    "inherit",
    "true",
    "false",
    "ptap",
    "legacy_l3",
    "gbp",
    "gpe",
    "mpls",
    "0x20",
];

tally::proptest! {
    #[test]
    fn any_options_give_a_configuration_or_an_error(
        tunnel_type in 0..TunnelType::ALL.len(),
        options in proptest::collection::vec((0..NAMES.len(), 0..VALUES.len() * 3, ".{0,12}"), 0..8),
    ) {
        let options: BTreeMap<String, String> = options
            .into_iter()
            .map(|(name, value, text)| {
                let value = VALUES.get(value).map_or(text, |value| (*value).to_string());
                (NAMES[name].to_string(), value)
            })
            .collect();
        let (_, tunnel_type) = TunnelType::ALL[tunnel_type];
        match Config::parse("t0", tunnel_type, &options) {
            Ok(Parsed { config, .. }) => {
                let again: BTreeMap<String, String> =
                    config.options().into_iter().map(|(name, value)| (name.to_string(), value)).collect();
                if tunnel_type == TunnelType::Gre {
                    // Its options are all visible, except addresses and numbers of other types.
                    let again = Config::parse("t0", tunnel_type, &again).map(|parsed| parsed.config.text());
                    assert_eq!(again, Ok(config.text()));
                }
            }
            Err(error) => assert!(error.to_string().starts_with("t0: ")),
        }
    }
}
