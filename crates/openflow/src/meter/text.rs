//! Parses meters from text: `meter=1,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=100`.
//!
//! The messages are those of `ovs-ofctl`, which scripts match.

use super::{
    Band, BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterConfig, MeterMod, flag,
};
use crate::action::parse::parse_uint;
use crate::protocol::Protocols;

/// An error in the text of a meter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MeterTextError(pub String);

type Result<T> = std::result::Result<T, MeterTextError>;

fn error<T>(message: impl Into<String>) -> Result<T> {
    Err(MeterTextError(message.into()))
}

/// A meter mod parsed from text, and the formats that can carry it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedMeter {
    /// The meter mod.
    pub meter_mod: MeterMod,
    /// Formats that can carry it: those with meters.
    pub usable: Protocols,
}

/// Parses a meter for `command`. A deletion takes the number only.
pub fn parse_meter(text: &str, command: MeterCommand) -> Result<ParsedMeter> {
    if command == MeterCommand::Delete {
        let meter = MeterConfig { meter_id: parse_meter_id(text)?, flags: 0, bands: Vec::new() };
        return Ok(ParsedMeter { meter_mod: MeterMod { command, meter }, usable: Protocols::OF13_UP });
    }
    let (settings, bands) = match text.find("band") {
        // "band=", "bands=" and the like: everything after the equals sign is bands.
        Some(at) => {
            let (settings, rest) = text.split_at(at);
            let Some((_, bands)) = rest.split_once('=') else { return error("must specify bands") };
            (settings, Some(bands))
        }
        None => (text, None),
    };
    let Some(bands) = bands else { return error("must specify bands") };
    let (mut flags, mut meter_id) = (0, None);
    let mut words = Words(settings);
    while let Some(word) = words.next() {
        match word {
            "kbps" => flags |= flag::KBPS,
            "pktps" => flags |= flag::PKTPS,
            "burst" => flags |= flag::BURST,
            "stats" => flags |= flag::STATS,
            _ => match (word, words.next().filter(|value| !value.is_empty())) {
                ("meter", Some(value)) => meter_id = Some(meter_id_of(value)?),
                (_, Some(_)) => return error(format!("unknown keyword {word}")),
                (_, None) => return error(format!("field {word} missing value")),
            },
        }
    }
    let Some(meter_id) = meter_id else { return error("must specify 'meter'") };
    // As with `ovs-ofctl`, any flag suffices.
    if flags == 0 {
        return error("meter must specify either 'kbps' or 'pktps'");
    }
    let bands = parse_bands(bands, flags)?;
    let meter = MeterConfig { meter_id, flags, bands };
    Ok(ParsedMeter { meter_mod: MeterMod { command, meter }, usable: Protocols::OF13_UP })
}

/// Parses the meter of a request: `meter=1`, `meter=all`, or nothing for all.
pub fn parse_meter_id(text: &str) -> Result<u32> {
    let mut meter_id = None;
    let mut words = Words(text);
    while let Some(word) = words.next() {
        match (word, words.next()) {
            ("meter", Some(value)) => meter_id = Some(meter_id_of(value)?),
            (_, Some(_)) => return error(format!("unknown keyword {word}")),
            (_, None) => return error(format!("field {word} missing value")),
        }
    }
    meter_id.map_or_else(|| error("must specify 'meter'"), Ok)
}

fn meter_id_of(text: &str) -> Result<u32> {
    match text {
        "all" => Ok(METER_ALL),
        "controller" => Ok(METER_CONTROLLER),
        "slowpath" => Ok(METER_SLOWPATH),
        _ => match number(text)? {
            0 => error("invalid value for meter"),
            n if n > METER_MAX => error("invalid value for meter"),
            n => Ok(n),
        },
    }
}

fn number(text: &str) -> Result<u32> {
    match parse_uint(text, 64).map(u32::try_from) {
        Some(Ok(n)) => Ok(n),
        Some(Err(_)) => error(format!("{text}: a number of more than 32 bits")),
        None => error(format!("invalid numeric format {text}")),
    }
}

fn parse_bands(text: &str, flags: u16) -> Result<Vec<Band>> {
    let mut bands: Vec<Band> = Vec::new();
    let mut words = Words(text);
    while let Some(name) = words.next() {
        let Some(value) = words.next() else { return error(format!("field {name} missing value")) };
        match (name, bands.last_mut()) {
            ("type", last) => {
                if let Some(band) = last {
                    check_band(band, flags)?;
                }
                let kind = match value {
                    "drop" => BandKind::Drop,
                    "dscp_remark" => BandKind::DscpRemark { prec_level: 0 },
                    _ => return error(format!("field type unknown value {value}")),
                };
                bands.push(Band { kind, rate: 0, burst_size: 0 });
            }
            (_, None) => return error("band must start with the 'type' keyword"),
            ("rate", Some(band)) => band.rate = number(value)?,
            ("burst_size", Some(band)) => {
                if flags & flag::BURST == 0 {
                    return error("band may have 'burst_size' only when 'burst' flag is set");
                }
                band.burst_size = number(value)?;
            }
            ("prec_level", Some(band)) => match &mut band.kind {
                BandKind::DscpRemark { prec_level } => match parse_uint(value, 8) {
                    Some(level) => *prec_level = level as u8,
                    None => return error(format!("invalid prec_level \"{value}\"")),
                },
                BandKind::Drop => return error("Only 'dscp_remark' band may have 'prec_level'"),
            },
            (_, Some(_)) => return error(format!("unknown keyword {name}")),
        }
    }
    match bands.last() {
        None => return error("meter must have bands"),
        Some(band) => check_band(band, flags)?,
    }
    Ok(bands)
}

