//! Commands that print information.

use crate::error::{Result, fatal};
use crate::json;
use crate::options::{Context, Format};
use crate::switch::{Target, decoded, dump, dump_stats, open, port_by_name, port_descs, shown_names, style};
use crate::vconn::Vconn;
use base::PortNo;
use openflow::message;
use openflow::multipart::{StatsReply, StatsRequest as S};
use openflow::print::Style;
use openflow::queue::{QUEUE_ALL, QueueStatsRequest};
use openflow::switch::{FragHandling, SwitchConfig};
use openflow::{Message, Version};

fn stats(c: &Context, a: &[String], request: S) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    dump_stats(c, &a[0], &mut conn, request)
}

/// Features, ports and configuration.
pub fn show(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let reply = conn.transact(&Message::FeaturesRequest)?;
    let names = shown_names(c, &a[0])?;
    if c.format != Format::Text {
        return show_json(c, a, &mut conn, &reply);
    }
    let mut out = crate::switch::Out::default();
    out.put(&openflow::print::print(&reply, style(c, names.as_ref(), c.verbosity + 1)));
    let has_ports = match message::decode(&reply) {
        Ok((_, _, Message::FeaturesReply(_))) => conn.version < Version::V13 && reply.len() < 65_000,
        _ => return Err(fatal(format!("{}: received bad features reply", a[0]))),
    };
    if !has_ports {
        out.flush();
        dump_stats(c, &a[0], &mut conn, S::PortDesc(PortNo::ANY))?;
    }
    out.flush();
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    dump(c, &a[0], &mut conn, &Message::GetConfigRequest)
}

/// Like `show`, as one JSON document.
fn show_json(c: &Context, a: &[String], conn: &mut Vconn, features: &[u8]) -> Result {
    let mut whole = decoded(features, None)?;
    let config = open(c, &a[0], Target::Mgmt)?.transact(&Message::GetConfigRequest)?;
    let ports = port_descs(conn)?;
    let ports = Message::StatsReply { more: false, body: StatsReply::PortDesc(ports) };
    if let serde_json::Value::Object(members) = &mut whole {
        members.insert("ports".into(), json::of(&ports, conn.version, None)?);
        members.insert("config".into(), decoded(&config, None)?);
    }
    json::put(c, &whole);
    Ok(())
}

/// Prints the description of the switch.
pub fn dump_desc(c: &Context, a: &[String]) -> Result {
    stats(c, a, S::Desc)
}

/// Counters of tables.
pub fn dump_tables(c: &Context, a: &[String]) -> Result {
    stats(c, a, S::Table)
}

/// Prints statistics of the bridge's IPFIX exporter.
pub fn dump_ipfix_bridge(c: &Context, a: &[String]) -> Result {
    stats(c, a, S::IpfixBridge)
}

/// Prints statistics of flow-based IPFIX exporters.
pub fn dump_ipfix_flow(c: &Context, a: &[String]) -> Result {
    stats(c, a, S::IpfixFlow)
}

/// How tables are configured.
pub fn dump_table_desc(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    if conn.version < Version::V14 {
        return Err(fatal("dump-table-desc needs OpenFlow 1.4 or later ('-O OpenFlow14')"));
    }
    dump_stats(c, &a[0], &mut conn, S::TableDesc)
}

/// Prints the features of all tables as one list.
pub fn dump_table_features(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    if conn.version < Version::V13 {
        return Err(fatal("dump-table-features needs OpenFlow 1.3 or later ('-O OpenFlow13')"));
    }
    let openflow::multipart::StatsReply::TableFeatures(tables) =
        crate::switch::stats(&mut conn, S::TableFeatures(vec![]))?
    else {
        return Ok(());
    };
    if c.format != Format::Text {
        let reply = Message::StatsReply { more: false, body: StatsReply::TableFeatures(tables) };
        json::put(c, &json::of(&reply, conn.version, None)?);
        return Ok(());
    }
    let names = shown_names(c, &a[0])?;
    let mut text = String::new();
    let style = Style { version: conn.version, ..style(c, names.as_ref(), c.verbosity + 1) };
    openflow::print::tables(&tables, &[], style, &mut text);
    cli::outln!("{}", text.strip_prefix('\n').unwrap_or(&text));
    Ok(())
}

/// Counters of ports.
pub fn dump_ports(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let port = match a.get(1) {
        Some(port) => port_by_name(c, &a[0], port)?,
        None => PortNo::ANY,
    };
    dump_stats(c, &a[0], &mut conn, S::Port(port))
}

/// Descriptions of ports.
pub fn dump_ports_desc(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    // Before OpenFlow 1.5, the request always returns all ports.
    let port = match a.get(1) {
        Some(port) => port_by_name(c, &a[0], port)?,
        None => PortNo::ANY,
    };
    dump_stats(c, &a[0], &mut conn, S::PortDesc(port))
}

/// Counters of queues.
pub fn queue_stats(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let port_no = match a.get(1) {
        Some(p) if !p.is_empty() && !p.eq_ignore_ascii_case("all") => port_by_name(c, &a[0], p)?,
        _ => PortNo::ANY,
    };
    let queue_id = match a.get(2) {
        Some(q) if !q.is_empty() && !q.eq_ignore_ascii_case("all") => leading_number(q),
        _ => QUEUE_ALL,
    };
    dump_stats(c, &a[0], &mut conn, S::Queue(QueueStatsRequest { port_no, queue_id }))
}

