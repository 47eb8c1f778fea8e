//! `coverage/` and `memory/show`: events that were counted, and how much of everything there is.
//!
//! Datapaths count drops for themselves, a counter a thread; they are brought to the counters of events when those are
//! asked for.

use crate::devices::Devices;
use base::DropReason;
use base::coverage;
use daemon::control;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use unixctl::{Call, Commands};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let with = |answer: fn(Call)| {
        let devices = Arc::clone(devices);
        move |call: Call| {
            count_packets(&devices);
            answer(call);
        }
    };
    coverage::declare(EVENTS);
    commands.register_call("coverage/show", "", 0..=0, with(control::coverage_show));
    commands.register_call("coverage/read-counter", "COUNTER", 1..=1, with(control::coverage_read_counter));
    let devices = Arc::clone(devices);
    commands.register_call("memory/show", "", 0..=0, move |call| control::memory_show(call, usage(&devices)));
}

/// Events that the switch counts under the names of Open vSwitch: scripts read them before they occur. Some of its drops do not
/// occur here.
const EVENTS: &[&str] = &[
    "bridge_reconfigure",
    "conntrack_full",
    "conntrack_invalid_tcp_flags",
    "conntrack_l3csum_checked",
    "conntrack_l3csum_err",
    "conntrack_l4csum_checked",
    "conntrack_l4csum_err",
    "conntrack_lookup_natted_miss",
    "conntrack_tcp_seq_chk_bypass",
    "conntrack_tcp_seq_chk_failed",
    "conntrack_zone_full",
    "datapath_drop_hw_post_process",
    "datapath_drop_hw_post_process_consumed",
    "datapath_drop_invalid_tnl_port",
    "datapath_drop_lock_error",
    "datapath_drop_nsh_decap_error",
    "datapath_drop_sample_error",
    "datapath_drop_tunnel_push_error",
    "datapath_drop_userspace_action_error",
    "drop_action_bridge_not_found",
    "drop_action_forwarding_disabled",
    "drop_action_recirculation_conflict",
    "drop_action_tunnel_output_no_ethernet",
    "flow_extract",
    "ipf_l3csum_checked",
    "ipf_l3csum_err",
    "ipf_stuck_frag_list_expired",
    "ipf_stuck_frag_list_purged",
    "mac_learning_evicted",
    "mac_learning_expired",
    "mac_learning_learned",
    "mac_learning_moved",
    "mac_learning_static_none_move",
    "ofmonitor_pause",
    "ofmonitor_resume",
    "ofproto_flush",
    "ofproto_packet_out",
    "ofproto_recv_openflow",
    "ofproto_update_port",
    "rconn_overflow",
    "rconn_queued",
    "rconn_sent",
    "rev_flow_table",
    "rev_mac_learning",
    "rev_port_toggled",
    "rev_reconfigure",
    "txn_not_locked",
    "txn_success",
    "txn_try_again",
    "txn_unchanged",
    "upcall_flow_limit_hit",
    "upcall_flow_limit_kill",
    "upcall_flow_limit_reduced",
    "vconn_open",
    "vconn_received",
    "vconn_sent",
    "xlate_actions",
];

/// Brings in what datapaths count: frames of their ports, and drops.
fn count_packets(devices: &Devices) {
    let (mut received, mut sent) = (0, 0);
    for port in devices.datapaths().iter().flat_map(|(_, dp)| dp.dpif.ports()) {
        received += port.stats.rx_packets;
        sent += port.stats.tx_packets;
    }
    for (name, total) in [("netdev_received", received), ("netdev_sent", sent)] {
        // The frames of a removed port were counted before.
        coverage::set(name, total.max(coverage::read(name).unwrap_or_default()));
    }
    count_drops(devices);
}

/// Brings in the drops. Reasons that Open vSwitch does not distinguish share its counter.
fn count_drops(devices: &Devices) {
    let datapaths = devices.datapaths();
    let sum = |counts: Vec<(DropReason, u64)>, reason| -> u64 {
        counts.into_iter().filter(|(r, _)| *r == reason).map(|(_, n)| n).sum()
    };
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for reason in DropReason::ALL {
        let all: u64 = datapaths.iter().map(|(_, dp)| sum(dp.dpif.drops(), *reason)).sum();
        let of_flows: u64 = datapaths.iter().map(|(_, dp)| sum(dp.dpif.flow_drops(), *reason)).sum();
        *totals.entry(flow_drop_name(*reason)).or_default() += of_flows;
        *totals.entry(drop_name(*reason)).or_default() += all.saturating_sub(of_flows);
    }
    totals.into_iter().for_each(|(name, total)| coverage::set(name, total));
}

/// The counter of packets that a flow drops for a reason.
fn flow_drop_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::NoPort | DropReason::PortDown | DropReason::NoEthernet | DropReason::Fragment => {
            drop_name(DropReason::Action)
        }
        DropReason::Recirculation => "drop_action_no_recirculation_context",
        other => drop_name(other),
    }
}

