//! Messages of rtnetlink(7) about routes, rules, addresses and links.
//!
//! Messages are in native byte order, padded to four bytes. The parser does not trust the lengths in them. It leaves
//! out what lookups do not use: routes that are neither unicast nor local, cached routes, and rules that select by more
//! than the source.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ::routes::{From, HopState, KernelChange, KernelRoute, NextHop, Placement, Prefix, Rule};

use crate::netlink::{attributes, half, text, word};

const HEADER_LEN: usize = 16;
const LINK_LEN: usize = 16;
const ADDRESS_LEN: usize = 8;
const ROUTE_LEN: usize = 12;
const RULE_LEN: usize = 12;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_REPLACE: u16 = 0x100;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;

const AF_INET: u8 = libc::AF_INET as u8;
const AF_INET6: u8 = libc::AF_INET6 as u8;

const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const IFLA_IFNAME: u16 = 3;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u32 = 1;
const RTNH_F_LINKDOWN: u32 = 16;
const RTNH_LEN: usize = 8;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;

const FR_ACT_TO_TBL: u8 = 1;
const FIB_RULE_INVERT: u32 = 2;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PAD: u16 = 18;
const FRA_PROTOCOL: u16 = 21;

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// An object that is there, or was changed or removed.
    Change(KernelChange),
    /// The end of a dump, or the result of a request: 0, or a positive error number.
    Done(i32),
    /// Messages were lost.
    Overrun,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The sequence number of the request that it answers, 0 for a notification.
    pub seq: u32,
    /// The dump that it belongs to is inconsistent, as objects changed meanwhile.
    pub interrupted: bool,
    /// The content; `None` for what the parser leaves out.
    pub item: Option<Item>,
}

/// The messages of a datagram. It ends where a length does not fit.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message> {
    std::iter::from_fn(move || {
        let len = word(datagram, 0)? as usize;
        let message = datagram.get(..len).filter(|message| message.len() >= HEADER_LEN)?;
        let (message_type, flags, seq) = (half(message, 4)?, half(message, 6)?, word(message, 8)?);
        let item = item(message_type, flags, &message[HEADER_LEN..]);
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { seq, interrupted: flags & NLM_F_DUMP_INTR != 0, item })
    })
}

fn item(message_type: u16, flags: u16, body: &[u8]) -> Option<Item> {
    let placement = if flags & NLM_F_REPLACE != 0 { Placement::Replaced } else { Placement::Added };
    Some(Item::Change(match message_type {
        RTM_NEWLINK => link(body)?,
        RTM_DELLINK => gone(link(body)?),
        RTM_NEWADDR => address(body)?,
        RTM_DELADDR => gone(address(body)?),
        RTM_NEWROUTE => match (route(body), placement) {
            (Some(route), _) => KernelChange::Route(route, placement),
            (None, Placement::Replaced) => KernelChange::Unclear,
            (None, Placement::Added) => return None,
        },
        RTM_DELROUTE => KernelChange::RouteGone(route(body)?),
        RTM_NEWRULE => KernelChange::Rule(rule(body)?),
        RTM_DELRULE => KernelChange::RuleGone(rule(body)?),
        NLMSG_ERROR | NLMSG_DONE => {
            return Some(Item::Done(word(body, 0).map_or(0, |n| (n as i32).saturating_neg())));
        }
        NLMSG_OVERRUN => return Some(Item::Overrun),
        _ => return None,
    }))
}

/// The removal of an object.
fn gone(change: KernelChange) -> KernelChange {
    match change {
        KernelChange::Link { ifindex, .. } => KernelChange::LinkGone { ifindex },
        KernelChange::Address { ifindex, address, len } => KernelChange::AddressGone { ifindex, address, len },
        other => other,
    }
}

/// An address of a family, of all its bytes.
fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// The unspecified address of a family.
fn unspecified(family: u8) -> Option<IpAddr> {
    ip(family, &[0; 16][..if family == AF_INET { 4 } else { 16 }])
}

/// `struct ifinfomsg`: not of a bridge's ports, which have their own messages of this type.
fn link(body: &[u8]) -> Option<KernelChange> {
    if *body.first()? != libc::AF_UNSPEC as u8 {
        return None;
    }
    let (ifindex, flags) = (word(body, 4)?, word(body, 8)?);
    let (_, name) = attributes(body.get(LINK_LEN..)?).find(|(attribute, _)| *attribute == IFLA_IFNAME)?;
    let (up, carrier) = (flags & IFF_UP != 0, flags & IFF_LOWER_UP != 0);
    Some(KernelChange::Link { ifindex, name: text(name), up, carrier })
}

