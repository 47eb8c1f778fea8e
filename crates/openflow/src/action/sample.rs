//! `sample`: reports a random sample of packets to IPFIX collectors (ovs-actions(7); NXAST_SAMPLE, NXAST_SAMPLE2,
//! NXAST_SAMPLE3, NXAST_SAMPLE4).

use super::decode::{short_header_field, subfield};
use super::encode::{nicira, pack, put_header};
use super::learn::has_short_header;
use super::parse::{ActionError, error, parse_uint, u16_of, u32_of};
use super::{Action, Subfield};
use crate::error::OfpError;
use crate::nxm::Dialect;
use crate::wire::{Reader, Writer};
use base::PortNo;
use flow::PortNames;
use flow::text::{format_port, next_key_value, parse_port};
use std::fmt::Write;

const ARGUMENT: OfpError = OfpError::BacBadArgument;

/// The number of bits of an observation id.
const OBSERVATION_BITS: u16 = 32;

/// The forms of the action on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SampleForm {
    /// NXAST_SAMPLE: neither port nor direction.
    Plain,
    /// NXAST_SAMPLE2: a port.
    Port,
    /// NXAST_SAMPLE3: a port and a direction.
    Direction,
    /// NXAST_SAMPLE4: a port, a direction, and observation ids from fields.
    Fields,
}

/// An observation id to report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ObservationId {
    /// This number.
    Number(u32),
    /// The value of a field of the packet, of at most 32 bits.
    Field(Subfield),
}

impl From<u32> for ObservationId {
    fn from(id: u32) -> Self {
        Self::Number(id)
    }
}

impl ObservationId {
    /// Reads an id of NXAST_SAMPLE4: a field's header with offset and width, or zeros and a number.
    fn decode(r: &mut Reader<'_>) -> Result<Self, OfpError> {
        if r.clone().u32()? == 0 {
            r.skip(4)?;
            return Ok(Self::Number(r.u32()?));
        }
        let field = short_header_field(r)?;
        let packed = r.u16()?;
        r.skip(2)?;
        let part = subfield(field, packed >> 6, (packed & 0x3f) + 1)?;
        if part.n_bits > OBSERVATION_BITS { Err(ARGUMENT) } else { Ok(Self::Field(part)) }
    }

    fn encode(self, out: &mut Writer) {
        match self {
            Self::Number(id) => {
                out.zeros(4);
                out.put_u32(id);
            }
            Self::Field(part) => {
                put_header(out, part.field, Dialect::Nxm);
                out.put_u16(pack(part));
                out.zeros(2);
            }
        }
    }

    /// The number, for the forms without fields.
    fn number(self) -> Option<u32> {
        if let Self::Number(id) = self { Some(id) } else { None }
    }

    /// Parses a number or a subfield; `key` names the argument.
    fn parse(key: &str, value: &str) -> Result<Self, ActionError> {
        if let Some(id) = parse_uint(value, 32) {
            return Ok(Self::Number(id as u32));
        }
        match Subfield::parse(value)? {
            part if part.n_bits > OBSERVATION_BITS => {
                error(format!("size of {key} field ({}) exceeds maximum ({OBSERVATION_BITS})", part.n_bits))
            }
            part if !has_short_header(part.field) => {
                error(format!("{value}: experimenter OXM field '{}' not supported", part.field.name()))
            }
            part => Ok(Self::Field(part)),
        }
    }

    /// Sets the id to what the text says; a field stays, even if a number follows.
    fn set(&mut self, key: &str, value: &str) -> Result<(), ActionError> {
        let id = Self::parse(key, value)?;
        if !matches!((id, *self), (Self::Number(_), Self::Field(_))) {
            *self = id;
        }
        Ok(())
    }
}

impl std::fmt::Display for ObservationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(id) => write!(f, "{id}"),
            Self::Field(part) => write!(f, "{part}"),
        }
    }
}

/// The point at which a packet is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SampleDirection {
    /// The port decides.
    Default,
    /// As it enters the switch.
    Ingress,
    /// As it leaves the switch.
    Egress,
}

