//! Any text as a match: either an error, or the printed match parses as the same match.
#![no_main]

use flow::Field;
use flow::text::{NoNames, match_to_string, parse_match};

/// Fields whose text has no mask. A partial mask is printed nevertheless, or omitted.
const UNMASKABLE: [Field; 7] =
    [Field::ArpOp, Field::ConjId, Field::CtZone, Field::CtNwProto, Field::IpProto, Field::RecircId, Field::SkbPriority];

fuzz::target!(|bytes: &[u8]| {
    let Some(text) = fuzz::text(bytes) else { return };
    let Ok(mut matching) = parse_match(text, &NoNames) else { return };
    matching.normalize(&NoNames);
    // Some bits of a field without masks: no format can express them, and readers of a flow refuse them.
    let partial = |f: Field| !matches!(matching.get(f).1, mask if mask == 0 || mask == f.info().full_mask());
    if UNMASKABLE.into_iter().any(partial) {
        return;
    }
    let printed = match_to_string(&matching, &NoNames);
    // As Open vSwitch prints them: two under names that it does not read, one in digits that it reads as others, and one
    // value, which no packet has, without a name. (The tests of the flow crate hold each field to no more than that.)
    let readable = printed.replace("gtpu_flags", "tun_gtpu_flags").replace("gtpu_msgtype", "tun_gtpu_msgtype");
    let readable = readable.replace("tun_tos=", "tun_tos=0x").replace("nw_frag=<error>", "nw_frag[0..1]=2");
    match parse_match(&readable, &NoNames) {
        // Texts, not values: a field whose prerequisites the match lacks is not printed, or only by `eth`.
        Ok(again) => assert_eq!(without_eth(&match_to_string(&again, &NoNames)), without_eth(&printed), "{text}"),
        Err(e) => panic!("{text} was printed as {printed}: {e}"),
    }
});

fn without_eth(printed: &str) -> String {
    printed.split(',').filter(|part| *part != "eth").collect::<Vec<_>>().join(",")
}
