//! Any text as a flow, as `ovs-ofctl add-flows` takes it: a flow can be sent in the formats that
//! it is said to fit, and is the same after it was received.
#![no_main]

use flow::NoNames;
use openflow::flow_mod::FlowModCommand;
use openflow::print::{Style, print};
use openflow::{Form, Message, Options, Protocols};
use openflow::{decode_with, encode_with, parse_flow, parse_flow_filter, parse_flow_line};

fuzz::target!(|bytes: &[u8]| {
    let Some(text) = fuzz::text(bytes) else { return };
    let _ = parse_flow_filter(text, &NoNames);
    let _ = parse_flow(text, FlowModCommand::ModifyStrict, &NoNames);
    let Ok(parsed) = parse_flow_line(text, &NoNames) else { return };
    for protocol in parsed.usable.iter() {
        let Some(version) = protocol.version() else { continue };
        let form = if Protocols::NXM_ANY.contains(protocol) { Form::Nicira } else { Form::Standard };
        let options = Options { flow_mod_table_id: Protocols::TID.contains(protocol), ..Options::default() };
        let message = Message::FlowMod(form, Box::new(parsed.flow_mod.clone()));
        let written = encode_with(version, 1, &message, options);
        print(&written, Style::plain(2));
        // Some flows can be sent, but not received, as with ovs-ofctl: a vlan_tci without the bit 0x1000, for one.
        if let Ok((_, _, again)) = decode_with(&written, options) {
            assert_eq!(encode_with(version, 1, &again, options), written, "{text} in {version:?}");
        }
    }
});
