//! Prints features, configuration, roles and related messages.

use super::{Style, bit_names};
use crate::Version::{self, V10, V11};
use crate::asynchronous::{AsyncChange, AsyncConfig, Masks};
use crate::bundle::{BundleControl, BundleStep, flag};
use crate::bundle_features::{BundleFeatures, BundleFeaturesRequest, Time, TimeFeatures, flag as features};
use crate::controller_status::ControllerStatus;
use crate::packet;
use crate::request_forward::{ForwardedRequest, RequestForward};
use crate::role::{Role, RoleMsg, RoleReason, RoleStatus};
use crate::switch::{Features, FragHandling, SwitchConfig, capability as c};
use std::fmt::Write;

const CAPABILITIES: [(u32, &str); 11] = [
    (c::FLOW_STATS, "FLOW_STATS"),
    (c::TABLE_STATS, "TABLE_STATS"),
    (c::PORT_STATS, "PORT_STATS"),
    (c::STP, "STP"),
    (c::GROUP_STATS, "GROUP_STATS"),
    (c::IP_REASM, "IP_REASM"),
    (c::QUEUE_STATS, "QUEUE_STATS"),
    (c::ARP_MATCH_IP, "ARP_MATCH_IP"),
    (c::PORT_BLOCKED, "PORT_BLOCKED"),
    (c::BUNDLES, "BUNDLES"),
    (c::FLOW_MONITORING, "FLOW_MONITORING"),
];

/// Action types of OpenFlow 1.0, by number.
pub(super) const ACTIONS10: [&str; 12] = [
    "output",
    "set_vlan_vid",
    "set_vlan_pcp",
    "strip_vlan",
    "mod_dl_src",
    "mod_dl_dst",
    "mod_nw_src",
    "mod_nw_dst",
    "mod_nw_tos",
    "mod_tp_src",
    "mod_tp_dst",
    "enqueue",
];

/// Names of actions in the order of printing, with the type's number in OpenFlow 1.1+.
const ACTIONS11: [(u32, &str); 26] = [
    (0, "output"),
    (22, "group"),
    (25, "set_field"),
    (1, "set_vlan_vid"),
    (2, "set_vlan_pcp"),
    (18, "strip_vlan"),
    (17, "push_vlan"),
    (3, "mod_dl_src"),
    (4, "mod_dl_dst"),
    (5, "mod_nw_src"),
    (6, "mod_nw_dst"),
    (7, "mod_nw_tos"),
    (8, "mod_nw_ecn"),
    (23, "mod_nw_ttl"),
    (9, "mod_tp_src"),
    (10, "mod_tp_dst"),
    (24, "dec_ttl"),
    (13, "set_mpls_label"),
    (14, "set_mpls_tc"),
    (15, "set_mpls_ttl"),
    (16, "dec_mpls_ttl"),
    (19, "push_mpls"),
    (20, "pop_mpls"),
    (21, "set_queue"),
    (26, "push_pbb"),
    (27, "pop_pbb"),
];

/// Actions of OpenFlow 1.1 that later versions replaced by `set_field`.
const ONLY_IN_11: u32 = 0b0110_0111_1111_1110;

/// Returns the actions of a bitmap that have a name in `version`.
pub(super) fn known_actions(version: Version, bits: u32) -> u32 {
    let bits = if version == V11 { bits & 0x01ff_ffff } else { bits & !ONLY_IN_11 };
    ACTIONS11.iter().fold(0, |known, (bit, _)| known | bits & 1 << bit)
}

/// Returns the names of the actions of a bitmap in the numbering of `version`, which is not OpenFlow 1.0.
pub(super) fn action_names(version: Version, bits: u32) -> Vec<&'static str> {
    let bits = known_actions(version, bits);
    ACTIONS11.iter().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, name)| *name).collect()
}

