//! Intended differences from the output and bytes of Open vSwitch 4.0: each rule with its reason. The test prints
//! the number of cases of each rule, and with the default seed it fails if a rule has none.

use openflow::Version;

/// One difference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference<'a> {
    /// The kind of message, or the format of flows.
    pub(crate) kind: &'a str,
    pub(crate) version: Option<Version>,
    /// True if the test damaged the message; for a flow, if fields were dropped because their prerequisites are missing.
    pub(crate) damaged: bool,
    /// The message, or the text of the flow.
    pub(crate) given: &'a [u8],
    pub(crate) ours: &'a str,
    pub(crate) theirs: &'a str,
}

pub(crate) struct Exception {
    pub(crate) reason: &'static str,
    pub(crate) applies: fn(&Difference<'_>) -> bool,
}

impl Exception {
    /// Prints the differences of the rule if the environment variable `CORPUS_SHOW` has words of its reason.
    pub(crate) fn show(&self, d: &Difference<'_>) {
        if std::env::var("CORPUS_SHOW").is_ok_and(|words| self.reason.contains(&words)) {
            let given = match std::str::from_utf8(d.given) {
                Ok(text) if text.contains("actions=") => text.to_owned(),
                _ => crate::hex(d.given),
            };
            println!("#### {} {:?} {given}\n--- ours\n{}\n--- theirs\n{}", d.kind, d.version, d.ours, d.theirs);
        }
    }
}

const fn because(reason: &'static str, applies: fn(&Difference<'_>) -> bool) -> Exception {
    Exception { reason, applies }
}

/// The error in a text.
fn error(text: &str) -> Option<&str> {
    text.split_once("***decode error: ")?.1.split_once("***").map(|(e, _)| e)
}

/// Returns true if the message has this type and this number in its first 16 bits.
fn is_numbered(d: &Difference<'_>, version: Version, types: &[u8], numbers: &[u8]) -> bool {
    d.version == Some(version)
        && matches!(d.given, [_, ty, _, _, _, _, _, _, 0, n, ..] if types.contains(ty) && numbers.contains(n))
}

/// Returns true if the features of a table have an experimenter property whose own type is that of a standard property.
fn has_ambiguous_experimenter(d: &Difference<'_>) -> bool {
    let properties = d.given.chunks(8).zip(d.given.chunks(8).skip(1));
    d.kind == "table features"
        && properties.into_iter().any(|(a, b)| a.starts_with(&[0xff, 0xff]) && matches!(b, [0, 0, 0, 0..16, ..]))
}

/// Returns true if the message sets asynchronous messages, the status of controllers among them.
fn is_status_property(d: &Difference<'_>) -> bool {
    d.kind == "async" && d.given.chunks(8).any(|property| matches!(property, [0, 12 | 13, ..]))
}

/// The text without matches on these fields, and without the separators between fields.
fn without(text: &str, fields: &[&str]) -> String {
    let words = text.split([',', ' ', '\n']).filter(|w| !w.is_empty());
    let left = words.filter(|w| w.split_once('=').is_none_or(|(name, _)| !fields.contains(&name)));
    left.collect::<Vec<_>>().join(" ")
}

fn differ_in(d: &Difference<'_>, fields: &[&str]) -> bool {
    let named = |text: &str| fields.iter().any(|f| text.contains(&format!("{f}=")));
    named(d.ours) != named(d.theirs)
        || without(d.ours, &[]) != without(d.theirs, &[])
            && named(d.ours)
            && without(d.ours, fields) == without(d.theirs, fields)
}

const WITHOUT_VERSION: &[&str] = &[
    "tun_erspan_ver",
    "tun_erspan_idx",
    "tun_erspan_dir",
    "tun_erspan_hwid",
    "gtpu_flags",
    "gtpu_msgtype",
    "nsh_c1",
    "nsh_c2",
    "nsh_c3",
    "nsh_c4",
];

