//! Commands that print flows.

use crate::error::{Result, fatal};
use crate::json;
use crate::options::{Context, Format, SortKey};
use crate::switch::{
    Out, Target, accepted_names_ports_first, dump_stats, open, set_protocol_for_dump, shown_names, stats_of, style,
};
use crate::vconn::Vconn;
use flow::{Field, Loc};
use openflow::flow_msg::{FlowStats, FlowStatsRequest};
use openflow::message::{self, Options};
use openflow::multipart::{StatsReply, StatsRequest};
use openflow::print::{FlowStyle, flow_stats};
use openflow::{FlowMod, Message, Protocols, parse_flow_filter};
use std::cmp::Ordering;

/// Parses the arguments of a dump into a request, and the formats that can express it.
pub fn request(c: &Context, a: &[String]) -> Result<(FlowStatsRequest, Protocols)> {
    let Some(text) = a.get(1).filter(|text| !text.is_empty()) else {
        return Ok((FlowStatsRequest::default(), Protocols::ANY));
    };
    let names = accepted_names_ports_first(c, &a[0])?;
    let parsed = parse_flow_filter(text, &names).map_err(fatal)?;
    // Naming a table does not restrict the formats here, as all requests have a table.
    let fm = parsed.flow_mod;
    Ok((request_of(&fm), requests(parsed.usable)))
}

/// Requests contain a table in each format, so formats without the table id extension are usable, too.
pub fn requests(usable: Protocols) -> Protocols {
    let without = |tid: Protocols, plain: Protocols| if usable.contains(tid) { plain } else { Protocols::NONE };
    usable
        | without(Protocols::OF10_STD_TID, Protocols::OF10_STD)
        | without(Protocols::OF10_NXM_TID, Protocols::OF10_NXM)
}

fn request_of(fm: &FlowMod) -> FlowStatsRequest {
    FlowStatsRequest {
        matching: fm.matching.clone(),
        table_id: fm.table_id,
        out_port: fm.out_port,
        out_group: fm.out_group,
        cookie: fm.cookie,
        cookie_mask: fm.cookie_mask,
    }
}

/// The request in a flow format.
fn flow_request(q: FlowStatsRequest, p: Protocols) -> StatsRequest {
    if crate::protocol::is_nxm(p) { StatsRequest::NxFlow(q) } else { StatsRequest::Flow(q) }
}

/// Prints the flows.
pub fn dump_flows(c: &Context, a: &[String]) -> Result {
    let (q, usable) = request(c, a)?;
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let p = set_protocol_for_dump(c, &mut conn, usable)?;
    if c.sort.is_empty() && !c.show_names() && c.stats {
        return dump_stats(c, &a[0], &mut conn, flow_request(q, p));
    }
    let show = if c.stats { FlowStyle::WithStats } else { FlowStyle::NoStats };
    let mut out = Out::default();
    let mut names = None;
    let mut print = |flows: &mut [FlowStats]| -> Result {
        // Names are only needed if there are flows.
        if names.is_none() && !flows.is_empty() {
            names = Some(shown_names(c, &a[0])?);
        }
        let names = names.as_ref().and_then(Option::as_ref);
        if c.format != Format::Text {
            let version = crate::protocol::versions(p).newest().unwrap_or(openflow::Version::V10);
            let body = StatsReply::Flow(flows.to_vec());
            json::put(c, &json::of(&Message::StatsReply { more: false, body }, version, names)?);
            return Ok(());
        }
        let mut style = style(c, names, c.verbosity);
        style.version = crate::protocol::versions(p).newest().unwrap_or(openflow::Version::V10);
        for f in flows {
            let mut line = String::from(" ");
            // Only whole messages show ages, unless they are regular statistics.
            if style.version < openflow::Version::V15 {
                f.idle_age = None;
                f.hard_age = None;
            }
            flow_stats(f, show, style, &mut line);
            line.push('\n');
            out.put(&c.paint(line));
        }
        Ok(())
    };
    // JSON output is a single document with all flows.
    if c.sort.is_empty() && c.format == Format::Text {
        return each_part(&mut conn, flow_request(q, p), |mut flows| print(&mut flows));
    }
    let mut all = Vec::new();
    each_part(&mut conn, flow_request(q, p), |flows| {
        all.extend(flows);
        Ok(())
    })?;
    all.sort_by(|a, b| c.sort.iter().map(|k| compare(a, b, *k)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal));
    print(&mut all)
}

