//! The field table, flow keys, masks and matches, extraction from packets, and the text syntax of matches.
//!
//! - [`field`], [`table`]: the one table that describes every match field (ovs-fields(7)).
//! - [`layout`]: where things stand in a key, and the lookup stages.
//! - [`key`]: [`FlowKey`] and [`FlowMask`]; [`matches`]: [`Match`]; [`options`], [`placed`]: tunnel options; [`reads`]: [`Reads`].
//! - [`sparse`], [`steps`]: keys, masks and reads in the form in which they are kept.
//! - [`plain`]: keys of plain packets, which are nearly all; [`alike`]: what a flow asks of a plain frame's bytes.
//! - [`mod@extract`]: from the bytes of a frame to its key; [`mod@compose`]: and back; [`hash`]: hashes of its flow;
//!   [`exthdr`]: IPv6 extension headers.
//! - [`text`]: matches and keys as `ovs-ofctl` reads and writes them; [`normalize`]: prerequisites.

pub mod alike;
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

pub use alike::Alike;
pub use compose::compose;
pub use extract::{Again, Layers, extract};
pub use field::{Field, FieldInfo, Format, Loc, Maskable, Prereq};
pub use key::{FlowKey, FlowMask};
pub use layout::{Stage, WORDS};
pub use matches::Match;
pub use normalize::Normalized;
pub use options::TunOption;
pub use placed::{OptionPlace, OptionTable, PlacedOption};
pub use plain::{Code, PLAIN_WORDS, PlainKey, Words};
pub use reads::{Reads, Step};
pub use sparse::Sparse;
pub use steps::Steps;
pub use text::{MatchError, NoNames, PortNames};