pub(crate) const MESSAGES: &[Exception] = &[
    because("matches of ERSPAN, GTP-U and NSH context fields are printed without the fields beside them, too", |d| {
        differ_in(d, WITHOUT_VERSION) && without(d.ours, WITHOUT_VERSION) == without(d.theirs, WITHOUT_VERSION)
    }),
    because("statistics of flows, controllers and bundles of OpenFlow 1.5, which Open vSwitch lacks", |d| {
        is_numbered(d, Version::V15, &[18, 19], &[17, 18, 19]) && error(d.theirs) == Some("OFPBRC_BAD_STAT")
    }),
    because("the features of meters of OpenFlow 1.5 with its own length (section 7.3.5.15)", |d| {
        is_numbered(d, Version::V15, &[19], &[11]) && error(d.theirs) == Some("OFPBRC_BAD_LEN")
    }),
    because("the status of controllers among asynchronous messages (OpenFlow 1.5), which Open vSwitch lacks", |d| {
        let is_status = d.given.starts_with(&[Version::V15.wire(), 35]);
        is_status && error(d.theirs) == Some("OFPBRC_BAD_TYPE")
            || d.kind == "async"
                && d.ours.lines().filter(|line| !line.contains("CONT_STATUS:")).eq(d.theirs.lines())
                && d.ours.contains("CONT_STATUS:")
            || is_status_property(d) && error(d.theirs) == Some("OFPACFC_UNSUPPORTED")
    }),
    because("provider backbone bridges have actions here", |d| {
        d.ours.contains("_pbb")
            && without(&d.ours.replace(" push_pbb", "").replace(" pop_pbb", "").replace("<none>", ""), &[])
                == without(&d.theirs.replace("<none>", ""), &[])
    }),
    because("actions that Open vSwitch lacks: copying of TTLs, and provider backbone bridges", |d| {
        let is_ours = |action: &[u8]| matches!(action, [0, 11 | 12 | 26 | 27, 0, 8]);
        error(d.theirs) == Some("OFPBAC_BAD_TYPE") && d.given.chunks(4).any(is_ours)
    }),
    because(
        "tables skip experimenter properties (OpenFlow 1.3 section 7.3.5.5.2); Open vSwitch reads them as standard ones",
        |d| has_ambiguous_experimenter(d) && d.ours != d.theirs,
    ),
    because("extension headers of IPv6 are a field here (OpenFlow 1.3 section 7.2.3.8)", |d| {
        d.ours.contains("ipv6_exthdr=")
            && !d.theirs.contains("ipv6_exthdr=")
            && without(d.ours, &["ipv6_exthdr"]) == without(d.theirs, &["ipv6_exthdr"])
    }),
    because(
        "a mask has no bits beyond the 20 of ipv6_label (OpenFlow 1.3 section 7.2.3.7); Open vSwitch prints them",
        |d| {
            d.ours != d.theirs
                && d.theirs.contains("ipv6_label=")
                && without(d.ours, &["ipv6_label"]) == without(d.theirs, &["ipv6_label"])
        },
    ),
    because("types of groups that no version defines are refused", |d| {
        error(d.ours) == Some("OFPGMFC_BAD_TYPE")
            && d.ours.split(' ').next().is_some_and(|name| name.ends_with("ST_GROUP_DESC"))
    }),
    because("what must be zero is looked at as it is read, which Open vSwitch does as it is carried out", |d| {
        error(d.ours) == Some("NXBRC_MUST_BE_ZERO")
            && ["NXT_SET_CONTROLLER_ID ", "NXT_CT_FLUSH_ZONE "].iter().any(|name| d.ours.starts_with(name))
    }),
    because("statistics of OpenFlow 1.5 with flags that are not known: Open vSwitch's error has no name", |d| {
        error(d.theirs) == Some("<invalid>")
    }),
    because("bundles take changes of meters, too", |d| {
        d.kind.ends_with("bundle add") && error(d.theirs) == Some("OFPBFC_MSG_UNSUP") && d.ours.contains("METER_MOD")
    }),
    because("a field of set_field that is not known: Open vSwitch takes some for others of another length", |d| {
        error(d.ours) == Some("OFPBAC_BAD_SET_TYPE") && error(d.theirs) == Some("OFPBAC_BAD_SET_LEN")
    }),
    because("resubmit(PORT,,ct) is printed with what it does", |d| {
        d.ours != d.theirs && d.ours.contains(",,ct)") && d.theirs.contains("resubmit:")
    }),
    because("all bits at once say nothing of how flows are evicted", |d| {
        d.theirs.contains("eviction=***error***") && !d.ours.contains("eviction=***error***")
    }),
    because("quoted messages of versions that there are not are not named", |d| d.theirs.contains("(OF 0x")),
];

