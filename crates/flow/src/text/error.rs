//! Errors in the text of a match. The messages are those of `ovs-ofctl`.

/// An error in the text of a match or of a field's value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum MatchError {
    #[error("unknown keyword {0}")]
    UnknownKeyword(String),
    #[error("field {0} missing value")]
    MissingValue(String),
    #[error("{text}: bad syntax for {field} {part}")]
    Syntax { text: String, part: Part, field: &'static str },
    #[error("{text}: {part} too large for {bytes}-byte field {field}")]
    TooLarge { text: String, part: Part, bytes: usize, field: &'static str },
    #[error("{text} is not a valid value for field {field}")]
    NotValid { text: String, field: &'static str },
    #[error("{text}: invalid mask for field {field}")]
    Mask { text: String, field: &'static str },
    #[error("{0}: invalid IP address")]
    Ipv4(String),
    #[error("{0}: IPv4 network prefix bits not between 0 and 32, inclusive")]
    Ipv4Prefix(String),
    #[error("{0}: invalid IPv6 address")]
    Ipv6(String),
    #[error("{0}: IPv6 network prefix bits not between 0 and 128, inclusive")]
    Ipv6Prefix(String),
    #[error("{0}: Invalid IPv6 mask")]
    Ipv6Mask(String),
    #[error("{0}: invalid Ethernet address")]
    Mac(String),
    #[error("{text}: invalid or unknown port for {field}")]
    Port { text: String, field: &'static str },
    #[error("{text}: port value out of range for {field}")]
    PortRange { text: String, field: &'static str },
    #[error("{text}: unknown {what} flag(s)")]
    Flag { text: String, what: &'static str },
    #[error("{text}: Each {what} flag can be specified only once")]
    FlagTwice { text: String, what: &'static str },
    // The closing parenthesis is missing in Open vSwitch's message, too, and scripts match on it.
    #[error("{0}: unknown fragment type (valid types are \"no\", \"yes\", \"first\", \"later\", \"not_later\"")]
    Frag(String),
    #[error("{text}: bad syntax for packet type {what}")]
    PacketType { text: String, what: &'static str },
    #[error("{field} has no place: the switch has no TLV table that maps it")]
    NoTlvTable { field: &'static str },
    #[error("field {field} set multiple times")]
    Twice { field: &'static str },
    #[error("unexpected input following field syntax")]
    AfterSubfield,
    #[error("{text}: {what}")]
    Subfield { text: String, what: String },
}

/// The half of `value/mask` that an error refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Before the slash.
    Value,
    /// After the slash.
    Mask,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Value => "value",
            Self::Mask => "mask",
        })
    }
}
