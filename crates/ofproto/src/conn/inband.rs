//! In-band control: a bridge reaches its controllers and managers through itself, whatever its flow tables contain.
//!
//! Hidden flows with the NORMAL action forward the traffic of such connections: DHCP of the local port, ARP of the local
//! port, of the next hops and of the remotes, and TCP to and from the remotes. The translation itself sends DHCP replies to
//! the local port, as no flow can tell whether another one does that already.

use crate::bridge::Ofproto;
use crate::hidden::HiddenFlow;
use base::MacAddr;
use flow::{Field, Match};
use openflow::Action;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;

/// Priorities of the flows, one for each purpose, of which a packet has at most one.
mod priority {
    pub(super) const FROM_LOCAL_DHCP: u32 = 180_000;
    pub(super) const TO_LOCAL_ARP: u32 = 180_001;
    pub(super) const FROM_LOCAL_ARP: u32 = 180_002;
    pub(super) const TO_NEXT_HOP_ARP: u32 = 180_003;
    pub(super) const FROM_NEXT_HOP_ARP: u32 = 180_004;
    pub(super) const TO_REMOTE_ARP: u32 = 180_005;
    pub(super) const FROM_REMOTE_ARP: u32 = 180_006;
    pub(super) const TO_REMOTE_TCP: u32 = 180_007;
    pub(super) const FROM_REMOTE_TCP: u32 = 180_008;
}

const RANGE: RangeInclusive<u32> = priority::FROM_LOCAL_DHCP..=priority::FROM_REMOTE_TCP;

const ETH_IP: u128 = 0x0800;
const ETH_ARP: u128 = 0x0806;
const TCP: u128 = 6;
const UDP: u128 = 17;
const ARP_REQUEST: u128 = 1;
const ARP_REPLY: u128 = 2;
const DHCP_SERVER: u128 = 67;
const DHCP_CLIENT: u128 = 68;

/// The settings of in-band control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InBand {
    /// Address of the local port.
    pub local: MacAddr,
    /// Controllers and managers.
    pub remotes: BTreeSet<SocketAddrV4>,
    /// MAC addresses of the next hops to them, where known.
    pub next_hops: BTreeSet<MacAddr>,
    /// The queue for control traffic.
    pub queue: Option<u32>,
}

fn matching(fields: &[(Field, u128)]) -> Match {
    let mut matching = Match::ANY;
    fields.iter().for_each(|(field, value)| matching.set(*field, *value));
    matching
}

fn arp(op: u128, field: Field, value: u128) -> Match {
    matching(&[(Field::EthType, ETH_ARP), (Field::ArpOp, op), (field, value)])
}

fn tcp((address, remote): (Field, Ipv4Addr), (port, number): (Field, u16)) -> Match {
    let address = (address, u32::from(remote).into());
    matching(&[(Field::EthType, ETH_IP), (Field::IpProto, TCP), address, (port, number.into())])
}

fn mac(address: MacAddr) -> u128 {
    address.to_u64().into()
}

