//! The datapath's features, as `dpif/show-dp-features` prints them, and the refusal of flows that need others.
//!
//! The datapath reports its capabilities, connection tracking as a whole.

use dpif::Capabilities;
use flow::{Field, Match};
use openflow::{Action, CtZone, OfpError};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use vlog::{RateLimit, warn_rl};

/// Rate limit of log messages about refused actions: messages per minute, and burst.
static REFUSED_LIMIT: RateLimit = RateLimit::new(1, 5);

/// A connection tracking feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ct {
    /// `ct_state`, and the `ct` action.
    State,
    /// Zones other than 0.
    Zone,
    /// `ct_mark`.
    Mark,
    /// `ct_label`.
    Label,
    /// Translation of addresses.
    Nat,
    /// The original direction of IPv4 connections; includes `force`.
    Tuple,
    /// The original direction of IPv6 connections.
    Tuple6,
    /// `ct_clear`.
    Clear,
    /// Event masks: a choice of connection events.
    EventMask,
    /// Timeout policies.
    Timeout,
    /// `nat` with an address of zeros.
    ZeroSnat,
}

impl Ct {
    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// The features of a datapath without connection tracking.
const UNTRACKED: u32 = Ct::Clear.bit();
/// The features of a datapath with connection tracking: all of [`Ct`].
const TRACKED: u32 = Ct::ZeroSnat.bit() * 2 - 1;
/// The bit of [`dpif::DpAction::LbOutput`].
const LB_OUTPUT: u32 = TRACKED + 1;
/// The bit of [`dpif::DpAction::Psample`].
const PSAMPLE: u32 = LB_OUTPUT * 2;

#[derive(Clone, Copy)]
enum Value {
    Has(bool),
    Number(fn(&Capabilities) -> u64),
    Flag(fn(&Capabilities) -> bool),
    /// The number of VLAN tags parsed.
    Vlans,
    Ct(Ct),
    /// An action of the datapath, with its bit.
    Action(u32),
}

impl Value {
    /// The bit of a feature that commands can turn off.
    const fn bit(self) -> Option<u32> {
        match self {
            Self::Ct(what) => Some(what.bit()),
            Self::Action(bit) => Some(bit),
            Self::Has(_) | Self::Number(_) | Self::Flag(_) | Self::Vlans => None,
        }
    }
}

/// Name for commands, title, value; in the order in which they are printed.
const FEATURES: [(&str, &str, Value); 27] = [
    ("masked_set_action", "Masked set action", Value::Has(true)),
    ("tnl_push_pop", "Tunnel push pop", Value::Flag(|c| c.tunnels)),
    ("ufid", "Ufid", Value::Has(true)),
    ("trunc", "Truncate action", Value::Has(true)),
    ("clone", "Clone action", Value::Has(true)),
    ("sample_nesting", "Sample nesting", Value::Number(|c| c.sample_nesting_max)),
    ("ct_eventmask", "Conntrack eventmask", Value::Ct(Ct::EventMask)),
    ("ct_clear", "Conntrack clear", Value::Ct(Ct::Clear)),
    ("max_hash_alg", "Max dp_hash algorithm", Value::Number(|c| c.hash_algorithm_max)),
    ("check_pkt_len", "Check pkt length action", Value::Has(true)),
    ("ct_timeout", "Conntrack timeout policy", Value::Ct(Ct::Timeout)),
    ("explicit_drop_action", "Explicit Drop action", Value::Has(true)),
    ("lb_output_action", "Optimized Balance TCP mode", Value::Action(LB_OUTPUT)),
    ("ct_zero_snat", "Conntrack all-zero IP SNAT", Value::Ct(Ct::ZeroSnat)),
    ("add_mpls", "MPLS Label add", Value::Has(true)),
    ("psample", "psample action", Value::Action(PSAMPLE)),
    ("max_vlan_headers", "Max VLAN headers", Value::Vlans),
    ("max_mpls_depth", "Max MPLS depth", Value::Number(|c| c.mpls_depth_max)),
    ("recirc", "Recirc", Value::Has(true)),
    ("ct_state", "CT state", Value::Ct(Ct::State)),
    ("ct_zone", "CT zone", Value::Ct(Ct::Zone)),
    ("ct_mark", "CT mark", Value::Ct(Ct::Mark)),
    ("ct_label", "CT label", Value::Ct(Ct::Label)),
    ("ct_state_nat", "CT state NAT", Value::Ct(Ct::Nat)),
    ("ct_orig_tuple", "CT orig tuple", Value::Ct(Ct::Tuple)),
    ("ct_orig_tuple6", "CT orig tuple for IPv6", Value::Ct(Ct::Tuple6)),
    ("nd_ext", "IPv6 ND Extension", Value::Has(true)),
];

/// The features of a datapath, and the ones in use, which commands can reduce.
#[derive(Debug)]
pub(crate) struct Features {
    there: AtomicU32,
    used: AtomicU32,
    /// The datapath's capabilities, once it is attached.
    capabilities: OnceLock<Capabilities>,
}

impl Default for Features {
    fn default() -> Self {
        Self { there: UNTRACKED.into(), used: UNTRACKED.into(), capabilities: OnceLock::new() }
    }
}

/// The result of `dpif/set-dp-features`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Set {
    /// The feature was set: translations have to be repeated.
    Done,
    /// The feature was not set, with the reason.
    Refused(String),
}

