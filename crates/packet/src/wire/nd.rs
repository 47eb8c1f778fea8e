//! Neighbour solicitations and advertisements (RFC 4861 section 4) and their link-layer address options.

use super::Truncated;
use base::MacAddr;

view! {
    /// A solicitation or an advertisement without options, from its ICMPv6 type on.
    Nd, 24;
    /// 135 or 136.
    kind / set_kind: u8 = 0;
    /// 0.
    code / set_code: u8 = 1;
    /// Checksum.
    checksum / set_checksum: u16 = 2;
    /// Reserved, and the flags of an advertisement.
    reserved / set_reserved: u32 = 4;
    /// Target.
    target / set_target: u128 = 8;
}

/// An option of 8 bytes with an Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NdOption {
    /// Where the address stands, in bytes from the start of the options.
    pub at: usize,
    /// 1: of the source; 2: of the target.
    pub kind: u8,
    /// The address.
    pub mac: MacAddr,
}

/// The link-layer address options in `options`, up to the first malformed one.
pub fn nd_options(options: &[u8]) -> impl Iterator<Item = NdOption> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some([kind, units, a, b, c, d, e, f]) = options.get(at..).and_then(|o| o.first_chunk()) {
            let len = usize::from(*units) * 8;
            let here = at;
            if len == 0 || len > options.len() - at {
                return None;
            }
            at += len;
            if matches!(kind, 1 | 2) && len == 8 {
                return Some(NdOption { at: here + 2, kind: *kind, mac: MacAddr([*a, *b, *c, *d, *e, *f]) });
            }
        }
        None
    })
}

/// A solicitation or an advertisement with at most one link-layer address option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NdRepr {
    /// 135 or 136.
    pub kind: u8,
    /// Reserved bits and flags.
    pub reserved: u32,
    /// Target.
    pub target: u128,
    /// Kind and address of the option.
    pub option: Option<(u8, MacAddr)>,
}

impl NdRepr {
    /// Reads the message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Nd::new_checked(bytes)?;
        let option = nd_options(&bytes[24..]).next().map(|o| (o.kind, o.mac));
        Ok(Self { kind: h.kind(), reserved: h.reserved(), target: h.target(), option })
    }

    /// Appends the message, with a checksum of zero.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut h = Nd([0; 24]);
        h.set_kind(self.kind);
        h.set_reserved(self.reserved);
        h.set_target(self.target);
        out.extend(h.0);
        if let Some((kind, mac)) = self.option {
            out.extend([kind, 1]);
            out.extend(mac.0);
        }
    }
}
