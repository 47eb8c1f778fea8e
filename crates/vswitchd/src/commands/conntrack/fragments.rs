//! Reassembly of fragments.

use super::super::{act, show};
use super::{answer, invalid, not_permitted, open, options};
use crate::devices::Devices;
use dpif::connections::{Family, FamilyStatus, FragmentList, FragmentListState, FragmentStatus};
use openflow::ct_flush::leading_u32;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::Commands;

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    for (name, on, text) in [
        ("dpctl/ipf-set-enabled", true, "enabling fragmentation reassembly successful\n"),
        ("dpctl/ipf-set-disabled", false, "disabling fragmentation reassembly successful\n"),
    ] {
        act(commands, devices, (name, "[dp] v4|v6", 1..=2), move |d, args| {
            let words = options(args)?.1;
            let (dp, _) = open(d, words, 3)?;
            let family = words.last().and_then(|text| parse_family(text));
            let family = family.ok_or_else(|| invalid("parameter missing: 'v4' for IPv4 or 'v6' for IPv6"))?;
            dp.dpif.set_reassembly(family, on);
            Ok(text.to_owned())
        });
    }
    act(commands, devices, ("dpctl/ipf-set-min-frag", "[dp] v4|v6 minfragment", 2..=3), |d, args| {
        let words = options(args)?.1;
        let (dp, _) = open(d, words, 3)?;
        let [.., family, bytes] = words else { return Err(invalid(NO_FAMILY)) };
        let family = parse_family(family).ok_or_else(|| invalid(NO_FAMILY))?;
        let bytes = leading_u32(bytes).ok_or_else(|| invalid("parameter missing for minimum fragment size"))?;
        if !dp.dpif.set_fragment_size_min(family, bytes) {
            return Err(not_permitted("requested minimum fragment size too small; see documentation"));
        }
        Ok("setting minimum fragment size successful\n".to_owned())
    });
    act(commands, devices, ("dpctl/ipf-set-max-nfrags", "[dp] maxfrags", 1..=2), |d, args| {
        let words = options(args)?.1;
        let (dp, _) = open(d, words, 2)?;
        let max = words.last().and_then(|text| leading_u32(text));
        if !dp.dpif.set_fragments_max(max.ok_or_else(|| invalid("parameter missing for maximum fragments"))?) {
            return Err(not_permitted("setting maximum fragments failed"));
        }
        Ok("setting maximum fragments successful\n".to_owned())
    });
    show(commands, devices, ("dpctl/ipf-get-status", "[dp]", 0..=1), |d, args, format| {
        let (options, words) = options(args)?;
        let (dp, _) = open(d, words, 1)?;
        let status = dp.dpif.fragment_status();
        let mut lists = Vec::new();
        if options.more {
            dp.dpif.fragment_lists(&mut |list| lists.push(*list));
        }
        let lists = options.more.then_some(&lists[..]);
        Ok(answer(format, || text(&status, lists), || status_json(&status, lists)))
    });
}

const NO_FAMILY: &str = "parameter missing: v4 for IPv4 or v6 for IPv6";

/// As in Open vSwitch, letters may follow.
fn parse_family(text: &str) -> Option<Family> {
    match text.get(..2) {
        Some("v4") => Some(Family::V4),
        Some("v6") => Some(Family::V6),
        _ => None,
    }
}

fn state_name(state: FragmentListState) -> &'static str {
    match state {
        FragmentListState::Other => "other frag",
        FragmentListState::First => "first frag",
        FragmentListState::Last => "last frag",
        FragmentListState::FirstLast => "first/last frag",
    }
}