/// Flows with errors: `ours` and `theirs` are the error messages, empty for accepted flows.
pub(crate) const DAMAGED_FLOWS: &[Exception] =
    &[because("a clone with a bad action, with which Open vSwitch aborts", |d| {
        d.theirs.contains("assertion") && d.theirs.contains("ofpact_finish_CLONE") && !d.ours.is_empty()
    })];

/// Returns the first rule that covers a difference.
pub(crate) fn find(rules: &[Exception], d: &Difference<'_>) -> Option<usize> {
    rules.iter().position(|rule| (rule.applies)(d))
}

/// Reports each rule without differences among these seeds, if they are the default ones.
pub(crate) fn settle(rules: &[Exception], counts: &[usize], seeds: std::ops::Range<u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (rule, n) in rules.iter().zip(counts) {
        println!("{n:>5} {}", rule.reason);
        if *n == 0 && seeds.contains(&1) {
            wrong.push(format!("nothing falls under: {}", rule.reason));
        }
    }
    wrong
}

/// Returns true if the text of a flow has one of these words.
fn says(d: &Difference<'_>, words: &[&str]) -> bool {
    let text = std::str::from_utf8(d.given).unwrap_or_default();
    words.iter().any(|w| text.contains(w))
}

/// The match entry for a packet that begins with an Ethernet header.
const IS_ETHERNET: &str = "8000580400000000";

pub(crate) const FLOWS: &[Exception] = &[
    because(
        "fields that lack what they presuppose are left out; `parse-flows` sends them, and switches drop or refuse them",
        |d| d.damaged || says(d, &["ip_frag=later", "ip_frag[0..1]=0x2"]),
    ),
    because("that packets begin with an Ethernet header goes without saying", |d| {
        d.theirs.contains(IS_ETHERNET) && !d.ours.contains(IS_ETHERNET)
    }),
    because(
        "fields of ERSPAN and GTP-U: Open vSwitch sends the value for the mask, and nothing for a value of 0",
        |d| says(d, &["tun_erspan_", "tun_gtpu_", "ET_ERSPAN_", "ET_GTPU_"]),
    ),
    because("set_field in OpenFlow 1.1 keeps its mask, where Open vSwitch sets all of the field", |d| {
        d.version == Some(Version::V11)
            && says(d, &["set_field:"])
            && d.ours.contains("000023200007")
            && !d.theirs.contains("000023200007")
    }),
    because("set_field in OpenFlow 1.0 keeps its mask, and its field: Open vSwitch sends another one for VLANs", |d| {
        d.version == Some(Version::V10) && says(d, &["set_field:"])
    }),
    because(
        "set_field of dl_vlan, dl_vlan_pcp, vlan_tci and tun_flags, of which Open vSwitch sends what has no meaning",
        |d| says(d, &["->dl_vlan", "->vlan_tci", "->tun_flags"]),
    ),
    because("a value of set_field has no bits beyond its mask", |d| {
        let text = std::str::from_utf8(d.given).unwrap_or_default();
        d.version >= Some(Version::V11)
            && text.split("set_field:").skip(1).any(|s| s.split("->").next().is_some_and(|v| v.contains('/')))
    }),
];
