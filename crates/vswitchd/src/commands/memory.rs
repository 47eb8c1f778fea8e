//! `coverage/` and `memory/show`: events that were counted, and how much of everything there is.
//!
//! Datapaths count drops for themselves, a counter a thread; they are brought to the counters of events when those are
//! asked for.

use crate::devices::Devices;
use base::DropReason;
use base::coverage;
use daemon::control;
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

/// Events that the switch counts under the names of Open vSwitch, drops aside: scripts read them before they occur.
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

/// Drops under the names of Open vSwitch where it counts the same, and `datapath_drop_` with our reason otherwise.
fn count_drops(devices: &Devices) {
    let drops: Vec<_> = devices.datapaths().iter().flat_map(|(_, dp)| dp.dpif.drops()).collect();
    for reason in DropReason::ALL {
        let total: u64 = drops.iter().filter(|(r, _)| r == reason).map(|(_, n)| n).sum();
        coverage::set(drop_name(*reason), total);
    }
}

fn drop_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Action => "drop_action_of_pipeline",
        DropReason::Malformed => "datapath_drop_rx_invalid_packet",
        DropReason::Truncated => "datapath_drop_truncated",
        DropReason::TooBig => "datapath_drop_too_big",
        DropReason::NoPort => "datapath_drop_invalid_port",
        DropReason::PortDown => "datapath_drop_port_down",
        DropReason::OutputQueueFull => "datapath_drop_output_queue_full",
        DropReason::OutputError => "datapath_drop_output_error",
        DropReason::UpcallQueueFull => "datapath_drop_upcall_error",
        DropReason::TranslationError => "datapath_drop_translation_error",
        DropReason::RecursionTooDeep => "drop_action_recursion_too_deep",
        DropReason::TooManyResubmits => "drop_action_too_many_resubmit",
        DropReason::StackTooDeep => "drop_action_stack_too_deep",
        DropReason::TooManyActions => "datapath_drop_too_many_actions",
        DropReason::NoBond => "datapath_drop_invalid_bond",
        DropReason::FlowRestore => "datapath_drop_flow_restore",
        DropReason::NoGroup => "datapath_drop_no_group",
        DropReason::VlanMismatch => "datapath_drop_vlan_mismatch",
        DropReason::ReservedAddress => "datapath_drop_reserved_address",
        DropReason::SamePort => "datapath_drop_same_port",
        DropReason::TtlExpired => "datapath_drop_ttl_expired",
        DropReason::Recirculation => "datapath_drop_recirc_error",
        DropReason::Meter => "datapath_drop_meter",
        DropReason::Fragment => "datapath_drop_fragment",
        DropReason::NoEthernet => "datapath_drop_no_ethernet",
        DropReason::TooManyLabels => "drop_action_too_many_mpls_labels",
        DropReason::ProtectedPort => "datapath_drop_protected_port",
        DropReason::MirrorPort => "datapath_drop_mirror_port",
        DropReason::NoHeadroom => "datapath_drop_no_headroom",
        DropReason::ProtocolQueueFull => "datapath_drop_protocol_queue_full",
        DropReason::NoProtocol => "datapath_drop_no_protocol",
        DropReason::PortBlocked => "datapath_drop_port_blocked",
        DropReason::TunnelHeader => "datapath_drop_tunnel_pop_error",
        DropReason::TunnelChecksum => "datapath_drop_tunnel_checksum",
        DropReason::NoTunnel => "datapath_drop_invalid_tnl_port",
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