/// Parameters of `sample`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sample {
    /// The form that the sender used; the other parameters may need a larger one.
    pub form: SampleForm,
    /// Sampling rate: packets of 65,535, at least 1.
    pub probability: u16,
    /// The collector set.
    pub collector_set_id: u32,
    /// The observation domain id to report.
    pub obs_domain_id: ObservationId,
    /// The observation point id to report.
    pub obs_point_id: ObservationId,
    /// The port at which the packet is sampled; [`PortNo::NONE`] for none.
    pub sampling_port: PortNo,
    /// The sampling point.
    pub direction: SampleDirection,
}

/// Reads the body of one of the four actions.
pub(super) fn decode(mut r: Reader<'_>, form: SampleForm) -> Result<Action, OfpError> {
    // Errors in the padding come first.
    let n_ids = if form == SampleForm::Fields { 16 } else { 8 };
    if form >= SampleForm::Direction && r.peek().iter().skip(6 + n_ids + 3).any(|byte| *byte != 0) {
        return Err(OfpError::NxbrcMustBeZero);
    }
    let probability = r.u16()?;
    let collector_set_id = r.u32()?;
    let mut id = || if form == SampleForm::Fields { ObservationId::decode(&mut r) } else { Ok(r.u32()?.into()) };
    let (obs_domain_id, obs_point_id) = (id()?, id()?);
    let (mut sampling_port, mut direction) = (PortNo::NONE, SampleDirection::Default);
    if form >= SampleForm::Port {
        sampling_port = PortNo::from_of10(r.u16()?);
    }
    if form >= SampleForm::Direction {
        direction = match r.u8()? {
            0 => SampleDirection::Default,
            1 => SampleDirection::Ingress,
            2 => SampleDirection::Egress,
            _ => return Err(ARGUMENT),
        };
    }
    if probability == 0 {
        return Err(ARGUMENT);
    }
    let sample = Sample { form, probability, collector_set_id, obs_domain_id, obs_point_id, sampling_port, direction };
    Ok(Action::Sample(Box::new(sample)))
}

pub(super) fn encode(out: &mut Writer, sample: &Sample) {
    let ids = [sample.obs_domain_id, sample.obs_point_id];
    let needed = match (sample.direction, sample.sampling_port) {
        _ if ids.iter().any(|id| id.number().is_none()) => SampleForm::Fields,
        (SampleDirection::Default, PortNo::NONE) => SampleForm::Plain,
        (SampleDirection::Default, _) => SampleForm::Port,
        _ => SampleForm::Direction,
    };
    let form = sample.form.max(needed);
    nicira(out, [29, 38, 41, 51][form as usize], |b| {
        b.put_u16(sample.probability);
        b.put_u32(sample.collector_set_id);
        for id in ids {
            match id.number() {
                Some(id) if form < SampleForm::Fields => b.put_u32(id),
                _ => id.encode(b),
            }
        }
        if form >= SampleForm::Port {
            b.put_u16(sample.sampling_port.to_of10());
            b.put_u8(sample.direction as u8);
        }
    });
}

/// Parses `sample(probability=PACKETS,...)`.
pub(super) fn parse(text: &str, ports: &dyn PortNames) -> Result<Action, ActionError> {
    let mut sample = Sample {
        form: SampleForm::Plain,
        probability: 0,
        collector_set_id: 0,
        obs_domain_id: 0.into(),
        obs_point_id: 0.into(),
        sampling_port: PortNo::NONE,
        direction: SampleDirection::Default,
    };
    let mut rest = text;
    while let Some((key, value)) = next_key_value(&mut rest) {
        let value = value.unwrap_or("");
        match key {
            "probability" => match u16_of(value, "probability")? {
                0 => return error(format!("invalid probability value \"{value}\"")),
                probability => sample.probability = probability,
            },
            "collector_set_id" => sample.collector_set_id = u32_of(value)?,
            "obs_domain_id" => sample.obs_domain_id.set(key, value)?,
            "obs_point_id" => sample.obs_point_id.set(key, value)?,
            "sampling_port" => match parse_port(value, ports) {
                Some(port) => sample.sampling_port = port,
                None => return error(format!("{value}: unknown port")),
            },
            "ingress" => sample.direction = SampleDirection::Ingress,
            "egress" => sample.direction = SampleDirection::Egress,
            _ => return error(format!("invalid key \"{key}\" in \"sample\" argument")),
        }
    }
    if sample.probability == 0 {
        return error("non-zero \"probability\" must be specified on sample");
    }
    Ok(Action::Sample(Box::new(sample)))
}

