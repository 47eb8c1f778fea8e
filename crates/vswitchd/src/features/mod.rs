//! One file a feature; [`crate::levels`] lists them by what they belong to.

pub mod address;
pub mod bfd;
pub mod bond;
pub mod capabilities;
pub mod cfm;
pub mod collectors;
pub mod controllers;
pub mod flood_vlans;
pub mod flow_restore;
pub mod flow_tables;
pub mod forward_bpdu;
pub mod identity;
pub mod in_band;
pub mod ipfix;
pub mod lacp;
pub mod link;
pub mod lldp;
pub mod local_sampling;
pub mod mac_table;
pub mod mirrors;
pub mod mtu;
pub mod multicast;
pub mod netflow;
pub mod qos;
pub mod queues;
pub mod routes;
pub mod sflow;
pub mod spanning_tree;
pub mod statistics;
pub mod threads;
pub mod timeout_policies;
pub mod tls;
pub mod tuning;
pub mod unsupported;
pub mod versions;
pub mod vlan;
pub mod zone_limits;

#[cfg(test)]
mod tests;
