//! Commands that flush tracked connections.

use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::{Target, open, transact_noreply};
use openflow::Message;
use openflow::ct_flush::{CtFlush, whole_number};
use openflow::message::Options;

/// Flushes the connections of a zone.
pub fn ct_flush_zone(c: &Context, a: &[String]) -> Result {
    let zone = whole_number(&a[1], u16::MAX.into()).ok_or_else(|| fatal(format!("invalid zone_id \"{}\"", a[1])))?;
    flush(c, &a[0], &Message::CtFlushZone(zone as u16))
}

/// Flushes all connections, or those that match the given tuples.
pub fn ct_flush(c: &Context, a: &[String]) -> Result {
    let wanted = parse(&a[1..]).map_err(fatal)?;
    flush(c, &a[0], &Message::CtFlush(Box::new(wanted)))
}

fn flush(c: &Context, switch: &str, message: &Message) -> Result {
    let mut conn = open(c, switch, Target::Mgmt)?;
    transact_noreply(c, &mut conn, message, Options::default())
}

fn parse(words: &[String]) -> std::result::Result<CtFlush, String> {
    CtFlush::parse(words).map_err(|e| format!("Failed to parse CT match: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::{Version, message};

    fn parsed(words: &[&str]) -> std::result::Result<CtFlush, String> {
        parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    /// The bytes after the header of the message, in hexadecimal.
    fn hex(words: &[&str]) -> String {
        let message = Message::CtFlush(Box::new(parsed(words).expect("words that are right")));
        let bytes = message::encode(Version::V10, 1, &message);
        bytes[16..].iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn messages_equal_open_vswitchs() {
        // As Open vSwitch's ovs-ofctl sends it.
        for (words, bytes) in [
            (&[][..], "0000000000000000"),
            (&["", ""], "0000000000000000"),
            (&["zone=0x5"], "00000000000000000002000800000000"),
            (&["zone=-1"], "000000000000000000020008ffff0000"),
            (&["zone= 7x"], "00000000000000000002000800070000"),
            (&["zone=70000000000"], "0000000000000000000200083c000000"),
            (&["ct_nw_proto=6,,ct_tp_src=1"], "060000000000000000000010000000000002000800010000"),
            (&["ct_tp_src=0x10 ct_nw_proto=0x11"], "110000000000000000000010000000000002000800100000"),
            (&["ct_nw_proto=6", "ct_tp_src=3"], "060000000000000000010010000000000002000800030000"),
            (
                &["zone=5", "", "ct_nw_src=10.1.1.5"],
                "000000000000000000010020000000000000001400000000000000000000ffff0a010105000000000002000800050000",
            ),
            (
                &["zone=5", "mark=25/0xff", "labels=7"],
                "0000000000000000000200080005000000030008000000190004000800 0000ff\
                 000500140000000000000000000000000000000700000000",
            ),
            (&["mark=010"], "00000000000000000003000800000008"),
            (&["mark=0"], "00000000000000000003000800000000"),
            (&["mark=5/0"], "0000000000000000"),
            (&["mark=1,labels=2"], "00000000000000000003000800000001"),
            (&["mark=1/x"], "00000000000000000003000800000001"),
            (
                &["labels=5/2x"],
                "0000000000000000 00050014 00000000000000000000000000000005 00000000\
                 00060014 00000000000000000000000000000002 00000000",
            ),
            (
                &["mark=3", "ct_nw_src=10.1.1.5,ct_nw_proto=6,ct_tp_dst=9"],
                "06000000000000000000002800000000 0000001400000000000000000000ffff0a01010500000000 0003000800090000\
                 0003000800000003",
            ),
            (
                &["ct_ipv6_dst=::1", ""],
                "00000000000000000000002000000000000100140000000000000000000000000000000100000000",
            ),
            (
                &["ct_nw_proto=1,icmp_id=10,icmp_type=8,icmp_code=3"],
                "0100000000000000000000200000000000040008000a0000000500050800000000060005030000000001002000000000000400080000\
                 000000050005000000000006000500000000",
            ),
        ] {
            assert_eq!(hex(words), bytes.replace(' ', ""), "{words:?}");
        }
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for (words, problem) in [
            (&["zone=x"][..], "failed to parse zone"),
            (&["zone="], "failed to parse zone"),
            (&["mark=0x1ffffffff"], "failed to parse mark"),
            (&["mark=-1"], "failed to parse mark"),
            (&["mark="], "failed to parse mark"),
            (&["labels=x"], "failed to parse labels"),
            (&["labels=0x1112233445566778899aabbccddeeff00ff"], "failed to parse labels"),
            // The words have an order.
            (&["labels=1", "mark=2"], "invalid conntrack tuple field: mark"),
            (&["mark=1", "zone=5"], "invalid conntrack tuple field: zone"),
            (&["ct_ipv6_dst=::1", "", "nothing"], "invalid arguments"),
            (&["zone=5", "zone=6"], "invalid conntrack tuple field: zone"),
            (&["ct_nw_src=1.1.1.1", "ct_ipv6_src=fe80::1"], "the L3 protocol does not match fe80::1"),
            (&["ct_nw_src=1.1.1.1,ct_ipv6_src=::1"], "the L3 protocol does not match ::1"),
            (&["ct_nw_src=1.1.1.1,ct_nw_src=1.1.1.2"], "ct_nw_src is set multiple times"),
            (&["ct_nw_src=1.2.3.4/24"], "failed to parse field ct_nw_src"),
            (&["icmp_id=10,ct_nw_proto=1"], "invalid L4 fields"),
            (&["ct_nw_proto=1,icmp_type=256"], "failed to parse field icmp_type"),
            (&["ct_nw_proto=tcp"], "failed to parse field ct_nw_proto"),
            (&["ct_tp_dst=-1"], "failed to parse field ct_tp_dst"),
            (&["ct_tp_dst="], "field ct_tp_dst missing value"),
            (&["foo"], "field foo missing value"),
            (&["=6"], "invalid conntrack tuple field: "),
            (&["ct_tp_src=5"], "port is set without protocol"),
        ] {
            assert_eq!(parsed(words), Err(format!("Failed to parse CT match: {problem}")), "{words:?}");
        }
    }
}
