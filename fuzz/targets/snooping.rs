//! Any bytes as IGMP and MLD messages: the table stays within its limits, and forgets everything when it ages.
#![no_main]

use base::Millis;
use packet::checksum::{checksum, pseudo_v6};
use snooping::{Change, Flooding, Malformed, Message, Settings, Source, Table, igmp, mld};
use std::net::{Ipv4Addr, Ipv6Addr};

const BUNDLES: [&str; 4] = ["a", "b", "c", "d"];

/// The message in a packet with the right checksum.
fn igmp_message(bytes: &[u8]) -> Result<Message, Malformed> {
    let mut bytes = bytes.to_vec();
    if let Some(sum) = bytes.get_mut(2..4) {
        sum.fill(0);
        let right = checksum(&bytes);
        bytes[2..4].copy_from_slice(&right.to_be_bytes());
    }
    igmp::parse(Ipv4Addr::new(10, 0, 0, 1), &bytes)
}

/// Likewise, of MLD.
fn mld_message(bytes: &[u8]) -> Result<Message, Malformed> {
    let mut bytes = bytes.to_vec();
    if let Some(sum) = bytes.get_mut(2..4) {
        sum.fill(0);
        let right = pseudo_v6(&[0; 16], &[0xff; 16], 58, bytes.len() as u32).bytes(&bytes).finish();
        bytes[2..4].copy_from_slice(&right.to_be_bytes());
    }
    mld::parse(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from([0xff; 16]), &bytes)
}

fuzz::target!(|bytes: &[u8]| {
    let mut table = Table::new(Settings { table_size: 10, aging_secs: 15 });
    // Messages behind each other, each behind its kind, place and length; the time goes on by that, too.
    let (mut rest, mut now) = (bytes, Millis(0));
    while let Some((&[kind, place, length], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(usize::from(length).min(behind.len()));
        rest = behind;
        now = now.after(100 * u64::from(length));
        let message = match kind & 3 {
            0 => Message::parse(bytes),
            1 => igmp_message(bytes),
            _ => mld_message(bytes),
        };
        let flooding = Flooding { traffic: place & 0x40 != 0, reports: place & 0x80 != 0 };
        let source =
            Source { vlan: u16::from(place >> 2 & 7), bundle: BUNDLES[usize::from(place & 3)].into(), flooding };
        if let Ok(message) = message {
            if let Message::Report { records, .. } = &message {
                assert!(8 * records.len() <= bytes.len());
            }
            let news = table.news(&message, &source);
            let changes = table.learn(&message, &source, now);
            assert!(news == 0 || !changes.is_empty());
            for change in changes {
                let n = match change {
                    Change::Group(vlan, group) => table.members(vlan, group).len(),
                    Change::Routers(vlan) => table.routers(vlan).len(),
                };
                assert!(n <= BUNDLES.len());
            }
        }
        table.expire(now, usize::MAX);
        assert!(table.len() <= 10 && table.next_deadline().is_none_or(|deadline| deadline > now));
    }
    table.expire(now.after(snooping::table::ROUTER_AGING_MS), usize::MAX);
    assert!(table.is_empty());
});
