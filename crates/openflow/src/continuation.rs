//! Continuations: the state of a packet at a `controller` action with `pause`, which a packet-in passes to the controller and
//! NXT_RESUME passes back (ovs-actions(7), "The controller action").
//!
//! To a controller a continuation is opaque. This module reads it to print it, and to let the switch that sent it recognise
//! its own mark.

use crate::Version;
use crate::action::Action;
use crate::body::read_actions;
use crate::error::OfpError;
use crate::property;
use crate::wire::{Reader, Result, Writer};

// Property types, as Open vSwitch has them.
const BRIDGE: u16 = 0x8000;
const STACK: u16 = 0x8001;
const MIRRORS: u16 = 0x8002;
const CONNTRACKED: u16 = 0x8003;
const TABLE_ID: u16 = 0x8004;
const COOKIE: u16 = 0x8005;
const ACTIONS: u16 = 0x8006;
const ACTION_SET: u16 = 0x8007;
const ODP_PORT: u16 = 0x8008;

/// Padding after the header of the outer property, which aligns the inner ones to 8 bytes.
pub(crate) const PAD: usize = 4;

/// The rest of an action list, and the flow that it belongs to.
#[derive(Clone, PartialEq, Debug)]
pub struct Left {
    /// Table and cookie of the flow, from the last property that stated them.
    pub flow: (u8, u64),
    /// The remaining actions.
    pub actions: Vec<Action>,
}

/// The state of a paused packet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Continuation {
    /// A UUID by which the switch recognises its own continuations.
    pub bridge: u128,
    /// Values on the stack, the top one first, in wire format.
    pub stack: Vec<Vec<u8>>,
    /// A bit for each mirror that has received the packet.
    pub mirrors: u32,
    /// True if the packet has passed connection tracking.
    pub conntracked: bool,
    /// The remaining action lists, the innermost first.
    pub left: Vec<Left>,
    /// The action set.
    pub action_set: Vec<Action>,
    /// The ingress port's number in the datapath.
    pub odp_port: Option<u32>,
}

impl Continuation {
    /// Reads the bytes of [`crate::packet::PacketIn::continuation`].
    pub fn decode(version: Version, bytes: &[u8]) -> Result<Self> {
        let mut c = Self::default();
        let mut flow = (0, 0);
        let bytes = bytes.get(PAD..).ok_or(OfpError::BpcBadLen)?;
        property::each(&mut Reader::new(bytes), |p| {
            match p.ty {
                BRIDGE => c.bridge = uuid(p.value.peek().try_into().map_err(|_| OfpError::BpcBadLen)?),
                STACK => c.stack.push(p.value.peek().to_vec()),
                MIRRORS => c.mirrors = p.u32()?,
                CONNTRACKED => c.conntracked = true,
                TABLE_ID => flow.0 = p.u8()?,
                COOKIE => flow.1 = p.u64()?,
                ACTIONS => c.left.push(Left { flow, actions: actions(version, p)? }),
                // Further properties continue the set.
                ACTION_SET => c.action_set.extend(actions(version, p)?),
                ODP_PORT => c.odp_port = Some(p.u32()?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(c)
    }

    /// Returns the bytes of a continuation that contains no more than the switch's UUID, and the table and cookie of the flow.
    pub fn mark(bridge: u128, (table, cookie): (u8, u64)) -> Vec<u8> {
        let mut out = Writer::new();
        out.zeros(PAD);
        let mut properties = Writer::new();
        property::put(&mut properties, BRIDGE, |out| out.put(&uuid(bridge.to_be_bytes()).to_be_bytes()));
        property::put(&mut properties, TABLE_ID, |out| out.put_u8(table));
        property::put_u64(&mut properties, COOKIE, cookie);
        property::put(&mut properties, ACTIONS, |out| out.zeros(PAD));
        out.append(&properties);
        out.into_bytes().unwrap_or_default()
    }
}

/// Converts a UUID from or to the bytes in which Open vSwitch keeps it: four words in the byte order of the machine, which is
/// little-endian on all supported ones.
fn uuid(bytes: [u8; 16]) -> u128 {
    bytes.chunks_exact(4).flat_map(|word| word.iter().rev()).fold(0, |n, b| n << 8 | u128::from(*b))
}

fn actions(version: Version, p: property::Property<'_>) -> Result<Vec<Action>> {
    p.read(|r| {
        r.skip(PAD)?;
        read_actions(version, r)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version::V10;

    #[test]
    fn a_mark_is_read_again() {
        let bytes = Continuation::mark(u128::MAX - 5, (3, 0x99));
        let c = Continuation::decode(V10, &bytes).expect("well-formed");
        assert_eq!((c.bridge, c.left), (u128::MAX - 5, vec![Left { flow: (3, 0x99), actions: vec![] }]));
        for len in 0..bytes.len() {
            // A prefix may be a valid, shorter continuation.
            drop(Continuation::decode(V10, &bytes[..len]));
        }
        assert_eq!(Continuation::decode(V10, &[0; 3]), Err(OfpError::BpcBadLen));
        assert_eq!(Continuation::decode(V10, &[0, 0, 0, 0, 0x80, 9, 0, 4, 0, 0, 0, 0]), Ok(Continuation::default()));
    }
}
