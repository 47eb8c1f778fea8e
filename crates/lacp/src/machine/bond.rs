//! A bond and its members.

use super::status::{BondStatus, MemberStatus, Statistics};
use super::{
    BondSettings, Carrier, Effect, FAST_PERIODIC_MS, LogLevel, MemberSettings, Mode, Negotiation, TIMEOUT_INTERVALS,
    Timeout, complaint,
};
use crate::pdu::{Info, Malformed, Pdu, SlowFrame, State};
use crate::select::{Candidate, Currency, Fallback, select};
use base::{BridgePort, Millis};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Bond {
    bridge: u32,
    name: String,
    /// Settings; those of members are in [`Member`].
    settings: BondSettings,
    members: BTreeMap<BridgePort, Member>,
    /// The member whose key or port number is the key of all: the first one, for as long as it is a member.
    key_member: Option<BridgePort>,
    /// Whether members have to be selected again.
    is_stale: bool,
    negotiation: Negotiation,
    reported: Negotiation,
}

#[derive(Debug)]
struct Member {
    settings: MemberSettings,
    carrier: Carrier,
    currency: Currency,
    attached: bool,
    partner: Info,
    /// What the partner knows of this member: the partner's last words about it, or what was sent since.
    announced: Info,
    /// When the next LACPDU is due.
    next_transmit: Millis,
    /// When the information about the partner expires, or the member without current information gives up.
    timeout: Millis,
    /// `None` for a new member.
    reported_may_enable: Option<bool>,
    reported_currency: Currency,
    statistics: Statistics,
}

impl Bond {
    pub(super) fn new(bridge: u32, name: String) -> Self {
        Self {
            bridge,
            name,
            settings: BondSettings::default(),
            members: BTreeMap::new(),
            key_member: None,
            is_stale: true,
            negotiation: Negotiation::Configured,
            reported: Negotiation::Configured,
        }
    }

    pub(super) fn configure(&mut self, mut settings: BondSettings, now: Millis) {
        let mut members = std::mem::take(&mut settings.members);
        let selected_by = |settings: &BondSettings| (settings.system, settings.system_priority, settings.fallback);
        self.is_stale |= selected_by(&self.settings) != selected_by(&settings);
        self.settings = settings;
        let gone: Vec<_> = self.members.keys().filter(|port| !members.contains_key(port)).copied().collect();
        gone.into_iter().for_each(|port| self.remove(port));
        let negotiates = self.settings.mode == Mode::Active || self.negotiation == Negotiation::Negotiated;
        while let Some((port, settings)) = members.pop_first() {
            self.key_member.get_or_insert(port);
            let member = self.members.entry(port).or_insert_with(|| Member::new(settings.carrier));
            member.carrier(settings.carrier, self.settings.mode, now);
            if member.settings.identity() != settings.identity() {
                self.is_stale = true;
                if negotiates {
                    member.expire(now);
                }
            }
            member.settings = settings;
        }
    }

    pub(super) fn remove(&mut self, port: BridgePort) {
        if self.members.remove(&port).is_none() {
            return;
        }
        self.is_stale = true;
        if self.key_member == Some(port) {
            self.key_member = self.members.keys().next().copied();
        }
    }

    pub(super) fn carrier(&mut self, port: BridgePort, carrier: Carrier, now: Millis) {
        if let Some(member) = self.members.get_mut(&port) {
            member.carrier(carrier, self.settings.mode, now);
        }
    }

    /// Takes a frame; returns a line for the log if it cannot be used.
    pub(super) fn input(
        &mut self,
        port: BridgePort,
        parsed: Result<SlowFrame, Malformed>,
        now: Millis,
    ) -> Option<Effect> {
        let member = self.members.get_mut(&port)?;
        member.statistics.rx += 1;
        match parsed {
            Err(_) => member.statistics.rx_bad += 1,
            Ok(SlowFrame::Marker) => member.statistics.rx_marker += 1,
            Ok(SlowFrame::Lacp(_)) if !member.carrier.up => {
                let line = format!("{}: carrier state is DOWN, dropping received LACP PDU.", member.settings.name);
                return Some(Effect::Log { level: LogLevel::Info, line });
            }
            Ok(SlowFrame::Lacp(pdu)) => {
                member.currency = Currency::Current;
                member.timeout = now.after(TIMEOUT_INTERVALS * self.settings.timeout.period_ms());
                member.announced = pdu.partner;
                self.is_stale |= member.partner != pdu.actor;
                member.partner = pdu.actor;
            }
        }
        complaint(&self.name, parsed)
    }