fn text(status: &FragmentStatus, lists: Option<&[FragmentList]>) -> String {
    let families = [("v4", &status.v4), ("v6", &status.v6)];
    let mut lines = vec!["Fragmentation Module Status".to_owned(), "---------------------------".to_owned()];
    lines.extend(families.map(|(name, of)| format!("{name} enabled: {}", u8::from(of.enabled))));
    lines.push(format!("max num frags (v4/v6): {}", status.max_fragments));
    lines.push(format!("num frag: {}", status.fragments));
    for (name, of) in families {
        lines.push(format!("min {name} frag size: {}", of.min_size));
        lines.extend(counters(of).map(|(what, n)| format!("{name} frags {what}: {n}")));
    }
    let mut text: String = lines.iter().map(|line| format!("        {line}\n")).collect();
    if let Some(lists) = lists {
        text.push_str("\n        Fragment Lists:\n\n");
        for list in lists {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "(src={},dst={},recirc_id={},ip_id={},dl_type={:#x},zone={},nw_proto={},num_fragments={},state={})",
                list.src,
                list.dst,
                list.recirc_id,
                list.id,
                ether_type(list.family),
                list.zone,
                list.proto,
                list.fragments,
                state_name(list.state),
            );
        }
    }
    text
}

fn counters(of: &FamilyStatus) -> [(&'static str, u64); 6] {
    let counters = &of.counters;
    [
        ("accepted", counters.accepted),
        ("completed", counters.completed),
        ("expired", counters.expired),
        ("too small", counters.too_small),
        ("overlapped", counters.overlapped),
        ("purged", counters.purged),
    ]
}

fn ether_type(family: Family) -> u16 {
    match family {
        Family::V4 => flow::extract::ethertype::IPV4,
        Family::V6 => flow::extract::ethertype::IPV6,
    }
}

fn status_json(status: &FragmentStatus, lists: Option<&[FragmentList]>) -> Value {
    let family = |of: &FamilyStatus| {
        let mut object = json!({"enabled": of.enabled, "min-size": of.min_size});
        for (name, n) in counters(of) {
            object[name.replace(' ', "-")] = n.into();
        }
        object
    };
    let mut object = json!({
        "max-fragments": status.max_fragments,
        "fragments": status.fragments,
        "v4": family(&status.v4),
        "v6": family(&status.v6),
    });
    if let Some(lists) = lists {
        let list = |list: &FragmentList| {
            json!({
                "src": list.src.to_string(),
                "dst": list.dst.to_string(),
                "recirc-id": list.recirc_id,
                "id": list.id,
                "zone": list.zone,
                "proto": list.proto,
                "fragments": list.fragments,
                "state": state_name(list.state),
            })
        };
        object["lists"] = lists.iter().map(list).collect();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::connections::FragmentCounters;

    #[test]
    fn status_with_lists() {
        let family = |min_size| FamilyStatus { enabled: true, min_size, counters: FragmentCounters::default() };
        let status = FragmentStatus { v4: family(1200), v6: family(1280), max_fragments: 1000, fragments: 1 };
        let list = FragmentList {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            recirc_id: 0,
            id: 77,
            family: Family::V4,
            zone: 1,
            proto: 17,
            fragments: 1,
            state: FragmentListState::First,
        };
        let plain = text(&status, None);
        assert!(plain.starts_with("        Fragmentation Module Status\n        -----"), "{plain}");
        assert!(plain.ends_with("        v6 frags overlapped: 0\n        v6 frags purged: 0\n"), "{plain}");
        let line = "(src=10.0.0.1,dst=10.0.0.2,recirc_id=0,ip_id=77,dl_type=0x800,zone=1,nw_proto=17,num_fragments=1,\
                    state=first frag)\n";
        assert_eq!(text(&status, Some(&[list])), format!("{plain}\n        Fragment Lists:\n\n{line}"));
        let object = status_json(&status, Some(&[list]));
        assert_eq!((&object["v6"]["min-size"], &object["v4"]["too-small"]), (&json!(1280), &json!(0)));
        assert_eq!(object["lists"][0]["state"], "first frag");
    }

    #[test]
    fn families() {
        assert_eq!([parse_family("v4x"), parse_family("v6")], [Some(Family::V4), Some(Family::V6)]);
        assert_eq!([parse_family("v"), parse_family("ip4")], [None, None]);
    }
}