impl InBand {
    /// The flows; empty without remotes.
    fn flows(&self) -> Vec<HiddenFlow> {
        use priority::*;
        if self.remotes.is_empty() {
            return Vec::new();
        }
        let local = mac(self.local);
        let dhcp = matching(&[
            (Field::InPortOxm, base::PortNo::LOCAL.0.into()),
            (Field::EthSrc, local),
            (Field::EthType, ETH_IP),
            (Field::IpProto, UDP),
            (Field::UdpSrc, DHCP_CLIENT),
            (Field::UdpDst, DHCP_SERVER),
        ]);
        let mut flows = vec![
            HiddenFlow::normal(FROM_LOCAL_DHCP, dhcp),
            HiddenFlow::normal(TO_LOCAL_ARP, arp(ARP_REPLY, Field::EthDst, local)),
            HiddenFlow::normal(FROM_LOCAL_ARP, arp(ARP_REQUEST, Field::EthSrc, local)),
        ];
        for hop in &self.next_hops {
            flows.push(HiddenFlow::normal(TO_NEXT_HOP_ARP, arp(ARP_REPLY, Field::EthDst, mac(*hop))));
            flows.push(HiddenFlow::normal(FROM_NEXT_HOP_ARP, arp(ARP_REQUEST, Field::EthSrc, mac(*hop))));
        }
        let addresses: BTreeSet<Ipv4Addr> = self.remotes.iter().map(|remote| *remote.ip()).collect();
        for address in addresses {
            let value = u32::from(address).into();
            flows.push(HiddenFlow::normal(TO_REMOTE_ARP, arp(ARP_REPLY, Field::ArpTpa, value)));
            flows.push(HiddenFlow::normal(FROM_REMOTE_ARP, arp(ARP_REQUEST, Field::ArpSpa, value)));
        }
        for remote in &self.remotes {
            let (ip, port) = (*remote.ip(), remote.port());
            flows.push(HiddenFlow::normal(TO_REMOTE_TCP, tcp((Field::Ipv4Dst, ip), (Field::TcpDst, port))));
            flows.push(HiddenFlow::normal(FROM_REMOTE_TCP, tcp((Field::Ipv4Src, ip), (Field::TcpSrc, port))));
        }
        if let Some(queue) = self.queue {
            flows.iter_mut().for_each(|flow| flow.actions.insert(0, Action::SetQueue(queue)));
        }
        flows
    }
}

impl Ofproto {
    /// Enables in-band control; `None` disables it.
    pub fn set_in_band(&self, in_band: Option<&InBand>) {
        self.set_hidden(&RANGE, &in_band.map(InBand::flows).unwrap_or_default());
        self.set_dhcp_to_local(in_band.is_some_and(|in_band| !in_band.remotes.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::text::{NoNames, format_match};

    /// Priorities and matches, as `bridge/dump-flows` shows them.
    fn shown(in_band: &InBand) -> Vec<String> {
        let flows = in_band.flows();
        assert!(flows.iter().all(|flow| RANGE.contains(&flow.priority)));
        let text = |flow: &HiddenFlow| {
            let mut text = format!("{} ", flow.priority);
            format_match(&flow.matching, &NoNames, &mut text);
            text
        };
        flows.iter().map(text).collect()
    }

    fn in_band(remotes: &[&str]) -> InBand {
        InBand {
            local: "aa:55:aa:55:00:01".parse().unwrap(),
            remotes: remotes.iter().map(|r| r.parse().unwrap()).collect(),
            next_hops: BTreeSet::new(),
            queue: None,
        }
    }

    #[test]
    fn flows_for_each_purpose() {
        let one = InBand { next_hops: [MacAddr([2, 0, 0, 0, 0, 9])].into(), ..in_band(&["10.1.1.2:6653"]) };
        assert_eq!(
            shown(&one),
            [
                "180000 udp,in_port=LOCAL,dl_src=aa:55:aa:55:00:01,tp_src=68,tp_dst=67",
                "180001 arp,dl_dst=aa:55:aa:55:00:01,arp_op=2",
                "180002 arp,dl_src=aa:55:aa:55:00:01,arp_op=1",
                "180003 arp,dl_dst=02:00:00:00:00:09,arp_op=2",
                "180004 arp,dl_src=02:00:00:00:00:09,arp_op=1",
                "180005 arp,arp_tpa=10.1.1.2,arp_op=2",
                "180006 arp,arp_spa=10.1.1.2,arp_op=1",
                "180007 tcp,nw_dst=10.1.1.2,tp_dst=6653",
                "180008 tcp,nw_src=10.1.1.2,tp_src=6653",
            ]
        );
        // Two ports of one address share its ARP flows.
        assert_eq!(shown(&in_band(&["10.1.1.2:6653", "10.1.1.2:9"])).len(), 3 + 2 + 4);
        assert_eq!(shown(&in_band(&[])), Vec::<String>::new());
    }

    #[test]
    fn the_queue_is_set_before_forwarding() {
        let queued = InBand { queue: Some(3), ..in_band(&["10.1.1.2:6653"]) };
        let plain = in_band(&["10.1.1.2:6653"]).flows();
        for (flow, plain) in queued.flows().iter().zip(plain) {
            assert_eq!(flow.actions[0], Action::SetQueue(3));
            assert_eq!(flow.actions[1..], plain.actions);
        }
    }
}
