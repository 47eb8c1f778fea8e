//! Texts of outer headers that Open vSwitch accepts and prints, and texts with mistakes.

use super::super::push::Push;
use super::arbitrary::pushes;
use proptest::prelude::*;

const ETH4: &str = "eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800)";
const ETH6: &str = "eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x86dd)";

/// Texts that `dpctl/add-flow` accepted and `dpctl/dump-flows` printed again, with E4, E6 and I4 for their beginnings.
const TEXTS: [&str; 12] = [
    "header(size=70,type=4,E6,ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=5,proto=17,tclass=0xff,hlimit=0),\
     udp(src=0,dst=4789,csum=0xffff),vxlan(flags=0x8000000,vni=0x0))",
    "header(size=50,type=4,E4,I4(17),udp(src=7,dst=4789,csum=0x0),vxlan(flags=0x88481234,vni=0xffffff))",
    "header(size=54,type=5,E4,I4(17),udp(src=0,dst=6081,csum=0x0),\
     geneve(oam,crit,vni=0x1,options({class=0xffff,type=0x80,len=0})))",
    "header(size=58,type=5,E4,I4(17),udp(src=0,dst=6081,csum=0x0),geneve(vni=0x1,options({class=0,type=0,len=4,0})))",
    "header(size=66,type=5,E4,I4(17),udp(src=0,dst=6081,csum=0x0),\
     geneve(vni=0x1,options({class=0x1,type=0x1,len=4,0x1}{class=0x1,type=0x1,len=4,0xab02})))",
    "header(size=38,type=3,E4,I4(47),gre((flags=0x0,proto=0x6558)))",
    "header(size=46,type=3,E4,I4(47),gre((flags=0xa000,proto=0x6558),csum=0x0,key=0x1c8))",
    "header(size=78,type=112,E6,ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=43,tclass=0xff,hlimit=0),\
     srv6(segments_left=0,segs(2001:cafe::92)))",
    "header(size=110,type=112,E6,ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=2,proto=43,tclass=0xff,hlimit=0),\
     srv6(segments_left=2,segs(2001:cafe::92,::,fe80::1)))",
    "header(size=50,type=107,E4,I4(47),erspan(ver=1,sid=0x3ff,idx=0xfffff))",
    "header(size=54,type=110,E4,I4(17),udp(src=0,dst=2152,csum=0x0),gtpu(flags=0x32,msgtype=1,teid=0xffffffff))",
    "header(size=42,type=111,E4,I4(17),udp(src=0,dst=8000,csum=0x0))",
];

fn expand(text: &str) -> String {
    let ipv4 = |proto: &str| format!("ipv4(src=1.1.2.88,dst=1.1.2.92,proto={proto},tos=0,ttl=64,frag=0x4000)");
    let text = text.replace("E4", ETH4).replace("E6", ETH6);
    text.replace("I4(17)", &ipv4("17")).replace("I4(47)", &ipv4("47"))
}

#[test]
fn texts_of_open_vswitch_are_parsed_and_written() {
    for text in TEXTS.map(expand) {
        let followed = format!("{text},out_port(100))");
        let (headers, rest) = Push::parse_header(&followed).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(rest, ",out_port(100))");
        let mut written = String::new();
        headers.format_header(&mut written);
        assert_eq!(written, text);
    }
}

#[test]
fn mistakes_are_named() {
    let cases = [
        ("", "expected 'header(size=' at ''"),
        ("header(size=x,type=4", "'x' is not a valid header(size"),
        ("header(size=1,type=4,eth(dst=1:2", "'1:2' is not a valid dst"),
        ("header(size=50,type=4,E4,I4(17),udp(src=0,dst=70000", "'70000' is not a valid dst"),
        ("header(size=50,type=4,E4,I4(17),udp(src=0,dst=1,csum=0x0),nvgre(", "expected 'geneve(' at 'nvgre('"),
        (
            "header(size=51,type=4,E4,I4(17),udp(src=0,dst=1,csum=0x0),vxlan(flags=0x0,vni=0x0))",
            "size and type are not those of the headers",
        ),
        (
            "header(size=50,type=5,E4,I4(17),udp(src=0,dst=1,csum=0x0),vxlan(flags=0x0,vni=0x0))",
            "size and type are not those of the headers",
        ),
        (
            "header(size=50,type=5,E4,I4(17),udp(src=0,dst=1,csum=0x0),geneve(vni=0x0,options({class=0,type=0,len=3,0}",
            "'0' is not a valid option",
        ),
        (
            "header(size=50,type=5,E4,I4(17),udp(src=0,dst=1,csum=0x0),geneve(vni=0x0,options({class=0,type=0,len=4,0xé}",
            "'0xé' is not a valid option",
        ),
        ("header(size=38,type=3,E4,I4(47),gre((flags=0x1,proto=0x6558)))", "'0x1' is not a valid flags"),
        ("header(size=38,type=3,E4,I4(47),erspan(ver=3", "'3' is not a valid ver"),
        (
            "header(size=78,type=112,E4,I4(47),srv6(segments_left=0,segs(::)))",
            "size and type are not those of the headers",
        ),
    ];
    for (text, expected) in cases {
        let found = Push::parse_header(&expand(text)).expect_err(text);
        assert_eq!(found.to_string(), expected, "{text}");
    }
}

tally::proptest! {
    #[test]
    fn headers_are_read_back_from_their_text((headers, _) in pushes()) {
        let headers = Push { vlan: None, ..headers };
        let mut text = String::new();
        headers.format_header(&mut text);
        let (again, rest) = Push::parse_header(&text).expect("a text of our own");
        prop_assert_eq!((&again, rest), (&headers, ""), "{}", text);
    }

    #[test]
    fn no_text_panics((headers, _) in pushes(), at in 0..400usize, inserted: char, deleted in 0..4usize) {
        let mut text = String::new();
        headers.format_header(&mut text);
        let at = at.min(text.len());
        text.replace_range(at..(at + deleted).min(text.len()), inserted.encode_utf8(&mut [0; 4]));
        if let Ok((headers, _)) = Push::parse_header(&text) {
            prop_assert!(super::super::Template::new(headers).is_ok(), "{}", text);
        }
    }
}