/// The number that an argument begins with, as `atoi` reads it: bits that do not fit are lost.
fn leading_number(text: &str) -> u32 {
    cli::leading_integer(text, 10) as u32
}

/// Queues of ports.
pub fn queue_get_config(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let port = match a.get(1) {
        Some(p) => port_by_name(c, &a[0], p)?,
        None => PortNo::ANY,
    };
    let queue_id = match a.get(2) {
        Some(q) if !q.eq_ignore_ascii_case("all") => leading_number(q),
        _ => QUEUE_ALL,
    };
    if conn.version >= Version::V14 {
        return dump_stats(c, &a[0], &mut conn, S::QueueDesc(QueueStatsRequest { port_no: port, queue_id }));
    }
    // Before OpenFlow 1.4, the request returns all queues of a port.
    if port == PortNo::ANY && conn.version == Version::V10 {
        // OpenFlow 1.0 cannot request all ports at once.
        let mut other = open(c, &a[0], Target::Mgmt)?;
        for p in port_descs(&mut other)?.iter().filter(|p| p.port_no.0 < PortNo::MAX.0) {
            dump(c, &a[0], &mut other, &Message::QueueGetConfigRequest(p.port_no))?;
        }
        return Ok(());
    }
    dump(c, &a[0], &mut conn, &Message::QueueGetConfigRequest(port))
}

/// The switch's configuration.
pub fn config(conn: &mut Vconn) -> Result<SwitchConfig> {
    let reply = conn.transact(&Message::GetConfigRequest)?;
    match message::decode(&reply) {
        Ok((_, _, Message::GetConfigReply(config))) => Ok(config),
        _ => Err(fatal(format!("{}: bad reply to config request", conn.name))),
    }
}

/// Prints the handling of fragments.
pub fn get_frags(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let mode = openflow::print::frag_name(config(&mut conn)?.frag);
    if c.format == Format::Text {
        cli::outln!("{mode}");
    } else {
        json::put(c, &mode.into());
    }
    Ok(())
}

/// Changes the handling of fragments.
pub fn set_frags(c: &Context, a: &[String]) -> Result {
    use FragHandling as F;
    let modes = [F::Normal, F::Drop, F::Reassemble, F::NxMatch];
    let mode = modes.into_iter().find(|m| openflow::print::frag_name(*m).eq_ignore_ascii_case(&a[1]));
    let mode = mode.ok_or_else(|| fatal(format!("{}: unknown fragment handling mode", a[1])))?;
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let mut current = config(&mut conn)?;
    if current.frag == mode {
        return Ok(());
    }
    current.frag = mode;
    crate::switch::transact_noreply(c, &mut conn, &Message::SetConfig(current), message::Options::default())?;
    let now = config(&mut conn)?.frag;
    if now != mode {
        return Err(fatal(format!(
            "{}: setting fragment handling mode failed (this switch probably doesn't support mode \"{}\")",
            a[0], a[1]
        )));
    }
    Ok(())
}

/// Whether it answers.
pub fn probe(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let reply = conn.transact(&Message::EchoRequest(vec![]))?;
    if reply.len() == 8 { Ok(()) } else { Err(fatal("reply does not match request")) }
}

/// How long echoes take.
pub fn ping(c: &Context, a: &[String]) -> Result {
    let payload = a.get(1).map_or(64, |n| leading_number(n) as usize);
    if payload > 65_535 - 8 {
        return Err(fatal(format!("payload must be between 0 and {} bytes", 65_535 - 8)));
    }
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    for round in 0..10u64 {
        let data: Vec<u8> = (0..payload as u64).map(|i| ((i + 1).wrapping_mul(round + 31) >> 3) as u8).collect();
        let start = std::time::Instant::now();
        let reply = conn.transact(&Message::EchoRequest(data.clone()))?;
        let ms = start.elapsed().as_secs_f64() * 1000.0;
        let xid = crate::vconn::xid_of(&reply);
        match message::decode(&reply) {
            Ok((_, _, Message::EchoReply(back))) if back == data => {}
            _ => {
                cli::outln!("Reply does not match request:");
            }
        }
        cli::outln!("{} bytes from {}: xid={xid:08x} time={ms:.1} ms", reply.len() - 8, a[0]);
    }
    Ok(())
}

/// How fast echoes go.
pub fn benchmark(c: &Context, a: &[String]) -> Result {
    let (payload, count) = (leading_number(&a[1]) as usize, u64::from(leading_number(&a[2])));
    if payload > 65_535 - 8 {
        return Err(fatal(format!("payload must be between 0 and {} bytes", 65_535 - 8)));
    }
    let size = payload as u64 + 8;
    cli::outln!("Sending {count} packets * {size} bytes (with header) = {} bytes total", count * size);
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let start = std::time::Instant::now();
    for _ in 0..count {
        conn.transact(&Message::EchoRequest(vec![0; payload]))?;
    }
    let seconds = start.elapsed().as_secs_f64();
    cli::outln!(
        "Finished in {:.1} ms ({:.0} packets/s) ({:.0} bytes/s)",
        seconds * 1000.0,
        count as f64 / seconds,
        (count * size) as f64 / seconds
    );
    Ok(())
}