    /// Does everything that is due: timeouts, then selection, then LACPDUs, then reports of changes.
    pub(super) fn run(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        for member in self.members.values_mut() {
            self.is_stale |= member.time_out(now);
        }
        if std::mem::take(&mut self.is_stale) {
            self.select(effects);
        }
        self.transmit(now, effects);
        self.report(effects);
    }

    fn select(&mut self, effects: &mut Vec<Effect>) {
        let candidate = |member: &Member| Candidate {
            currency: member.currency,
            attached: member.attached,
            actor: self.actor(member),
            partner: member.partner,
        };
        let candidates: Vec<_> = self.members.values().map(candidate).collect();
        let selection = select(&candidates, self.settings.system, self.settings.fallback);
        for (member, attached) in self.members.values_mut().zip(&selection.attached) {
            member.attached = *attached;
        }
        self.negotiation = if selection.has_lead { Negotiation::Negotiated } else { Negotiation::Configured };
        let names: Vec<_> = self.members.values().map(|member| &member.settings.name).collect();
        effects.extend(selection.loopbacks.into_iter().map(|n| {
            let line = format!("member {}: Loopback detected. Interface is connected to its own bond", names[n]);
            Effect::Log { level: LogLevel::Loop, line }
        }));
    }

    fn transmit(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let actors: Vec<_> = self.members.values().map(|member| self.actor(member)).collect();
        let mode = self.settings.mode;
        for ((port, member), actor) in self.members.iter_mut().zip(actors) {
            if !member.may_transmit(mode) || now < member.next_transmit && !needs_news(&actor, &member.announced) {
                continue;
            }
            member.announced = actor;
            member.next_transmit = now.after(member.partner_timeout().period_ms());
            member.statistics.tx += 1;
            let pdu = Pdu { actor, partner: member.partner };
            effects.push(Effect::Send { port: *port, frame: pdu.frame(member.settings.mac) });
        }
    }

    fn report(&mut self, effects: &mut Vec<Effect>) {
        if self.reported != self.negotiation {
            self.reported = self.negotiation;
            let (bond, negotiation) = (self.name.clone(), self.negotiation);
            effects.push(Effect::Negotiation { bridge: self.bridge, bond, negotiation });
        }
        let fallback = self.settings.fallback;
        let mut has_changed = false;
        for (port, member) in &mut self.members {
            has_changed |= std::mem::replace(&mut member.reported_currency, member.currency) != member.currency;
            let may_enable = member.may_enable(fallback);
            if member.reported_may_enable.replace(may_enable) != Some(may_enable) {
                effects.push(Effect::MayEnable { port: *port, may_enable });
            }
        }
        if has_changed {
            effects.push(Effect::Status);
        }
    }

    /// When [`Bond::run`] has work next.
    pub(super) fn deadline(&self) -> Option<Millis> {
        self.members.values().filter_map(|member| member.deadline(self.settings.mode)).min()
    }

    pub(super) fn may_enable(&self, port: BridgePort) -> Option<bool> {
        self.members.get(&port).map(|member| member.may_enable(self.settings.fallback))
    }

    pub(super) fn has_partner(&self, port: BridgePort) -> Option<bool> {
        self.members.get(&port).map(|member| member.currency != Currency::Defaulted)
    }

    /// The operational key of all members.
    fn key(&self) -> u16 {
        let Some(member) = self.key_member.and_then(|port| self.members.get(&port)) else { return 0 };
        if member.settings.key == 0 { member.settings.port_id } else { member.settings.key }
    }

    /// A member's own information, as LACPDUs announce it.
    fn actor(&self, member: &Member) -> Info {
        let carries = member.attached || self.negotiation == Negotiation::Configured;
        let flags = [
            (self.settings.mode == Mode::Active, State::ACTIVITY),
            (self.settings.timeout == Timeout::Fast, State::TIMEOUT),
            (self.members.len() > 1, State::AGGREGATION),
            (member.attached, State::SYNCHRONIZED),
            (carries, State::COLLECTING.with(State::DISTRIBUTING)),
            (member.currency == Currency::Defaulted, State::DEFAULTED),
            (member.currency == Currency::Expired, State::EXPIRED),
        ];
        Info {
            system_priority: self.settings.system_priority,
            system: self.settings.system,
            key: self.key(),
            port_priority: member.settings.port_priority,
            port: member.settings.port_id,
            state: flags.into_iter().filter(|(set, _)| *set).fold(State::EMPTY, |state, (_, flag)| state.with(flag)),
        }
    }