pub(super) fn format(out: &mut String, sample: &Sample, ports: &dyn PortNames) {
    let _ = write!(
        out,
        "sample(probability={},collector_set_id={},obs_domain_id={},obs_point_id={}",
        sample.probability, sample.collector_set_id, sample.obs_domain_id, sample.obs_point_id
    );
    if sample.sampling_port != PortNo::NONE {
        out.push_str(",sampling_port=");
        format_port(sample.sampling_port, ports, out);
    }
    out.push_str(match sample.direction {
        SampleDirection::Default => ")",
        SampleDirection::Ingress => ",ingress)",
        SampleDirection::Egress => ",egress)",
    });
}

#[cfg(test)]
mod tests {
    use crate::action::bytes_of_hex as bytes;
    use crate::action::parse::parse_instructions;
    use crate::{OfpError, Version, actions_to_string, decode_actions, encode_actions};
    use flow::{Match, NoNames};

    #[test]
    fn observation_ids_come_from_fields() {
        for (hex, text) in [
            (
                "ffff0028 00002320 0033 0009 00000001 00010604 001f 0000 0001d604 001f 0000 ffff 00 0000000000",
                "sample(probability=9,collector_set_id=1,obs_domain_id=NXM_NX_REG3[],obs_point_id=NXM_NX_CT_MARK[])",
            ),
            (
                "ffff0028 00002320 0033 0009 00000001 00000000 00000007 80010008 081f 0000 0001 02 0000000000",
                "sample(probability=9,collector_set_id=1,obs_domain_id=7,obs_point_id=OXM_OF_PKT_REG0[32..63],\
                 sampling_port=1,egress)",
            ),
        ] {
            for version in Version::ALL {
                let actions = decode_actions(&bytes(hex), version).expect(text);
                assert_eq!(actions_to_string(&actions, &NoNames, version), text);
                let mut out = crate::wire::Writer::new();
                let parsed = parse_instructions(text, &NoNames).expect(text);
                encode_actions(&mut out, &parsed, version, &Match::ANY);
                assert_eq!(out, bytes(hex), "{text}");
            }
        }
        // The form that the sender used stays, even if a smaller one would do.
        let numbers = bytes("ffff0028 00002320 0033 0009 00000001 0000000000000003 0000000000000005 ffff000000000000");
        let actions = decode_actions(&numbers, Version::V13).expect("numbers");
        let mut out = crate::wire::Writer::new();
        encode_actions(&mut out, &actions, Version::V13, &Match::ANY);
        assert_eq!(out, numbers);
    }

    #[test]
    fn bad_observation_ids_are_refused() {
        for (id, error) in [
            ("00010608001f0000", OfpError::BacBadSetType),
            ("ffff2208001f0000", OfpError::BacBadSetType),
            ("80010008003f0000", OfpError::BacBadArgument),
            ("80010008 00200000", OfpError::BacBadArgument),
            ("00010604003f0000", OfpError::BacBadSetLen),
            ("00000002001f0000", OfpError::BacBadSetLen),
        ] {
            let hex = format!("ffff0028 00002320 0033 0009 00000001 {id} 0000000000000005 ffff000000000000");
            assert_eq!(decode_actions(&bytes(&hex), Version::V13), Err(error), "{id}");
        }
        for (ids, message) in [
            ("obs_domain_id=xreg0[]", "size of obs_domain_id field (64) exceeds maximum (32)"),
            ("obs_point_id=xreg0[0..35]", "size of obs_point_id field (36) exceeds maximum (32)"),
            ("obs_point_id=foo[]", "foo[]: unknown field `foo'"),
            ("obs_point_id=", ": unknown field `'"),
            ("obs_domain_id=-1", "-1: unknown field `'"),
            ("obs_domain_id=0x1ffffffff", "0x1ffffffff: unknown field `0x1ffffffff'"),
            ("obs_point_id=reg0[]x", "unexpected input following field syntax"),
            ("obs_point_id=reg20[3..5]", "reg20[3..5]: experimenter OXM field 'reg20' not supported"),
            ("collector_set_id=reg0[]", "invalid numeric format reg0[]"),
        ] {
            let text = format!("sample(probability=1,{ids})");
            assert_eq!(parse_instructions(&text, &NoNames).map_err(|e| e.0), Err(message.into()), "{ids}");
        }
    }
}