/// Compares two flows; flows that lack the field come last.
fn compare(a: &FlowStats, b: &FlowStats, key: SortKey) -> Ordering {
    let Some(field) = key.field else {
        let order = a.priority.cmp(&b.priority);
        return if key.descending { order.reverse() } else { order };
    };
    if let Loc::TunMetadata(_) = field.info().loc {
        return compare_options(a, b, field, key.descending);
    }
    let ((av, am), (bv, bm)) = (a.matching.get(field), b.matching.get(field));
    let applies = |f: &FlowStats, mask: u128| mask != 0 && f.matching.meets(field.info().prereq);
    match (applies(a, am), applies(b, bm)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => Ordering::Equal,
        (true, true) if key.descending => bv.cmp(&av),
        (true, true) => av.cmp(&bv),
    }
}

/// Does the same for a tunnel option, whose value is a number of any length.
fn compare_options(a: &FlowStats, b: &FlowStats, field: Field, descending: bool) -> Ordering {
    let value = |f: &FlowStats| {
        let option = f.matching.options().iter().find(|option| option.field() == field)?;
        let number = option.value().iter().skip_while(|byte| **byte == 0);
        Some(number.copied().collect::<Vec<u8>>())
    };
    match (value(a), value(b)) {
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
        (Some(a), Some(b)) => {
            let order = (a.len(), a).cmp(&(b.len(), b));
            if descending { order.reverse() } else { order }
        }
    }
}

/// Requests flows and passes each part of the reply to `take`.
fn each_part(conn: &mut Vconn, body: StatsRequest, mut take: impl FnMut(Vec<FlowStats>) -> Result) -> Result {
    let xid = conn.send_message(&Message::StatsRequest { more: false, body }, Options::default())?;
    loop {
        let msg = conn.answer(xid)?;
        if message::decode(&msg).is_err() {
            return Err(fatal("dump flows (Protocol error)"));
        }
        match stats_of(&msg)? {
            (StatsReply::Flow(flows) | StatsReply::NxFlow(flows), more) => {
                take(flows)?;
                if !more {
                    return Ok(());
                }
            }
            _ => return Err(fatal("received bad reply")),
        }
    }
}

/// Reads all flows on a connection in this format.
pub fn all_flows(conn: &mut Vconn, p: Protocols, mut take: impl FnMut(FlowStats)) -> Result {
    each_part(conn, flow_request(FlowStatsRequest::default(), p), |flows| {
        flows.into_iter().for_each(&mut take);
        Ok(())
    })
}

/// Prints sums over flows.
pub fn dump_aggregate(c: &Context, a: &[String]) -> Result {
    let (q, usable) = request(c, a)?;
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let p = set_protocol_for_dump(c, &mut conn, usable)?;
    let body = if crate::protocol::is_nxm(p) { StatsRequest::NxAggregate(q) } else { StatsRequest::Aggregate(q) };
    dump_stats(c, &a[0], &mut conn, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::text::{NoNames, match_to_string, parse_match};

    #[test]
    fn flows_are_sorted_by_tunnel_options() {
        let field = Field::from_name("tun_metadata0").expect("a field");
        let sorted = |descending| {
            let texts = ["tun_metadata1=0xef", "tun_metadata0=0x10/0xf0", "tun_metadata0=0x5", "tun_metadata0=0x1ff"];
            let flow = |text: &&str| FlowStats::blank(0, parse_match(text, &NoNames).expect("a match"));
            let mut flows: Vec<FlowStats> = texts.iter().map(flow).collect();
            let key = SortKey { field: Some(field), descending };
            flows.sort_by(|a, b| compare(a, b, key));
            flows.iter().map(|f| match_to_string(&f.matching, &NoNames)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sorted(false), "tun_metadata0=0x5 tun_metadata0=0x10/0xf0 tun_metadata0=0x1ff tun_metadata1=0xef");
        assert_eq!(sorted(true), "tun_metadata0=0x1ff tun_metadata0=0x10/0xf0 tun_metadata0=0x5 tun_metadata1=0xef");
    }
}