impl Features {
    /// Sets the datapath's capabilities.
    pub(crate) fn attach(&self, capabilities: Capabilities) {
        let tracking = if capabilities.conntrack { TRACKED } else { UNTRACKED };
        let features = tracking | if capabilities.balance_tcp { LB_OUTPUT } else { 0 };
        self.there.store(features, Ordering::Relaxed);
        self.used.store(features, Ordering::Relaxed);
        let _ = self.capabilities.set(capabilities);
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.get().copied().unwrap_or_default()
    }

    /// Returns true if bonds may be balanced by [`dpif::DpAction::LbOutput`].
    pub(crate) fn uses_lb_output(&self) -> bool {
        self.used.load(Ordering::Relaxed) & LB_OUTPUT != 0
    }

    /// Adds samples for collectors on this host; returns false if they were there.
    pub(crate) fn add_psample(&self) -> bool {
        let is_new = self.there.fetch_or(PSAMPLE, Ordering::Relaxed) & PSAMPLE == 0;
        if is_new {
            self.used.fetch_or(PSAMPLE, Ordering::Relaxed);
        }
        is_new
    }

    /// Returns true if samples go to collectors on this host.
    pub(crate) fn uses_psample(&self) -> bool {
        self.used.load(Ordering::Relaxed) & PSAMPLE != 0
    }

    pub(crate) fn uses(&self, what: Ct) -> bool {
        self.used.load(Ordering::Relaxed) & what.bit() != 0
    }

    /// Returns the datapath's value of a feature, and the one in use.
    fn values(&self, value: Value, vlans: usize) -> [Json; 2] {
        match value {
            Value::Has(there) => [there.into(), there.into()],
            Value::Number(of) => [of(&self.capabilities()).into(), of(&self.capabilities()).into()],
            Value::Flag(of) => [of(&self.capabilities()).into(), of(&self.capabilities()).into()],
            Value::Vlans => [vlans.into(), vlans.into()],
            Value::Ct(_) | Value::Action(_) => {
                let bit = value.bit().unwrap_or(0);
                [&self.there, &self.used].map(|set| (set.load(Ordering::Relaxed) & bit != 0).into())
            }
        }
    }

    /// Formats titles with the datapath's values, one per line.
    pub(crate) fn show(&self, vlans: usize) -> String {
        let mut out = String::new();
        for (_, title, value) in FEATURES {
            let [there, _] = self.values(value, vlans);
            let there = there.as_bool().map_or(there.to_string(), |has| if has { "Yes" } else { "No" }.to_owned());
            let _ = writeln!(out, "{title}: {there}");
        }
        out
    }

    /// Returns names with the datapath's values.
    pub(crate) fn show_json(&self, vlans: usize) -> Json {
        let members = FEATURES.iter().map(|(name, _, value)| {
            let [there, _] = self.values(*value, vlans);
            ((*name).to_owned(), there)
        });
        Json::Object(members.collect())
    }

    /// Formats one feature, or all, with the values in use and those of the datapath; `None` for an unknown name.
    pub(crate) fn list(&self, name: Option<&str>, vlans: usize) -> Option<String> {
        let mut out = String::new();
        for (_, (known, title, value)) in named(name)? {
            let [there, used] = self.values(value, vlans);
            let _ = writeln!(out, "{known} ({title}) : [run time]:{used}, [boot time]:{there}");
        }
        Some(out)
    }

    /// Returns the same as an object.
    pub(crate) fn list_json(&self, name: Option<&str>, vlans: usize) -> Option<Json> {
        let members = named(name)?.map(|(_, (known, _, value))| {
            let [there, used] = self.values(value, vlans);
            (known.to_owned(), json!({"run-time": used, "boot-time": there}))
        });
        Some(Json::Object(members.collect()))
    }

