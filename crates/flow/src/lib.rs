//! The field table, flow keys, masks and matches, extraction from packets, and the text syntax of matches.
//!
//! - [`field`], [`table`]: the table of all match fields (ovs-fields(7)).
//! - [`layout`]: the words of a key, and the lookup stages.
//! - [`key`]: [`FlowKey`] and [`FlowMask`]; [`matches`]: [`Match`]; [`options`], [`placed`]: tunnel options; [`reads`]:
//!   [`Reads`].
//! - [`sparse`], [`steps`]: keys, masks and reads in compressed form.
//! - [`plain`], [`compact`], [`tracked`] and [`tunneled`]: compact keys of plain packets, nearly all of the traffic; [`byte_pattern`]: a flow's
//!   match on the bytes of a plain frame.
//! - [`mod@extract`]: from a frame to its key; [`mod@compose`]: from a key to a frame; [`hash`]: flow hashes;
//!   [`exthdr`]: IPv6 extension headers.
//! - [`text`]: matches and keys in the syntax of `ovs-ofctl`; [`normalize`]: prerequisites.

pub mod byte_pattern;
pub mod compact;
pub mod compose;
pub mod exthdr;
pub mod extract;
pub mod field;
pub mod hash;
pub mod key;
pub mod layout;
pub mod matches;
pub mod normalize;
pub mod options;
pub mod placed;
pub mod plain;
pub mod reads;
pub mod sparse;
pub mod steps;
pub mod table;
pub mod text;
pub mod tracked;
pub mod tunneled;

pub use byte_pattern::{BytePattern, FramePattern};
pub use compose::compose;
pub use extract::{Layers, PacketContext, extract};
pub use field::{Field, FieldInfo, Format, Loc, Maskable, Prereq};
pub use key::{FlowKey, FlowMask};
pub use layout::{Stage, WORDS};
pub use matches::Match;
pub use normalize::Normalized;
pub use options::TunOption;
pub use placed::{OTHER_LENGTH, OptionPlace, OptionTable, PlacedOption, ReceivedOptions, UNKNOWN_OPTION};
pub use plain::{Code, PLAIN_WORDS, PlainKey, WIDE_WORDS, WideKey, Words};
pub use reads::{Reads, Step};
pub use sparse::Sparse;
pub use steps::Steps;
pub use text::{MatchError, NoNames, PortNames};
pub use tracked::{Brief, TrackedKey, TrackedMatch};
pub use tunneled::TunneledKey;