    pub(super) fn status(&self) -> BondStatus {
        let mut members: Vec<_> = self.members.keys().filter_map(|port| self.member_status(*port)).collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let settings = self.members.iter().map(|(port, member)| (*port, member.settings.clone())).collect();
        BondStatus {
            bridge: self.bridge,
            name: self.name.clone(),
            settings: BondSettings { members: settings, ..self.settings.clone() },
            negotiation: self.negotiation,
            key: self.key(),
            members,
        }
    }

    pub(super) fn member_status(&self, port: BridgePort) -> Option<MemberStatus> {
        let member = self.members.get(&port)?;
        Some(MemberStatus {
            port,
            name: member.settings.name.clone(),
            currency: member.currency,
            attached: member.attached,
            may_enable: member.may_enable(self.settings.fallback),
            key: self.key(),
            actor: self.actor(member),
            partner: member.partner,
            statistics: member.statistics,
        })
    }
}

/// Whether a partner that knows `announced` of a member needs a LACPDU at once, as the member is `actor` now
/// (IEEE 802.1AX-2020 6.4.8, update_NTT).
fn needs_news(actor: &Info, announced: &Info) -> bool {
    let relevant = State::ACTIVITY.with(State::TIMEOUT).with(State::AGGREGATION).with(State::SYNCHRONIZED);
    let compared = |info: &Info| Info { state: State(info.state.0 & relevant.0), ..*info };
    compared(actor) != compared(announced)
}

impl MemberSettings {
    /// What makes a member negotiate anew when it changes.
    fn identity(&self) -> (u16, u16, u16) {
        (self.port_id, self.port_priority, self.key)
    }
}

impl Member {
    /// A member without partner and settings.
    fn new(carrier: Carrier) -> Self {
        Self {
            settings: MemberSettings::default(),
            carrier,
            currency: Currency::Defaulted,
            attached: false,
            partner: Info::default(),
            announced: Info::default(),
            next_transmit: Millis(0),
            timeout: Millis(0),
            reported_may_enable: None,
            reported_currency: Currency::Defaulted,
            statistics: Statistics::default(),
        }
    }

    /// Takes the state of the carrier. A device that does not count changes can gain its carrier here, but not lose it.
    fn carrier(&mut self, carrier: Carrier, mode: Mode, now: Millis) {
        if carrier.resets == self.carrier.resets {
            self.carrier.up |= carrier.up;
            return;
        }
        if self.currency == Currency::Current || mode == Mode::Active {
            self.expire(now);
        }
        self.statistics.carrier_changed += u64::from(self.carrier.up != carrier.up);
        self.carrier = carrier;
    }

    /// Asks the partner to answer soon, and does not rely on it until then.
    fn expire(&mut self, now: Millis) {
        self.currency = Currency::Expired;
        self.partner.state = self.partner.state.with(State::TIMEOUT).without(State::SYNCHRONIZED);
        self.timeout = now.after(TIMEOUT_INTERVALS * FAST_PERIODIC_MS);
    }

    /// Processes the timeout if it is over. Returns true if members have to be selected again.
    fn time_out(&mut self, now: Millis) -> bool {
        if now < self.timeout {
            return false;
        }
        match self.currency {
            Currency::Current => {
                self.statistics.expired += 1;
                self.expire(now);
                false
            }
            Currency::Expired => {
                self.statistics.defaulted += 1;
                self.currency = Currency::Defaulted;
                self.partner = Info::default();
                true
            }
            Currency::Defaulted => false,
        }
    }

    fn may_transmit(&self, mode: Mode) -> bool {
        self.carrier.up && (mode == Mode::Active || self.currency != Currency::Defaulted)
    }

    fn may_enable(&self, fallback: Fallback) -> bool {
        let falls_back = fallback == Fallback::ActiveBackup && self.currency == Currency::Defaulted;
        self.attached && (falls_back || self.partner.state.contains(State::SYNCHRONIZED))
    }

    fn partner_timeout(&self) -> Timeout {
        if self.partner.state.contains(State::TIMEOUT) { Timeout::Fast } else { Timeout::Slow }
    }

    fn deadline(&self, mode: Mode) -> Option<Millis> {
        let timeout = (self.currency != Currency::Defaulted).then_some(self.timeout);
        let transmit = self.may_transmit(mode).then_some(self.next_transmit);
        timeout.into_iter().chain(transmit).min()
    }
}