/// Appends the actions of a bitmap in the numbering of `version`, separated by blanks.
pub(super) fn actions(version: Version, bits: u32, out: &mut String) {
    let names: Vec<&str> = if version == V10 {
        // enqueue is listed with output.
        let order = [0, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        order.into_iter().filter(|i| bits & 1 << i != 0).map(|i: usize| ACTIONS10[i]).collect()
    } else {
        action_names(version, bits)
    };
    out.push_str(&if names.is_empty() { "<none>".to_owned() } else { names.join(" ") });
}

pub(super) fn features(version: Version, f: &Features, style: Style<'_>, out: &mut String) {
    put!(out, " dpid:{:016x}\nn_tables:{}, n_buffers:{}", f.datapath_id, f.n_tables, f.n_buffers);
    if f.auxiliary_id != 0 {
        put!(out, ", auxiliary_id:{}", f.auxiliary_id);
    }
    out.push_str("\ncapabilities: ");
    bit_names(f.capabilities, &CAPABILITIES, out);
    out.push('\n');
    if version == V10 && f.actions & 0xfff != 0 {
        out.push_str("actions: ");
        actions(version, f.actions, out);
        out.push('\n');
    }
    super::ports::port_descs(&f.ports, style, out);
}

/// Returns the name of a fragment handling mode.
pub fn frag_name(frag: FragHandling) -> &'static str {
    match frag {
        FragHandling::Normal => "normal",
        FragHandling::Drop => "drop",
        FragHandling::Reassemble => "reassemble",
        FragHandling::NxMatch => "nx-match",
    }
}

pub(super) fn switch_config(config: SwitchConfig, out: &mut String) {
    put!(out, " frags={}", frag_name(config.frag));
    if config.invalid_ttl_to_controller == Some(true) {
        out.push_str(" invalid_ttl_to_controller");
    }
    put!(out, " miss_send_len={}\n", config.miss_send_len);
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::NoChange => "nochange",
        Role::Equal => "equal",
        Role::Primary => "primary",
        Role::Secondary => "secondary",
    }
}

pub(super) fn role(r: RoleMsg, reply: bool, out: &mut String) {
    put!(out, " role={}", role_name(r.role));
    // The generation id of a request without a role change has no effect.
    if let Some(id) = r.generation_id.filter(|_| reply || r.role != Role::NoChange) {
        put!(out, " generation_id={id}");
    }
}

pub(super) fn role_status(s: RoleStatus, out: &mut String) {
    put!(out, " role={}", role_name(s.role));
    if let Some(id) = s.generation_id {
        put!(out, " generation_id={id}");
    }
    let reason = match s.reason {
        RoleReason::PrimaryRequest => ROLE_REASONS[0],
        RoleReason::Config => ROLE_REASONS[1],
        RoleReason::Experimenter => ROLE_REASONS[2],
        RoleReason::Other(_) => "(unknown)",
    };
    put!(out, " reason={reason}");
}

const CONTROLLER_REASONS: [&str; 7] = [
    "request",
    "channel_status",
    "role",
    "controller_added",
    "controller_removed",
    "short_id",
    "experimenter_data_changed",
];

pub(super) fn controller_status(s: &ControllerStatus, out: &mut String) {
    put!(out, " short_id={} role={}", s.short_id, role_name(s.role));
    put!(out, " reason={}", CONTROLLER_REASONS.get(s.reason as usize).unwrap_or(&"(unknown)"));
    put!(out, " channel={}", if s.is_up { "up" } else { "down" });
    if let Some(uri) = &s.uri {
        put!(out, " uri={}", super::printable(uri));
    }
}

pub(super) fn bundle_features_request(f: &BundleFeaturesRequest, out: &mut String) {
    out.push_str(" flags=");
    bit_names(f.flags, &[(features::TIMESTAMP, "timestamp"), (features::TIME_SET_SCHED, "time_set_sched")], out);
    time_features(f.time.as_ref(), out);
}

pub(super) fn bundle_features(f: &BundleFeatures, out: &mut String) {
    bundle_flags(f.capabilities, out);
    time_features(f.time.as_ref(), out);
}

