//! `sample`: reports a random sample of packets to IPFIX collectors (ovs-actions(7); NXAST_SAMPLE, NXAST_SAMPLE2,
//! NXAST_SAMPLE3).

use super::Action;
use super::encode::nicira;
use super::parse::{ActionError, error, u16_of, u32_of_low};
use crate::error::OfpError;
use crate::wire::{Reader, Writer};
use base::PortNo;
use flow::PortNames;
use flow::text::{format_port, next_key_value, parse_port};
use std::fmt::Write;

const ARGUMENT: OfpError = OfpError::BacBadArgument;

/// The forms of the action on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SampleForm {
    /// NXAST_SAMPLE: neither port nor direction.
    Plain,
    /// NXAST_SAMPLE2: a port.
    Port,
    /// NXAST_SAMPLE3: a port and a direction.
    Direction,
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
    pub obs_domain_id: u32,
    /// The observation point id to report.
    pub obs_point_id: u32,
    /// The port at which the packet is sampled; [`PortNo::NONE`] for none.
    pub sampling_port: PortNo,
    /// The sampling point.
    pub direction: SampleDirection,
}

/// Reads the body of one of the three actions.
pub(super) fn decode(mut r: Reader<'_>, form: SampleForm) -> Result<Action, OfpError> {
    let probability = r.u16()?;
    let ids = [r.u32()?, r.u32()?, r.u32()?];
    let (mut sampling_port, mut direction) = (PortNo::NONE, SampleDirection::Default);
    if form >= SampleForm::Port {
        sampling_port = PortNo::from_of10(r.u16()?);
    }
    if form == SampleForm::Direction {
        direction = match r.u8()? {
            0 => SampleDirection::Default,
            1 => SampleDirection::Ingress,
            2 => SampleDirection::Egress,
            _ => return Err(ARGUMENT),
        };
        if !r.is_zero() {
            return Err(OfpError::NxbrcMustBeZero);
        }
    }
    if probability == 0 {
        return Err(ARGUMENT);
    }
    let [collector_set_id, obs_domain_id, obs_point_id] = ids;
    let sample = Sample { form, probability, collector_set_id, obs_domain_id, obs_point_id, sampling_port, direction };
    Ok(Action::Sample(Box::new(sample)))
}

pub(super) fn encode(out: &mut Writer, sample: &Sample) {
    let needed = match (sample.direction, sample.sampling_port) {
        (SampleDirection::Default, PortNo::NONE) => SampleForm::Plain,
        (SampleDirection::Default, _) => SampleForm::Port,
        _ => SampleForm::Direction,
    };
    let form = sample.form.max(needed);
    nicira(out, [29, 38, 41][form as usize], |b| {
        b.put_u16(sample.probability);
        b.put_u32(sample.collector_set_id);
        b.put_u32(sample.obs_domain_id);
        b.put_u32(sample.obs_point_id);
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
        obs_domain_id: 0,
        obs_point_id: 0,
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
            "collector_set_id" => sample.collector_set_id = u32_of_low(value)?,
            "obs_domain_id" => sample.obs_domain_id = u32_of_low(value)?,
            "obs_point_id" => sample.obs_point_id = u32_of_low(value)?,
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
