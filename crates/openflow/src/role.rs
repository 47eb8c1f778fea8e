//! Roles of controllers: requests, replies, and role status messages (OpenFlow 1.3 section 7.3.9, 1.4 section 7.4.4; Nicira's
//! and the Open Networking Foundation's forms of them).

use crate::error::OfpError;
use crate::wire::{Reader, Result, Writer};

/// A controller's role.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Role {
    /// In requests: keep the current role, and return it (OpenFlow 1.2).
    NoChange = 0,
    /// Full access, like all other equal controllers.
    Equal = 1,
    /// Full access; at most one controller has it.
    Primary = 2,
    /// Read-only access.
    Secondary = 3,
}

/// A role request or reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleMsg {
    /// The role.
    pub role: Role,
    /// Orders primary elections (OpenFlow 1.2); `None` if there has been none.
    pub generation_id: Option<u64>,
}

/// The generation id for "none".
const NO_GENERATION: u64 = u64::MAX;

pub(crate) fn read_role(r: &mut Reader<'_>) -> Result<Role> {
    let all = [Role::NoChange, Role::Equal, Role::Primary, Role::Secondary];
    let n = r.u32()?;
    all.into_iter().find(|role| *role as u32 == n).ok_or(OfpError::RrfcBadRole)
}

fn read_generation(r: &mut Reader<'_>) -> Result<Option<u64>> {
    let id = r.u64()?;
    Ok((id != NO_GENERATION).then_some(id))
}

impl RoleMsg {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let role = read_role(r)?;
        r.skip(4)?;
        Ok(Self { role, generation_id: read_generation(r)? })
    }

    pub(crate) fn encode(self, out: &mut Writer) {
        out.put_u32(self.role as u32);
        out.zeros(4);
        out.put_u64(self.generation_id.unwrap_or(NO_GENERATION));
    }

    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<Self> {
        let role = match r.u32()? {
            0 => Role::Equal,
            1 => Role::Primary,
            2 => Role::Secondary,
            _ => return Err(OfpError::RrfcBadRole),
        };
        r.finish()?;
        Ok(Self { role, generation_id: None })
    }

    pub(crate) fn encode_nx(self, out: &mut Writer) {
        out.put_u32(match self.role {
            Role::Primary => 1,
            Role::Secondary => 2,
            Role::Equal | Role::NoChange => 0,
        });
    }
}

/// The reason for a role change without a request of the controller (`ofp_controller_role_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RoleReason {
    /// Another controller requested the primary role.
    PrimaryRequest,
    /// The switch's configuration changed.
    Config,
    /// Experimenter data changed.
    Experimenter,
    /// An unknown reason.
    Other(u8),
}

impl RoleReason {
    /// The reason's number.
    pub fn wire(self) -> u8 {
        match self {
            Self::PrimaryRequest => 0,
            Self::Config => 1,
            Self::Experimenter => 2,
            Self::Other(n) => n,
        }
    }

    fn from_wire(n: u8) -> Self {
        match n {
            0 => Self::PrimaryRequest,
            1 => Self::Config,
            2 => Self::Experimenter,
            n => Self::Other(n),
        }
    }
}

/// A controller's role changed without its request (OpenFlow 1.4; the Open Networking Foundation's extension of 1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleStatus {
    /// The new role.
    pub role: Role,
    /// The reason.
    pub reason: RoleReason,
    /// The generation id of the request that caused it, if there is one.
    pub generation_id: Option<u64>,
}

impl RoleStatus {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (role, reason) = (read_role(r)?, RoleReason::from_wire(r.u8()?));
        r.skip(3)?;
        let generation_id = read_generation(r)?;
        // Properties, none of which are known.
        r.rest();
        Ok(Self { role, reason, generation_id })
    }

    pub(crate) fn encode(self, out: &mut Writer) {
        out.put_u32(self.role as u32);
        out.put_u8(self.reason.wire());
        out.zeros(3);
        out.put_u64(self.generation_id.unwrap_or(NO_GENERATION));
    }
}