    /// Enables or disables a feature: if `forced`, also connection tracking that the datapath does not report.
    pub(crate) fn set(&self, name: &str, text: &str, forced: bool) -> Set {
        let refused = |why: &str| Set::Refused(why.to_owned());
        let Some((_, _, value)) = FEATURES.iter().find(|(known, ..)| *known == name) else {
            return refused("Unexpected support field");
        };
        let on = match text.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        let capabilities = self.capabilities();
        let value = match *value {
            Value::Flag(of) => Value::Has(of(&capabilities)),
            other => other,
        };
        match (value, on) {
            (Value::Has(_) | Value::Ct(_) | Value::Action(_), None) => refused("Boolean value expected"),
            (Value::Ct(_) | Value::Action(_), Some(on)) => {
                let (bit, is_tracking) = (value.bit().unwrap_or(0), matches!(value, Value::Ct(_)));
                if on && !(forced && is_tracking) && self.there.load(Ordering::Relaxed) & bit == 0 {
                    return refused("Can not enable features not supported by the datapath");
                }
                if on {
                    self.used.fetch_or(bit, Ordering::Relaxed);
                } else {
                    self.used.fetch_and(!bit, Ordering::Relaxed);
                }
                Set::Done
            }
            (Value::Has(there), Some(on)) if there == on => Set::Done,
            (Value::Has(false), Some(_)) => refused("Can not enable features not supported by the datapath"),
            (Value::Number(_) | Value::Vlans, _) if text.parse::<u64>().is_err() => refused("Integer number expected"),
            (Value::Number(of), _) if text.parse().is_ok_and(|n: u64| n == of(&capabilities)) => Set::Done,
            (Value::Number(of), _) if text.parse().is_ok_and(|n: u64| n > of(&capabilities)) => {
                refused("Can not set value beyond the datapath capability")
            }
            _ => Set::Refused(format!("{name} can not be changed: the datapath is always used with it as it is")),
        }
    }

    /// Checks that the datapath supports flows with this match.
    ///
    /// Errors: `NXBMC_CT_DATAPATH_SUPPORT`.
    pub(crate) fn check_match(&self, matching: &Match) -> Result<(), OfpError> {
        /// `ct_state` with `snat` or `dnat`.
        const TRANSLATED: u128 = 0xc0;
        if [Ct::State, Ct::Zone, Ct::Mark, Ct::Label, Ct::Nat, Ct::Tuple, Ct::Tuple6]
            .iter()
            .all(|what| self.uses(*what))
        {
            return Ok(());
        }
        let mask = matching.mask();
        let matches = |fields: &[Field]| fields.iter().any(|field| mask.get(*field) != 0);
        let lacks = |what: Ct| !self.uses(what);
        let refused = lacks(Ct::State) && matches(&[Field::CtState])
            || lacks(Ct::Nat) && mask.get(Field::CtState) & TRANSLATED != 0
            || lacks(Ct::Zone) && matches(&[Field::CtZone])
            || lacks(Ct::Mark) && matches(&[Field::CtMark])
            || lacks(Ct::Label) && matches(&[Field::CtLabel])
            || lacks(Ct::Tuple) && lacks(Ct::Tuple6) && matches(&[Field::CtNwProto, Field::CtTpSrc, Field::CtTpDst])
            || lacks(Ct::Tuple) && matches(&[Field::CtNwSrc, Field::CtNwDst])
            || lacks(Ct::Tuple6) && matches(&[Field::CtIpv6Src, Field::CtIpv6Dst]);
        if refused { Err(OfpError::NxbmcCtDatapathSupport) } else { Ok(()) }
    }

    /// Checks that the datapath supports these actions. Logs the missing feature if not.
    ///
    /// Errors: `NXBAC_CT_DATAPATH_SUPPORT`.
    pub(crate) fn check_actions(&self, actions: &[Action]) -> Result<(), OfpError> {
        match self.lacking(actions) {
            None => Ok(()),
            Some((action, what)) => {
                warn_rl!(
                    &REFUSED_LIMIT,
                    target: "ofproto_dpif",
                    "Rejecting {action} action because datapath does not support {what}"
                );
                Err(OfpError::NxbacCtDatapathSupport)
            }
        }
    }