fn time_features(time: Option<&TimeFeatures>, out: &mut String) {
    if let Some(t) = time {
        let all = [
            ("accuracy", t.accuracy),
            ("max_future", t.max_future),
            ("max_past", t.max_past),
            ("timestamp", t.timestamp),
        ];
        for (name, Time { seconds, nanoseconds }) in all {
            put!(out, " {name}={seconds}.{nanoseconds:09}s");
        }
    }
}

const ROLE_REASONS: [&str; 3] = ["primary_request", "configuration_changed", "experimenter_data_changed"];

pub(super) fn request_forward(f: &RequestForward, style: Style<'_>, out: &mut String) {
    match &f.request {
        ForwardedRequest::Group(m) => {
            out.push_str(" reason=group_mod");
            super::groups::group_mod(m, style, out);
        }
        ForwardedRequest::Meter(m) => {
            out.push_str(" reason=meter_mod");
            super::meters::meter_mod(m, out);
        }
    }
}

pub(super) fn flow_format(n: u32, out: &mut String) {
    match n {
        0 => out.push_str(" format=openflow10"),
        2 => out.push_str(" format=nxm"),
        _ => out.push_str(" format=(unknown)"),
    }
}

pub(super) fn bundle_control(b: BundleControl, out: &mut String) {
    let step = match BundleStep::from_wire(b.ty) {
        Some((step, reply)) => {
            let step = ["OPEN", "CLOSE", "COMMIT", "DISCARD"][step as usize];
            format!("{step}_{}", if reply { "REPLY" } else { "REQUEST" })
        }
        None => String::new(),
    };
    bundle_id(b.bundle_id, out);
    put!(out, " type={step}");
    bundle_flags(b.flags, out);
    out.push('\n');
}

pub(super) fn bundle_id(id: u32, out: &mut String) {
    put!(out, "\n bundle_id={}", if id == 0 { "0".to_owned() } else { format!("0x{id:x}") });
}

/// Appends ` flags=atomic ordered` or ` flags=0`.
pub(super) fn bundle_flags(flags: u16, out: &mut String) {
    out.push_str(" flags=");
    let mut words: Vec<String> = [(flag::ATOMIC, "atomic"), (flag::ORDERED, "ordered")]
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let rest = flags & !(flag::ATOMIC | flag::ORDERED);
    if rest != 0 {
        words.push(format!("0x{rest:x}"));
    }
    out.push_str(&if words.is_empty() { "0".to_owned() } else { words.join(" ") });
}

pub(super) fn async_config(change: &AsyncChange, out: &mut String) {
    const PORT: [&str; 3] = ["add", "delete", "modify"];
    const REMOVED: [&str; 6] = ["idle", "hard", "delete", "group_delete", "meter_delete", "eviction"];
    const TABLE: [&str; 5] = ["", "", "", "vacancy_down", "vacancy_up"];
    const FORWARD: [&str; 2] = ["group_mod_request", "meter_mod_request"];
    let mut a = AsyncConfig::default();
    change.apply(&mut a);
    let kinds: [(&str, Masks, &[&str]); 7] = [
        ("PACKET_IN", a.packet_in, &packet::REASONS),
        ("PORT_STATUS", a.port_status, &PORT),
        ("FLOW_REMOVED", a.flow_removed, &REMOVED),
        ("ROLE_STATUS", a.role_status, &ROLE_REASONS),
        ("TABLE_STATUS", a.table_status, &TABLE),
        ("REQUESTFORWARD", a.request_forward, &FORWARD),
        ("CONT_STATUS", a.controller_status, &CONTROLLER_REASONS),
    ];
    for (i, role) in ["primary", "secondary"].into_iter().enumerate() {
        put!(out, "\n {role}:\n");
        // OpenFlow 1.5 added the last type, which is printed only if some mask of it is set.
        for (what, masks, names) in
            kinds.into_iter().filter(|(what, masks, _)| *what != "CONT_STATUS" || *masks != [0; 2])
        {
            put!(out, "{what:>16}:");
            for (_, name) in names.iter().enumerate().filter(|(bit, _)| masks[i] & 1 << bit != 0) {
                put!(out, " {name}");
            }
            out.push_str(if masks[i] == 0 { " (off)\n" } else { "\n" });
        }
    }
}
