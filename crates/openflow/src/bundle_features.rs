//! The bundle features of a switch: OFPMP_BUNDLE_FEATURES (OpenFlow 1.5 section 7.3.5.21).

use crate::error::OfpError;
use crate::property::{self, Property};
use crate::wire::{Reader, Result, Writer};

/// A time or a duration (`ofp_time`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Time {
    pub seconds: u64,
    pub nanoseconds: u32,
}

/// The precision of scheduled bundles (`ofp_bundle_features_prop_time`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeFeatures {
    /// The accuracy of execution times.
    pub accuracy: Time,
    /// The largest offset into the future.
    pub max_future: Time,
    /// The largest offset into the past.
    pub max_past: Time,
    /// The sender's current time.
    pub timestamp: Time,
}

/// Bits of a request's flags (`ofp_bundle_feature_flags`).
pub mod flag {
    /// The request includes the sender's time.
    pub const TIMESTAMP: u32 = 1;
    /// The request sets the largest offsets of times.
    pub const TIME_SET_SCHED: u32 = 2;
}

/// A request for bundle features.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BundleFeaturesRequest {
    /// [`flag`]s.
    pub flags: u32,
    /// Times, if the request has any.
    pub time: Option<TimeFeatures>,
}

/// The reply with bundle features.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BundleFeatures {
    /// The flags of [`crate::bundle::flag`] that bundles may have.
    pub capabilities: u16,
    /// The precision of times, if the switch schedules bundles.
    pub time: Option<TimeFeatures>,
}

/// `OFPTMPBF_TIME_CAPABILITY`.
const TIME: u16 = 1;

impl Time {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let time = Self { seconds: r.u64()?, nanoseconds: r.u32()? };
        r.skip(4)?;
        Ok(time)
    }

    fn encode(self, out: &mut Writer) {
        out.put_u64(self.seconds);
        out.put_u32(self.nanoseconds);
        out.zeros(4);
    }
}

impl TimeFeatures {
    fn decode(mut r: Reader<'_>) -> Result<Self> {
        r.skip(4)?;
        let [accuracy, max_future, max_past, timestamp] = [(); 4].map(|()| Time::decode(&mut r));
        let time = Self { accuracy: accuracy?, max_future: max_future?, max_past: max_past?, timestamp: timestamp? };
        r.finish()?;
        Ok(time)
    }

    fn encode(self, out: &mut Writer) {
        property::put(out, TIME, |out| {
            out.zeros(4);
            [self.accuracy, self.max_future, self.max_past, self.timestamp].into_iter().for_each(|t| t.encode(out));
        });
    }
}

fn time_of(r: &mut Reader<'_>, unknown: impl Fn(&Property<'_>) -> Result<()>) -> Result<Option<TimeFeatures>> {
    let mut time = None;
    property::each(r, |p| {
        if p.ty == TIME {
            time = Some(TimeFeatures::decode(p.value).map_err(|_| OfpError::BpcBadLen)?);
            return Ok(());
        }
        unknown(&p)
    })?;
    Ok(time)
}

impl BundleFeaturesRequest {
    /// Errors: those of properties.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let flags = r.u32()?;
        r.skip(4)?;
        Ok(Self { flags, time: time_of(r, |p| p.unknown(crate::nxm::Unknown::Refuse))? })
    }

    pub(crate) fn encode(self, out: &mut Writer) {
        out.put_u32(self.flags);
        out.zeros(4);
        self.time.into_iter().for_each(|time| time.encode(out));
    }
}

impl BundleFeatures {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let capabilities = r.u16()?;
        r.skip(6)?;
        Ok(Self { capabilities, time: time_of(r, |_| Ok(()))? })
    }

    pub(crate) fn encode(self, out: &mut Writer) {
        out.put_u16(self.capabilities);
        out.zeros(6);
        self.time.into_iter().for_each(|time| time.encode(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, decode, encode};
    use crate::multipart::{StatsReply, StatsRequest};
    use crate::print::{Style, print};
    use crate::version::Version::V15;

    #[test]
    fn as_text_and_as_bytes() {
        let time = TimeFeatures { max_past: Time { seconds: 5, nanoseconds: 7 }, ..TimeFeatures::default() };
        let body = StatsRequest::BundleFeatures(BundleFeaturesRequest { flags: 1, time: Some(time) });
        let request = encode(V15, 1, &Message::StatsRequest { more: false, body });
        // A header, flags, and four times (OpenFlow 1.5 section 7.3.5.21).
        assert_eq!(request.len(), 16 + 8 + 72);
        let text = "flags=timestamp accuracy=0.000000000s max_future=0.000000000s max_past=5.000000007s timestamp=0.000000000s";
        let header = "OFPST_BUNDLE_FEATURES request (OF1.5) (xid=0x1): ";
        assert_eq!(print(&request, Style::plain(1)).trim_end(), format!("{header}{text}"));
        let body = StatsReply::BundleFeatures(BundleFeatures { capabilities: 3, time: None });
        let reply = encode(V15, 1, &Message::StatsReply { more: false, body });
        let header = "OFPST_BUNDLE_FEATURES reply (OF1.5) (xid=0x1): ";
        assert_eq!(print(&reply, Style::plain(1)).trim_end(), format!("{header}flags=atomic ordered"));
        let mut short = request.clone();
        (short[27], short[3]) = (64, 88);
        short.truncate(88);
        assert_eq!(decode(&short).map_err(|e| e.error), Err(OfpError::BpcBadLen));
    }
}