    fn lacking(&self, actions: &[Action]) -> Option<(&'static str, &'static str)> {
        actions.iter().find_map(|action| match action {
            Action::Clone(inner) | Action::WriteActions(inner) => self.lacking(inner),
            Action::ResubmitCt { .. } if !self.uses(Ct::Tuple) => Some(("resubmit", "ct original direction tuple")),
            Action::Ct(_) if !self.uses(Ct::State) => Some(("ct", "ct action")),
            Action::Ct(ct) if ct.zone != CtZone::Immediate(0) && !self.uses(Ct::Zone) => Some(("ct", "ct zones")),
            Action::Ct(ct) if ct.force && !self.uses(Ct::Tuple) => Some(("ct", "force commit")),
            Action::Ct(ct) => ct.exec.iter().find_map(|action| match action {
                Action::Nat(_) if !self.uses(Ct::Nat) => Some(("ct", "nat")),
                action => {
                    let dst = match action {
                        Action::SetField { field, .. } => Some(*field),
                        Action::RegLoad { dst, .. } | Action::RegMove { dst, .. } | Action::CopyField { dst, .. } => {
                            Some(dst.field)
                        }
                        _ => None,
                    };
                    let lacks = dst == Some(Field::CtMark) && !self.uses(Ct::Mark)
                        || dst == Some(Field::CtLabel) && !self.uses(Ct::Label);
                    lacks.then_some(("ct", "setting mark and/or label"))
                }
            }),
            _ => None,
        })
    }
}

type Named = (&'static str, &'static str, Value);

/// Returns the feature with this name, or all of them in the order of Open vSwitch's list.
fn named(name: Option<&str>) -> Option<impl Iterator<Item = (usize, Named)>> {
    let mut all: Vec<(usize, Named)> = FEATURES.into_iter().enumerate().collect();
    match name {
        Some(name) => all.retain(|(_, (known, ..))| *known == name),
        None => all.sort_by_key(|(i, _)| LISTED.iter().position(|listed| listed == i)),
    }
    (!all.is_empty()).then(|| all.into_iter())
}

/// Indices into [`FEATURES`], in the order of the list.
const LISTED: [usize; 27] =
    [5, 4, 2, 12, 26, 24, 1, 6, 15, 19, 13, 16, 7, 18, 22, 8, 14, 23, 10, 11, 21, 25, 17, 0, 9, 20, 3];

#[cfg(test)]
mod tests {
    use super::*;

    /// The features of a switch on a datapath with or without connection tracking.
    fn attached(conntrack: bool) -> Features {
        let features = Features::default();
        features.attach(Capabilities {
            sample_nesting_max: 10,
            mpls_depth_max: 3,
            conntrack,
            ..Capabilities::default()
        });
        features
    }

    fn lacking(features: &Features, actions: &str) -> Option<OfpError> {
        let actions = openflow::parse_actions(actions, &flow::text::NoNames).expect("actions");
        features.check_actions(&actions).err()
    }

    fn refused(features: &Features, matching: &str) -> Option<OfpError> {
        let matching = openflow::parse_flow(
            &format!("{matching},actions=drop"),
            openflow::FlowModCommand::Add,
            &flow::text::NoNames,
        );
        let matching = matching.expect("a flow").flow_mod.matching;
        features.check_match(&matching).err()
    }

    #[test]
    fn every_feature_is_listed_once() {
        let mut indices = LISTED;
        indices.sort_unstable();
        assert!(indices.iter().enumerate().all(|(i, place)| i == *place));
        let features = attached(false);
        let list = features.list(None, 1).expect("all");
        assert!(
            list.starts_with("sample_nesting (Sample nesting) : [run time]:10, [boot time]:10\nclone (Clone action)")
        );
        assert!(list.ends_with("trunc (Truncate action) : [run time]:true, [boot time]:true\n"));
        assert_eq!(features.list(Some("bogus"), 1), None);
        let shown = features.show(1);
        assert!(shown.starts_with("Masked set action: Yes\nTunnel push pop: No\n"), "{shown}");
        assert!(shown.contains("\nConntrack clear: Yes\n") && shown.contains("\nMax VLAN headers: 1\n"));
        assert!(shown.contains("\nCT state: No\nCT zone: No\nCT mark: No\nCT label: No\nCT state NAT: No\n"));
        assert_eq!(features.show_json(1)["ct_state"], json!(false));
        assert_eq!(
            features.list_json(Some("sample_nesting"), 1),
            Some(json!({"sample_nesting": {"run-time": 10, "boot-time": 10}}))
        );
    }