/// Checks that the parameters the band needs are not zero, which missing numbers are.
fn check_band(band: &Band, flags: u16) -> Result<()> {
    if band.kind == (BandKind::DscpRemark { prec_level: 0 }) {
        return error("'dscp_remark' band must have 'prec_level'");
    }
    if band.rate == 0 {
        return error("band must have 'rate'");
    }
    if flags & flag::BURST != 0 && band.burst_size == 0 {
        return error("band must have 'burst_size' when 'burst' flag is set");
    }
    Ok(())
}

/// Words separated by equals signs, commas or blanks.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        const BETWEEN: [char; 7] = ['=', ',', ' ', '\t', '\r', '\n', '"'];
        let rest = self.0.trim_start_matches(BETWEEN);
        let (word, rest) = rest.split_at(rest.find(BETWEEN).unwrap_or(rest.len()));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<MeterConfig, String> {
        parse_meter(text, MeterCommand::Add).map(|p| p.meter_mod.meter).map_err(|e| e.0)
    }

    #[test]
    fn a_meter_and_its_bands() {
        let text = "meter=1,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=200,type=dscp_remark,rate=0x10,prec_level=2,burst_size=3";
        let drop = Band { kind: BandKind::Drop, rate: 1000, burst_size: 200 };
        let remark = Band { kind: BandKind::DscpRemark { prec_level: 2 }, rate: 16, burst_size: 3 };
        assert_eq!(parsed(text), Ok(MeterConfig { meter_id: 1, flags: 0xd, bands: vec![drop, remark] }));
        let several_lines = "meter=controller pktps bands=\ntype=drop rate=5\ntype=drop rate=7";
        let bands = [5, 7].map(|rate| Band { kind: BandKind::Drop, rate, burst_size: 0 }).to_vec();
        assert_eq!(parsed(several_lines), Ok(MeterConfig { meter_id: METER_CONTROLLER, flags: 2, bands }));
    }

    #[test]
    fn malformed_input_is_refused() {
        for (text, message) in [
            ("meter=0,pktps,bands=type=drop,rate=5", "invalid value for meter"),
            ("meter=4294901761,kbps,bands=type=drop,rate=5", "invalid value for meter"),
            ("meter=5,bands=type=drop,rate=5", "meter must specify either 'kbps' or 'pktps'"),
            ("meter=5,kbps,bands=type=drop", "band must have 'rate'"),
            ("meter=5,kbps,bands=type=drop,type=drop,rate=1", "band must have 'rate'"),
            ("meter=5,kbps,bands=type=foo,rate=1", "field type unknown value foo"),
            ("meter=5,kbps,bands=rate=5", "band must start with the 'type' keyword"),
            ("meter=5,kbps,bands=", "meter must have bands"),
            ("meter=5,kbps", "must specify bands"),
            ("kbps,bands=type=drop,rate=5", "must specify 'meter'"),
            (
                "meter=5,kbps,bands=type=drop,rate=5,burst_size=6",
                "band may have 'burst_size' only when 'burst' flag is set",
            ),
            ("meter=5,kbps,bands=type=drop,rate=5,prec_level=1", "Only 'dscp_remark' band may have 'prec_level'"),
            ("meter=5,kbps,bands=type=dscp_remark,rate=5", "'dscp_remark' band must have 'prec_level'"),
            ("meter=5,kbps,burst,bands=type=drop,rate=5", "band must have 'burst_size' when 'burst' flag is set"),
            ("meter=5,foo,bands=type=drop,rate=5", "field foo missing value"),
            ("meter=6,kbps,bands=type=drop,rate=99999999999", "99999999999: a number of more than 32 bits"),
        ] {
            assert_eq!(parsed(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_request_names_a_meter() {
        assert_eq!(parse_meter_id("meter=7"), Ok(7));
        assert_eq!(parse_meter_id("meter=all"), Ok(METER_ALL));
        assert_eq!(parse_meter_id("meter=slowpath"), Ok(METER_SLOWPATH));
        assert_eq!(parse_meter_id("1").map_err(|e| e.0), Err("field 1 missing value".into()));
    }
}