/// The counter of packets that the datapath drops for a reason: that of Open vSwitch, or one of our own.
fn drop_name(reason: DropReason) -> &'static str {
    match reason {
        // Of these, only translations are the reason.
        DropReason::Action
        | DropReason::NoGroup
        | DropReason::VlanMismatch
        | DropReason::ReservedAddress
        | DropReason::SamePort
        | DropReason::TtlExpired
        | DropReason::ProtectedPort
        | DropReason::MirrorPort
        | DropReason::PortBlocked => "drop_action_of_pipeline",
        DropReason::Malformed => "datapath_drop_rx_invalid_packet",
        DropReason::Truncated => "datapath_drop_truncated",
        DropReason::TooBig => "datapath_drop_too_big",
        DropReason::NoPort => "datapath_drop_invalid_port",
        DropReason::PortDown => "datapath_drop_port_down",
        DropReason::OutputQueueFull => "datapath_drop_output_queue_full",
        DropReason::OutputError => "datapath_drop_output_error",
        DropReason::TranslationError => "datapath_drop_translation_error",
        DropReason::RecursionTooDeep => "drop_action_recursion_too_deep",
        DropReason::TooManyResubmits => "drop_action_too_many_resubmit",
        DropReason::StackTooDeep => "drop_action_stack_too_deep",
        DropReason::TooManyActions => "datapath_drop_too_many_actions",
        DropReason::NoBond => "datapath_drop_invalid_bond",
        DropReason::FlowRestore => "datapath_drop_flow_restore",
        DropReason::Recirculation => "datapath_drop_recirc_error",
        DropReason::Meter => "datapath_drop_meter",
        DropReason::Fragment => "datapath_drop_fragment",
        DropReason::NoEthernet => "datapath_drop_no_ethernet",
        DropReason::PacketType => "drop_action_unsupported_packet_type",
        DropReason::TooManyLabels => "drop_action_too_many_mpls_labels",
        DropReason::NoHeadroom => "datapath_drop_no_headroom",
        DropReason::ProtocolQueueFull => "datapath_drop_protocol_queue_full",
        DropReason::NoProtocol => "datapath_drop_no_protocol",
        DropReason::TunnelHeader | DropReason::TunnelChecksum => "datapath_drop_tunnel_pop_error",
        // Open vSwitch translates each of these packets, which fails.
        DropReason::UpcallQueueFull | DropReason::NoTunnel => "datapath_drop_upcall_error",
        DropReason::NoRoute => "drop_action_tunnel_routing_failed",
        DropReason::NoNeighbour => "drop_action_tunnel_neigh_cache_miss",
        DropReason::Congestion => "drop_action_congestion",
        DropReason::TunnelOption => "drop_action_invalid_tunnel_metadata",
        DropReason::TunnelBuild => "drop_action_tunnel_header_build_failed",
        DropReason::IngressPolicing => "datapath_drop_ingress_policing",
        DropReason::EgressPolicing => "datapath_drop_egress_policing",
        DropReason::ShaperQueueFull => "datapath_drop_shaper_queue_full",
        DropReason::IncompleteDatagram => "datapath_drop_incomplete_datagram",
    }
}

/// What `memory/show` reports, by name.
pub fn usage(devices: &Devices) -> Vec<(String, u64)> {
    let (mut ports, mut rules, mut flows, mut threads, mut connections, mut macs) = (0, 0, 0, 0, 0, 0);
    let (mut packets, mut bundled, mut remainders, mut revalidators) = (0, 0, 0, 0);
    for (_, dp) in devices.datapaths() {
        flows += dp.dpif.stats().flows;
        threads += dp.dpif.threads().len() as u64;
        revalidators += u64::from(dp.switch.has_revalidator());
        bundled += dp.switch.bundle_bytes() as u64;
        remainders += dp.switch.network().frozen.len() as u64;
        for bridge in dp.switch.bridges() {
            ports += bridge.ports().len() as u64;
            rules += bridge.n_flows() as u64;
            let peers = bridge.connections().all();
            connections += peers.len() as u64;
            packets += peers.iter().map(|peer| peer.packet_ins_waiting()).sum::<u64>();
            macs += bridge.macs().read().len() as u64;
        }
    }
    let all = [
        ("bundle bytes", bundled),
        ("idl-cells-Open_vSwitch", devices.idl_cells.load(Ordering::Relaxed)),
        ("macs", macs),
        ("ofconns", connections),
        ("packet threads", threads),
        ("packets", packets),
        ("ports", ports),
        ("recirculation ids", remainders),
        ("revalidators", revalidators),
        ("rules", rules),
        ("udpif keys", flows),
    ];
    // What there is none of is left out, but for what every switch has.
    let always = ["ports", "rules"];
    all.into_iter().filter(|(name, n)| *n > 0 || always.contains(name)).map(|(name, n)| (name.to_owned(), n)).collect()
}
