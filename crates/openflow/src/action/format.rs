//! Formats actions as `ovs-ofctl dump-flows` prints them.

use super::{Action, ControllerAction, PacketInReason, ct, encap, nat, sample, select};
use crate::print::format_table;
use crate::version::Version;
use base::PortNo;
use flow::Field;
use flow::PortNames;
use flow::extract::ethertype::PBB;
use flow::field::Format;
use flow::text::{format_port, format_value};
use std::fmt::Write;

/// Appends a list of actions; `drop` if it is empty. For OpenFlow 1.0, popping a tag is called `strip_vlan`.
pub fn format_actions(out: &mut String, actions: &[Action], ports: &dyn PortNames, version: Version) {
    if actions.is_empty() {
        out.push_str("drop");
    }
    for (i, action) in actions.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        format_action(out, action, ports, version);
    }
}

/// Returns a list of actions as text; see [`format_actions`].
pub fn actions_to_string(actions: &[Action], ports: &dyn PortNames, version: Version) -> String {
    let mut out = String::new();
    format_actions(&mut out, actions, ports, version);
    out
}

/// Appends one action.
pub fn format_action(out: &mut String, action: &Action, ports: &dyn PortNames, version: Version) {
    // Writing to a string cannot fail.
    macro_rules! put {
        ($($arg:tt)*) => {{ let _ = write!(out, $($arg)*); }};
    }
    match action {
        Action::Output { port: PortNo::CONTROLLER, max_len } => put!("CONTROLLER:{max_len}"),
        Action::Output { port, .. } => {
            if port.reserved_name().is_none() {
                out.push_str("output:");
            }
            format_port(*port, ports, out);
        }
        Action::OutputReg { src, .. } => put!("output:{src}"),
        Action::OutputTrunc { port, max_len } => {
            out.push_str("output(port=");
            format_port(*port, ports, out);
            put!(",max_len={max_len})");
        }
        Action::Controller(c) => format_controller(out, c),
        Action::Enqueue { port, queue } => {
            out.push_str("enqueue:");
            format_port(*port, ports, out);
            put!(":{queue}");
        }
        Action::SetQueue(queue) => put!("set_queue:{queue}"),
        Action::PopQueue => out.push_str("pop_queue"),
        Action::SetVlanVid { vid, push_if_needed: true } => put!("mod_vlan_vid:{vid}"),
        Action::SetVlanVid { vid, .. } => put!("set_vlan_vid:{vid}"),
        Action::SetVlanPcp { pcp, push_if_needed: true } => put!("mod_vlan_pcp:{pcp}"),
        Action::SetVlanPcp { pcp, .. } => put!("set_vlan_pcp:{pcp}"),
        Action::PopVlan if version == Version::V10 => out.push_str("strip_vlan"),
        Action::PopVlan => out.push_str("pop_vlan"),
        Action::PushVlan(tpid) => put!("push_vlan:{}", hex(*tpid)),
        Action::PushMpls(eth_type) => put!("push_mpls:0x{eth_type:04x}"),
        Action::PopMpls(eth_type) => put!("pop_mpls:0x{eth_type:04x}"),
        Action::PushPbb => put!("push_pbb:0x{PBB:04x}"),
        Action::SetMplsLabel(label) => put!("set_mpls_label({label})"),
        Action::SetMplsTc(tc) => put!("set_mpls_tc({tc})"),
        Action::SetMplsTtl(ttl) => put!("set_mpls_ttl({ttl})"),
        Action::PopPbb | Action::DecMplsTtl | Action::CopyTtlOut | Action::CopyTtlIn | Action::DecNshTtl => {
            out.push_str(action.name());
        }
        Action::Encap(e) => encap::format_encap(out, e),
        Action::Decap(packet_type) => encap::format_decap(out, *packet_type),
        Action::SetEthSrc(mac) => put!("mod_dl_src:{mac}"),
        Action::SetEthDst(mac) => put!("mod_dl_dst:{mac}"),
        Action::SetIpv4Src(ip) => put!("mod_nw_src:{ip}"),
        Action::SetIpv4Dst(ip) => put!("mod_nw_dst:{ip}"),
        Action::SetIpDscp(tos) => put!("mod_nw_tos:{tos}"),
        Action::SetIpEcn(ecn) => put!("mod_nw_ecn:{ecn}"),
        Action::SetIpTtl(ttl) => put!("mod_nw_ttl:{ttl}"),
        Action::SetL4Src(port) => put!("mod_tp_src:{port}"),
        Action::SetL4Dst(port) => put!("mod_tp_dst:{port}"),
        Action::SetField { field, value, mask } => {
            out.push_str("set_field:");
            let info = field.info();
            let (partial, integer) =
                (*mask != 0 && *mask != info.wire_mask(), matches!(info.format, Format::Decimal | Format::Hex));
            match info.format {
                Format::Hex if partial && *value != 0 => put!("{value:#x}/{mask:#x}"),
                // A masked port number names no port.
                _ if partial && (integer || *field == Field::InPort) => put!("{value}/{mask:#x}"),
                _ if *mask == 0 && *field == Field::InPort => out.push_str("ANY"),
                _ => format_value(*field, *value, *mask, ports, out),
            }
            put!("->{}", field.name());
        }
        Action::SetTunOption(option) => {
            out.push_str("set_field:");
            option.format_value(out);
            put!("->{}", option.field());
        }
        Action::RegLoad { dst, value } => put!("load:{}->{dst}", hex(*value)),
        Action::RegMove { src, dst } | Action::CopyField { src, dst } => put!("move:{src}->{dst}"),
        Action::StackPush(part) => put!("push:{part}"),
        Action::StackPop(part) => put!("pop:{part}"),
        Action::DecTtl(None) => out.push_str("dec_ttl"),
        Action::DecTtl(Some(ids)) => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            put!("dec_ttl({})", ids.join(","));
        }
        Action::SetTunnel { id, wide } => {
            let wide = if *wide || u32::try_from(*id).is_err() { "64" } else { "" };
            put!("set_tunnel{wide}:{}", hex(*id));
        }
        Action::Resubmit { in_port: Some(port), table: None } | Action::ResubmitPort { in_port: Some(port) } => {
            out.push_str("resubmit:");
            format_port(*port, ports, out);
        }
        Action::Resubmit { in_port, table } => {
            out.push_str("resubmit(");
            if let Some(port) = in_port {
                format_port(*port, ports, out);
            }
            out.push(',');
            if let Some(table) = table {
                format_table(*table, ports, out);
            }
            out.push(')');
        }
        Action::ResubmitPort { in_port: None } => out.push_str("resubmit(,)"),
        Action::ResubmitCt { in_port, table } => {
            out.push_str("resubmit(");
            if let Some(port) = in_port {
                format_port(*port, ports, out);
            }
            put!(",{},ct)", table.map_or(String::new(), |table| table.to_string()));
        }
        Action::Ct(c) => ct::format(out, c, ports, |out, exec| format_actions(out, exec, ports, version)),
        Action::Nat(n) => nat::format(out, n),
        Action::CtClear => out.push_str("ct_clear"),
        Action::DebugSlow => out.push_str("debug_slow"),
        Action::DebugRecirc => out.push_str("debug_recirc"),
        Action::Sample(s) => sample::format(out, s, ports),
        Action::DeleteField(field) => put!("delete_field:{field}"),
        Action::Group(id) => put!("group:{id}"),
        Action::Conjunction { id, clause, n_clauses } => {
            put!("conjunction({id},{}/{n_clauses})", u16::from(*clause) + 1);
        }
        Action::Learn(learn) => learn.format(out, ports),
        Action::CheckPktLarger { len, dst } => put!("check_pkt_larger({len})->{dst}"),
        Action::Multipath(m) => select::format_multipath(out, m),
        Action::Bundle(bundle) => select::format_bundle(out, bundle, ports),
        Action::FinTimeout { idle_timeout, hard_timeout } => {
            let parts = [("idle_timeout", idle_timeout), ("hard_timeout", hard_timeout)];
            let parts: Vec<String> =
                parts.into_iter().filter(|(_, n)| **n != 0).map(|(name, n)| format!("{name}={n}")).collect();
            put!("fin_timeout({})", parts.join(","));
        }
        Action::Clone(actions) => {
            out.push_str("clone(");
            format_actions(out, actions, ports, version);
            out.push(')');
        }
        Action::Note(bytes) => {
            out.push_str("note:");
            format_bytes(out, bytes);
        }
        Action::Exit => out.push_str("exit"),
        Action::Meter(id) => put!("meter:{id}"),
        Action::ClearActions => out.push_str("clear_actions"),
        Action::WriteActions(actions) => {
            out.push_str("write_actions(");
            format_actions(out, actions, ports, version);
            out.push(')');
        }
        Action::WriteMetadata { value, mask: u64::MAX } => put!("write_metadata:{}", hex(*value)),
        Action::WriteMetadata { value, mask } => put!("write_metadata:{}/{}", hex(*value), hex(*mask)),
        Action::GotoTable(table) => {
            out.push_str("goto_table:");
            format_table(*table, ports, out);
        }
    }
}

