//! The flows that every switch receives, from files in the format of `ovs-ofctl add-flows`, and the flow format that a
//! connection uses for them.

use flow::text::NoNames;
use openflow::message::{Form, Options};
use openflow::{Message, ParsedFlow, Protocols, Version, parse_flow_line};
use std::io::Read;

/// Parses a file of flows, `-` for standard input. The error names the line.
pub(crate) fn read(file: &str) -> Result<Vec<ParsedFlow>, String> {
    let text = if file == "-" {
        let mut text = Vec::new();
        std::io::stdin().lock().read_to_end(&mut text).map(|_| text)
    } else {
        std::fs::read(file)
    };
    let text = text.map_err(|e| {
        let reason = e.to_string();
        format!("{file}: open failed ({})", reason.split(" (os error").next().unwrap_or_default())
    })?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.split('#').next().unwrap_or_default().trim()));
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(n, line)| parse_flow_line(line, &NoNames).map_err(|e| format!("{file}:{n}: {e}")))
        .collect()
}

/// A flow format of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Format(Protocols);

impl Format {
    /// The initial format of a connection of `version`.
    pub(crate) fn initial(version: Version) -> Self {
        Self(Protocols::of_version(version).first().unwrap_or(Protocols::NONE))
    }

    /// A format for a connection of `version` that can express all `flows`.
    pub(crate) fn for_flows(flows: &[ParsedFlow], version: Version) -> Option<Self> {
        let usable = flows.iter().fold(Protocols::of_version(version), |usable, flow| usable & flow.usable);
        usable.first().map(Self)
    }

    fn is_nxm(self) -> bool {
        !(self.0 & Protocols::NXM_ANY).is_empty()
    }

    fn names_tables(self) -> bool {
        self.0 == Protocols::OF10_STD_TID || self.0 == Protocols::OF10_NXM_TID
    }

    /// The encoding of flow modifications.
    pub(crate) fn form(self) -> Form {
        if self.is_nxm() { Form::Nicira } else { Form::Standard }
    }

    /// The encoding options of flow modifications.
    pub(crate) fn options(self) -> Options {
        Options { flow_mod_table_id: self.names_tables(), ..Options::default() }
    }

    /// The messages that switch a connection from the format `current` to this one.
    pub(crate) fn requests(self, current: Self) -> Vec<Message> {
        let mut requests = Vec::new();
        if self.is_nxm() != current.is_nxm() {
            requests.push(Message::SetFlowFormat(if self.is_nxm() { 2 } else { 0 }));
        }
        if self.names_tables() != current.names_tables() {
            requests.push(Message::FlowModTableId(self.names_tables()));
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simplest_sufficient_format_is_chosen() {
        let flows = |text: &str| vec![parse_flow_line(text, &NoNames).unwrap()];
        let v10 = |text| Format::for_flows(&flows(text), Version::V10).unwrap();
        let start = Format::initial(Version::V10);
        assert_eq!(v10("ip,actions=2"), start);
        assert!(start.requests(start).is_empty());
        assert_eq!(v10("reg0=1,actions=2").requests(start), [Message::SetFlowFormat(2)]);
        assert_eq!(v10("table=1,actions=2").requests(start), [Message::FlowModTableId(true)]);
        assert_eq!(Format::for_flows(&flows("reg0=1,actions=2"), Version::V11), None);
        assert!(Format::for_flows(&flows("reg0=1,actions=2"), Version::V13).is_some());
    }
}