    #[test]
    fn features_can_be_disabled() {
        let refusal = |features: &Features, name, value| match features.set(name, value, false) {
            Set::Done => String::new(),
            Set::Refused(why) => why,
        };
        let features = attached(false);
        let why = |name, value| refusal(&features, name, value);
        assert_eq!(why("bogus", "true"), "Unexpected support field");
        assert_eq!(why("ct_state", "7"), "Boolean value expected");
        assert_eq!(why("ct_state", "true"), "Can not enable features not supported by the datapath");
        assert_eq!(why("max_mpls_depth", "x"), "Integer number expected");
        assert_eq!(why("max_mpls_depth", "4"), "Can not set value beyond the datapath capability");
        assert_eq!(why("recirc", "false"), "recirc can not be changed: the datapath is always used with it as it is");
        assert_eq!(features.set("ct_timeout", "true", true), Set::Done);
        assert_eq!(
            features.list(Some("ct_timeout"), 1).as_deref(),
            Some("ct_timeout (Conntrack timeout policy) : [run time]:true, [boot time]:false\n")
        );
        assert_eq!(why("psample", "true"), "Can not enable features not supported by the datapath");
        assert!(features.add_psample() && features.uses_psample());
        assert!(features.show(1).contains("\npsample action: Yes\n"));
        assert_eq!((why("psample", "false"), features.uses_psample()), (String::new(), false));
        // More collectors do not enable it again, but the user may.
        assert!(!features.add_psample() && !features.uses_psample());
        assert_eq!((why("psample", "true"), features.uses_psample()), (String::new(), true));
        let features = attached(true);
        let why = |name, value| refusal(&features, name, value);
        assert!(features.uses(Ct::Timeout) && features.uses(Ct::ZeroSnat));
        assert_eq!(why("ct_state", "false"), "");
        assert_eq!(
            features.list(Some("ct_state"), 1).as_deref(),
            Some("ct_state (CT state) : [run time]:false, [boot time]:true\n")
        );
        assert_eq!(why("ct_state", "TRUE"), "");
        assert_eq!(why("lb_output_action", "false"), "");
        assert!(!features.uses_lb_output());
        assert!(features.uses(Ct::State));
    }

    #[test]
    fn unsupported_flows_are_refused() {
        const ACTION: Option<OfpError> = Some(OfpError::NxbacCtDatapathSupport);
        const MATCH: Option<OfpError> = Some(OfpError::NxbmcCtDatapathSupport);
        let features = Features::default();
        for actions in ["ct(commit)", "clone(1,ct(table=1))", "resubmit(,1,ct)"] {
            assert_eq!(lacking(&features, actions), ACTION, "{actions}");
        }
        for matching in ["ct_state=+trk", "ct_mark=1", "ct_zone=0", "ct_label=0x1/0x1"] {
            assert_eq!(refused(&features, matching), MATCH, "{matching}");
        }
        assert_eq!(lacking(&features, "ct_clear,move:NXM_NX_CT_MARK[]->NXM_NX_REG0[]"), None);
        assert_eq!(refused(&features, "ip,reg0=1"), None);
        let features = attached(true);
        let with = |what: &str, value: &str| assert_eq!(features.set(what, value, false), Set::Done);
        for (what, actions, matching) in [
            ("ct_zone", "ct(zone=1)", "ct_zone=1"),
            ("ct_zone", "ct(zone=NXM_NX_REG0[0..15])", "ct_zone=0"),
            ("ct_mark", "ct(commit,exec(set_field:1->ct_mark))", "ct_mark=1"),
            ("ct_label", "ct(commit,exec(load:1->ct_label[0..5]))", "ct_label=1"),
            ("ct_state_nat", "ct(nat)", "ct_state=+trk-snat"),
            ("ct_orig_tuple", "ct(commit,force)", "ip,ct_state=+trk+est,ct_nw_src=1.1.1.1"),
            ("ct_orig_tuple", "resubmit(,1,ct)", "ip,ct_state=+trk+est,ct_nw_dst=1.1.1.1"),
        ] {
            assert_eq!((lacking(&features, actions), refused(&features, matching)), (None, None), "{actions}");
            with(what, "false");
            assert_eq!((lacking(&features, actions), refused(&features, matching)), (ACTION, MATCH), "{actions}");
            with(what, "true");
        }
        with("ct_orig_tuple6", "false");
        assert_eq!(refused(&features, "ipv6,ct_state=+trk+est,ct_ipv6_src=1::1"), MATCH);
        let ports = "ip,ct_state=+trk+est,ct_nw_proto=6,ct_tp_src=1";
        assert_eq!(refused(&features, ports), None);
        with("ct_orig_tuple", "false");
        assert_eq!(refused(&features, ports), MATCH);
        with("ct_zone", "false");
        assert_eq!(lacking(&features, "ct(commit)"), None);
    }
}
