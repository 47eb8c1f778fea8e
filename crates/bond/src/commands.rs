//! Changes by an operator: `bond/migrate`, `bond/set-active-member`, `bond/enable-member`, `bond/disable-member`; and
//! `bond/hash`. The next poll carries out the effects. None of the changes is permanent.

use crate::bond::{Bond, Outcome};
use crate::hash::{bucket_of, source_hash};
use crate::machine::{Bonds, Effect};
use crate::settings::Mode;
use base::{BridgePort, MacAddr};
use std::sync::Arc;

/// The reason why a command is refused; the text is that of Open vSwitch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no bond of this name.
    #[error("no such bond")]
    NoBond,
    /// The bond has no member of this name.
    #[error("no such member")]
    NoMember,
    /// Only a bond in mode `balance-slb` has buckets that an operator may move.
    #[error("not an SLB bond")]
    NotSlb,
    /// The hash is not a number.
    #[error("bad hash")]
    BadHash,
    /// A disabled member has no buckets.
    #[error("cannot migrate to disabled member")]
    MigrateToDisabled,
    /// A disabled member cannot be the active one.
    #[error("cannot make disabled member active")]
    ActivateDisabled,
    /// An argument of `bond/hash`.
    #[error("invalid mac")]
    BadMac,
    /// An argument of `bond/hash`.
    #[error("invalid vlan")]
    BadVlan,
    /// An argument of `bond/hash`.
    #[error("invalid basis")]
    BadBasis,
}

impl Bonds {
    /// Moves the bucket `hash`, of which the low byte counts, to a member.
    pub fn migrate(&mut self, bond: &str, hash: &str, member: &str) -> Result<&'static str, CommandError> {
        let bond = self.bonds.get_mut(bond).ok_or(CommandError::NoBond)?;
        if bond.settings.mode != Mode::BalanceSlb {
            return Err(CommandError::NotSlb);
        }
        if !hash.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(CommandError::BadHash);
        }
        let low_byte = hash.bytes().fold(0u8, |n, digit| n.wrapping_mul(10).wrapping_add(digit - b'0'));
        let port = member_of(bond, member)?;
        if !bond.members[&port].enabled {
            return Err(CommandError::MigrateToDisabled);
        }
        bond.buckets[usize::from(low_byte)].owner = Some(port);
        bond.dirty = true;
        Ok("migrated")
    }

    /// Makes an enabled member the active one.
    pub fn set_active_member(&mut self, bond: &str, member: &str) -> Result<&'static str, CommandError> {
        let bond = self.bonds.get_mut(bond).ok_or(CommandError::NoBond)?;
        let port = member_of(bond, member)?;
        if !bond.members[&port].enabled {
            return Err(CommandError::ActivateDisabled);
        }
        if bond.active == Some(port) {
            return Ok("no change");
        }
        let mut out = Outcome::default();
        bond.activate(port, String::new(), &mut out);
        let announce = out.announce.then(|| Effect::Announce { bond: Arc::clone(&bond.name) });
        self.add_effects(out.log, announce);
        Ok("done")
    }

    /// Enables a member without its updelay, until the state of its link says otherwise.
    pub fn enable_member(&mut self, bond: &str, member: &str) -> Result<&'static str, CommandError> {
        self.change_member(bond, member, true).map(|()| "enabled")
    }

    /// Disables a member without its downdelay, until the state of its link says otherwise.
    pub fn disable_member(&mut self, bond: &str, member: &str) -> Result<&'static str, CommandError> {
        self.change_member(bond, member, false).map(|()| "disabled")
    }

    fn change_member(&mut self, bond: &str, member: &str, enabled: bool) -> Result<(), CommandError> {
        let bond = self.bonds.get_mut(bond).ok_or(CommandError::NoBond)?;
        let port = member_of(bond, member)?;
        let mut out = Outcome::default();
        bond.enable(port, enabled, &mut out);
        self.add_effects(out.log, None);
        Ok(())
    }
}

fn member_of(bond: &Bond, name: &str) -> Result<BridgePort, CommandError> {
    let member = bond.members.iter().find(|(_, member)| *member.name == *name);
    member.map(|(port, _)| *port).ok_or(CommandError::NoMember)
}

/// The reply to `bond/hash`: the bucket of an address, with a VLAN and a basis of 0 unless given. Numbers are as in the C
/// language's `%u`: a sign may be in front and anything behind them, and they wrap.
pub fn hash(mac: &str, vlan: Option<&str>, basis: Option<&str>) -> Result<u8, CommandError> {
    let mac = parse_mac(mac).ok_or(CommandError::BadMac)?;
    let vlan = vlan.map_or(Some(0), parse_number).ok_or(CommandError::BadVlan)?;
    let basis = basis.map_or(Some(0), parse_number).ok_or(CommandError::BadBasis)?;
    Ok(bucket_of(source_hash(mac, vlan as u16, basis)))
}

/// Parses six hexadecimal numbers between colons, of which the low bytes count; anything may follow.
fn parse_mac(text: &str) -> Option<MacAddr> {
    let mut mac = MacAddr::ZERO;
    let mut rest = text;
    for (i, octet) in mac.0.iter_mut().enumerate() {
        rest = if i > 0 { rest.strip_prefix(':')? } else { rest };
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix("0x").filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit())).unwrap_or(rest);
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (number, behind) = rest.split_at_checked(digits).filter(|(number, _)| !number.is_empty())?;
        let digits = number.chars().filter_map(|c| c.to_digit(16));
        *octet = digits.fold(0u8, |n, digit| n << 4 | digit as u8);
        rest = behind;
    }
    Some(mac)
}

/// Parses a decimal number with a sign, modulo 2^32; numbers beyond 64 bits are the largest ones.
fn parse_number(text: &str) -> Option<u32> {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let n_digits = digits.bytes().take_while(u8::is_ascii_digit).count();
    if n_digits == 0 {
        return None;
    }
    let magnitude = digits[..n_digits].parse::<u64>().unwrap_or(u64::MAX);
    Some(if negative && magnitude < u64::MAX { magnitude.wrapping_neg() } else { magnitude } as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of Open vSwitch 4.0.0.
    #[test]
    fn hash_arguments() {
        const MAC: &str = "00:11:22:33:44:55";
        for (mac, vlan, basis, expected) in [
            (MAC, None, None, Ok(226)),
            (MAC, Some("7x"), None, Ok(195)),
            (MAC, Some("0"), Some("7x"), Ok(155)),
            (MAC, Some("0x7"), None, Ok(226)),
            (MAC, Some(" 7"), None, Ok(195)),
            (MAC, Some("+7"), None, Ok(195)),
            (MAC, Some("99999999999"), None, Ok(111)),
            (MAC, Some("0"), Some("99999999999"), Ok(229)),
            (MAC, Some("0"), Some("-1"), Ok(233)),
            (MAC, Some(""), None, Err(CommandError::BadVlan)),
            (MAC, Some("0"), Some("x"), Err(CommandError::BadBasis)),
            ("00:11:22:33:44", None, None, Err(CommandError::BadMac)),
            ("0:1:2:3:4:5", None, None, Ok(141)),
            ("00:11:22:33:44:55x", None, None, Ok(226)),
            (" 00:11:22:33:44:55", None, None, Ok(226)),
            ("00-11-22-33-44-55", None, None, Err(CommandError::BadMac)),
            ("0:1:2:3:4:555", None, None, Ok(109)),
        ] {
            assert_eq!(hash(mac, vlan, basis), expected, "{mac} {vlan:?} {basis:?}");
        }
    }
}
