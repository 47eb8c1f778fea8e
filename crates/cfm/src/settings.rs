//! The settings of a maintenance point, read from Interface:`cfm_mpid` and `other_config` as Open vSwitch 4.0.0 reads
//! them: a value that cannot be used is replaced by its default.

use crate::pdu::INTERVALS_MS;
use base::MacAddr;

/// The default of `cfm_interval` in milliseconds.
const INTERVAL_MS: u64 = 1000;
/// The longest interval in extended mode, in milliseconds.
const EXTENDED_INTERVAL_MAX_MS: u64 = 65_535;
/// The largest identifier outside of extended mode (IEEE 802.1Q-2018 clause 21.6.4).
const MPID_MAX: i64 = 8191;

/// The VLAN of sent CCMs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CcmVlan {
    /// This one; 0 for none.
    Fixed(u16),
    /// Another one for each CCM.
    Random,
}

/// The settings of a maintenance point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PointSettings {
    /// Name of the interface.
    pub name: String,
    /// MAC address of the interface, which CCMs are sent from.
    pub mac: MacAddr,
    /// Identifier of the maintenance point; at most 8191 unless extended.
    pub mpid: u64,
    /// The interval of CCMs in milliseconds; one of [`INTERVALS_MS`] unless extended.
    pub interval_ms: u64,
    /// Extended mode.
    pub extended: bool,
    /// Received traffic counts as evidence of remote points; extended mode only.
    pub demand: bool,
    /// Report that the local end is operationally down; extended mode only.
    pub is_down: bool,
    /// VLAN of CCMs.
    pub vlan: CcmVlan,
    /// Priority of CCMs, 0 to 7.
    pub pcp: u8,
    /// Accept only packets with a tunnel key of zero.
    pub check_tunnel_key: bool,
}

impl PointSettings {
    /// The defaults for an interface.
    pub fn new(name: impl Into<String>, mac: MacAddr, mpid: u64) -> Self {
        Self {
            name: name.into(),
            mac,
            mpid,
            interval_ms: INTERVAL_MS,
            extended: false,
            demand: false,
            is_down: false,
            vlan: CcmVlan::Fixed(0),
            pcp: 0,
            check_tunnel_key: false,
        }
    }

    /// Reads the settings of an interface; `None` if the identifier is out of range.
    pub fn from_columns<'a>(
        name: &str,
        mac: MacAddr,
        mpid: i64,
        other_config: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Self> {
        let is_true = |key: &str| other_config(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let number = |key: &str| other_config(key).and_then(|text| text.trim_start().parse::<i32>().ok());
        let extended = is_true("cfm_extended");
        if mpid == 0 || !extended && !(1..=MPID_MAX).contains(&mpid) {
            return None;
        }
        let interval = number("cfm_interval").filter(|ms| *ms > 0).map_or(INTERVAL_MS, |ms| ms as u64);
        let vlan = match other_config("cfm_ccm_vlan") {
            Some(word) if word.eq_ignore_ascii_case("random") => CcmVlan::Random,
            _ => CcmVlan::Fixed(number("cfm_ccm_vlan").filter(|vlan| (1..=4095).contains(vlan)).unwrap_or(0) as u16),
        };
        Some(Self {
            mpid: mpid as u64,
            interval_ms: if extended { interval.min(EXTENDED_INTERVAL_MAX_MS) } else { rounded(interval) },
            extended,
            demand: extended && is_true("cfm_demand"),
            is_down: extended && other_config("cfm_opstate").is_some_and(|state| !state.eq_ignore_ascii_case("up")),
            vlan,
            pcp: number("cfm_ccm_pcp").filter(|pcp| (1..=7).contains(pcp)).unwrap_or(0) as u8,
            ..Self::new(name, mac, 0)
        })
    }

    /// The code of the interval in CCMs, or 0 if it has none.
    pub(crate) fn interval_code(&self) -> u8 {
        INTERVALS_MS.iter().position(|ms| *ms == self.interval_ms).map_or(0, |place| place as u8 + 1)
    }
}

/// The longest interval with a code that is not longer.
fn rounded(interval_ms: u64) -> u64 {
    INTERVALS_MS.iter().rev().find(|ms| **ms <= interval_ms).copied().unwrap_or(INTERVALS_MS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mpid: i64, pairs: &[(&str, &'static str)]) -> Option<PointSettings> {
        let get = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        PointSettings::from_columns("p1", MacAddr::from_u64(1), mpid, get)
    }

    #[test]
    fn identifiers() {
        let extended = [("cfm_extended", "true")];
        let accepted =
            |pairs: &[(&str, &'static str)]| [-1, 0, 1, 8191, 8192, i64::MAX].map(|mpid| read(mpid, pairs).is_some());
        assert_eq!(accepted(&[]), [false, false, true, true, false, false]);
        assert_eq!(accepted(&extended), [true, false, true, true, true, true]);
        assert_eq!(read(-1, &extended).unwrap().mpid, u64::MAX);
    }

    #[test]
    fn intervals() {
        for (text, standard, extended) in [
            ("1", 3, 1),
            ("9", 3, 9),
            ("99", 10, 99),
            ("333", 100, 333),
            ("1001", 1000, 1001),
            ("9999", 1000, 9999),
            ("70000", 60_000, 65_535),
            ("1000000", 600_000, 65_535),
            ("-1", 1000, 1000),
            ("abc", 1000, 1000),
        ] {
            assert_eq!(read(1, &[("cfm_interval", text)]).unwrap().interval_ms, standard, "{text}");
            let pairs = [("cfm_interval", text), ("cfm_extended", "true")];
            assert_eq!(read(1, &pairs).unwrap().interval_ms, extended, "{text}");
        }
    }

    #[test]
    fn tags() {
        let vlan = |text| read(1, &[("cfm_ccm_vlan", text)]).unwrap().vlan;
        assert_eq!(["0", "4095", "4096", "abc"].map(vlan), [0, 4095, 0, 0].map(CcmVlan::Fixed));
        assert_eq!(vlan("random"), CcmVlan::Random);
        let pcp = |text| read(1, &[("cfm_ccm_pcp", text)]).unwrap().pcp;
        assert_eq!(["0", "7", "8", "abc"].map(pcp), [0, 7, 0, 0]);
    }

    #[test]
    fn some_settings_need_extended_mode() {
        let pairs = [("cfm_demand", "true"), ("cfm_opstate", "bogus")];
        let standard = read(1, &pairs).unwrap();
        assert_eq!((standard.demand, standard.is_down), (false, false));
        let extended = read(1, &[&pairs[..], &[("cfm_extended", "true")]].concat()).unwrap();
        assert_eq!((extended.demand, extended.is_down), (true, true));
    }
}