/// `struct ifaddrmsg`. The local address of a point-to-point link is in an attribute of its own.
fn address(body: &[u8]) -> Option<KernelChange> {
    let (family, len, ifindex) = (*body.first()?, *body.get(1)?, word(body, 4)?);
    let (mut local, mut address) = (None, None);
    for (attribute, value) in attributes(body.get(ADDRESS_LEN..)?) {
        match attribute {
            IFA_LOCAL => local = ip(family, value),
            IFA_ADDRESS => address = ip(family, value),
            _ => {}
        }
    }
    let address = local.or(address)?;
    Prefix::new(address, len)?;
    Some(KernelChange::Address { ifindex, address, len })
}

/// `struct rtmsg`.
fn route(body: &[u8]) -> Option<KernelRoute> {
    let [family, len, _, tos, table, _, _, route_type, ..] = *body else { return None };
    let flags = word(body, 8)?;
    if !matches!(route_type, RTN_UNICAST | RTN_LOCAL) || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut route = KernelRoute {
        table: table.into(),
        prefix: Prefix::new(unspecified(family)?, 0)?,
        tos,
        metric: 0,
        local: route_type == RTN_LOCAL,
        source: None,
        hops: Vec::new(),
    };
    let (mut destination, mut single, mut multiple) = (unspecified(family)?, hop(flags), None);
    for (attribute, value) in attributes(body.get(ROUTE_LEN..)?) {
        match attribute {
            RTA_DST => destination = ip(family, value)?,
            RTA_PRIORITY => route.metric = word(value, 0)?,
            RTA_PREFSRC => route.source = ip(family, value),
            RTA_TABLE => route.table = word(value, 0)?,
            RTA_MULTIPATH => multiple = Some(value),
            _ => hop_attribute(&mut single, family, attribute, value),
        }
    }
    route.prefix = Prefix::new(destination, len)?;
    route.hops = match multiple {
        Some(bytes) => hops(family, bytes),
        None => vec![single],
    };
    route.hops.retain(|hop| hop.ifindex != 0);
    (!route.hops.is_empty()).then_some(route)
}

/// A next hop without attributes.
fn hop(flags: u32) -> NextHop {
    let state = match flags {
        _ if flags & RTNH_F_DEAD != 0 => HopState::Dead,
        _ if flags & RTNH_F_LINKDOWN != 0 => HopState::NoCarrier,
        _ => HopState::Usable,
    };
    NextHop { ifindex: 0, gateway: None, state, weight: 1 }
}

fn hop_attribute(hop: &mut NextHop, family: u8, attribute: u16, value: &[u8]) {
    match attribute {
        RTA_OIF => hop.ifindex = word(value, 0).unwrap_or(0),
        RTA_GATEWAY => hop.gateway = ip(family, value),
        // A router of another family.
        RTA_VIA => {
            let family = half(value, 0).and_then(|family| u8::try_from(family).ok()).unwrap_or(0);
            hop.gateway = value.get(2..).and_then(|value| ip(family, value));
        }
        _ => {}
    }
}

/// A list of `struct rtnexthop`.
fn hops(family: u8, mut bytes: &[u8]) -> Vec<NextHop> {
    let mut out = Vec::new();
    while let Some(len) = half(bytes, 0).map(usize::from) {
        let Some(one) = bytes.get(..len).filter(|one| one.len() >= RTNH_LEN) else { break };
        let mut hop = hop(one[2].into());
        hop.ifindex = word(one, 4).unwrap_or(0);
        hop.weight = u32::from(one[3]) + 1;
        for (attribute, value) in attributes(&one[RTNH_LEN..]) {
            hop_attribute(&mut hop, family, attribute, value);
        }
        out.push(hop);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    out
}

/// `struct fib_rule_hdr`. A rule that selects by anything but the source is left out.
fn rule(body: &[u8]) -> Option<Rule> {
    let [family, to_len, len, tos, table, _, _, action, ..] = *body else { return None };
    if action != FR_ACT_TO_TBL || to_len != 0 || tos != 0 {
        return None;
    }
    let mut source = unspecified(family)?;
    let (mut priority, mut table) = (0, u32::from(table));
    for (attribute, value) in attributes(body.get(RULE_LEN..)?) {
        match attribute {
            FRA_SRC => source = ip(family, value)?,
            FRA_PRIORITY => priority = word(value, 0)?,
            FRA_TABLE => table = word(value, 0)?,
            // Set to all ones where unused.
            FRA_SUPPRESS_IFGROUP | FRA_SUPPRESS_PREFIXLEN if word(value, 0) == Some(u32::MAX) => {}
            FRA_PAD | FRA_PROTOCOL => {}
            _ => return None,
        }
    }
    Prefix::new(source, len)?;
    let invert = word(body, 8)? & FIB_RULE_INVERT != 0;
    // An inverted rule without a prefix selects nothing.
    let selects = !invert || len > 0;
    selects.then_some(Rule { priority, from: From::prefix(source, len), invert, table, user: false })
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