/// `0x` and hexadecimal digits, but plain `0`, as the C library prints `%#x`.
fn hex(n: impl Into<u128>) -> String {
    let n = n.into();
    if n == 0 { "0".into() } else { format!("{n:#x}") }
}

/// Appends pairs of hexadecimal digits separated by dots.
fn format_bytes(out: &mut String, bytes: &[u8]) {
    for (i, byte) in bytes.iter().enumerate() {
        let _ = write!(out, "{}{byte:02x}", if i > 0 { "." } else { "" });
    }
}

fn format_controller(out: &mut String, c: &ControllerAction) {
    let plain = ControllerAction { max_len: c.max_len, ..ControllerAction::default() };
    if *c == plain {
        let _ = write!(out, "CONTROLLER:{}", c.max_len);
        return;
    }
    let mut parts = Vec::new();
    if c.reason != PacketInReason::Action {
        parts.push(format!("reason={}", c.reason.name()));
    }
    if c.max_len != 0xffff {
        parts.push(format!("max_len={}", c.max_len));
    }
    if c.controller_id != 0 {
        parts.push(format!("id={}", c.controller_id));
    }
    if !c.userdata.is_empty() {
        let mut bytes = String::from("userdata=");
        format_bytes(&mut bytes, &c.userdata);
        parts.push(bytes);
    }
    if c.pause {
        parts.push("pause".into());
    }
    if let Some(id) = c.meter_id {
        parts.push(format!("meter_id={id}"));
    }
    let _ = write!(out, "controller({})", parts.join(","));
}
