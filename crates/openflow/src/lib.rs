//! OpenFlow messages, actions and their text.
//!
//! A message is a value of [`Message`], the same for all versions; [`decode`] and [`encode`] convert from and to bytes.
//! [`stream`] splits a byte stream into messages. This crate does no I/O.
//!
//! - [`version`], [`versions`], [`error`]: versions, sets of them, and errors with their numbers and names.
//! - [`message`], [`types`]: all messages as values, and the table of their numbers in each version.
//! - [`switch`], [`role`], [`asynchronous`], [`request_forward`], [`bundle`],
//!   [`bundle_features`], [`controller_status`], [`port`], [`queue`], [`packet`], [`flow_msg`],
//!   [`monitor`], [`table`], [`tlv`], [`group`], [`meter`]: the messages' contents, by topic.
//! - [`multipart`]: statistics; replies in several parts, written one message at a time, and their reassembly.
//! - [`nxm`], [`of_match`], [`prereq`]: matches as entries and as fixed structures, and the prerequisites of their fields.
//! - [`mod@print`]: messages as text.
//! - [`wire`], `property`: the reader and the writer of bytes, and properties.
//! - [`action`]: actions and instructions as values ([`Action`]), bytes and text.
//! - [`flow_mod`], [`flow_text`]: flow mods, as a value and as text.
//! - [`protocol`]: the flow formats of `ovs-ofctl -F`, and what each of them can carry.

pub mod action;
pub mod asynchronous;
mod body;
pub mod bundle;
pub mod bundle_features;
pub mod continuation;
pub mod controller_status;
pub mod ct_flush;
pub mod error;
pub mod flow_mod;
pub mod flow_msg;
pub mod flow_text;
pub mod group;
pub mod ipfix;
pub mod message;
pub mod meter;
pub mod monitor;
pub mod multipart;
pub mod nxm;
pub mod of_match;
mod oxs;
pub mod packet;
pub mod port;
pub mod prereq;
pub mod print;
mod property;
pub mod protocol;
pub mod queue;
pub mod request_forward;
pub mod role;
pub mod stream;
pub mod switch;
pub mod table;
pub mod tlv;
pub mod types;
pub mod version;
pub mod versions;
pub mod wire;

pub use action::check::{Limits, check, check_tables};
pub use action::decode::{allow_debug_actions, decode_actions};
pub use action::encode::encode_actions;
pub use action::format::{actions_to_string, format_actions};
pub use action::instruction::{decode_flow_actions, decode_instructions, encode_flow_actions, encode_instructions};
pub use action::parse::{ActionError, parse_actions, parse_instructions};
pub use action::{
    ALG_FTP, ALG_TFTP, Action, BundleAction, ControllerAction, Ct, CtZone, Encap, EncapHeader, EncapProperty,
    HashFields, Learn, LearnDst, LearnSpec, LearnSrc, LinkAlgorithm, MemberAlgorithm, Multipath, Nat, NatAddresses,
    NatKind, ObservationId, PacketInReason, Sample, SampleDirection, SampleForm, Subfield,
};
pub use body::packet_to_string;
pub use error::OfpError;
pub use flow_mod::{FlowFlags, FlowMod, FlowModCommand};
pub use flow_text::{FlowTextError, ParsedFlow, parse_flow, parse_flow_filter, parse_flow_line};
pub use group::{
    Bucket, GroupCommand, GroupKind, GroupMod, GroupTextError, ParsedGroup, parse_group, parse_group_line,
};
pub use message::{
    DecodeError, FlowModHead, Form, Message, Options, Xid, decode, decode_flow_mod_into, decode_with, encode,
    encode_with,
};
pub use meter::{Band, BandKind, MeterCommand, MeterMod, MeterTextError, ParsedMeter, parse_meter, parse_meter_id};
pub use protocol::Protocols;
pub use version::Version;
pub use versions::Versions;
