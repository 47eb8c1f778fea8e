//! Connections and expectations as `dpctl/dump-conntrack` and `dpctl/dump-conntrack-exp` list them (ovs-dpctl(8)).

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use crate::key::{Key, ipproto};
use crate::proto::tcp::PeerInfo;

/// What a list of connections contains besides the basics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// Details of the implementation (`--more`).
    pub more: bool,
    /// Timeouts (`--statistics`).
    pub statistics: bool,
}

/// A connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The key of the original direction.
    pub original: Key,
    /// The key of the reply direction.
    pub reply: Key,
    /// After how many seconds without packets it ends.
    pub timeout_s: u64,
    /// Mark.
    pub mark: u32,
    /// Label.
    pub label: u128,
    /// States of TCP.
    pub tcp: Option<TcpStates>,
    /// The name of its helper.
    pub helper: Option<&'static str>,
    /// For a connection that a helper expected: the key of the helper's connection.
    pub parent: Option<Key>,
}

/// The states of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpStates {
    /// The name of the connection's state.
    pub connection: &'static str,
    /// The sender of the original direction.
    pub original: PeerInfo,
    /// The sender of the reply direction.
    pub reply: PeerInfo,
}

impl TcpStates {
    /// Details of both senders.
    fn write_details(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [original, reply] = [&self.original, &self.reply];
        write!(f, ",protoinfo=(state_orig={},state_reply={}", original.state, reply.state)?;
        let [a, b] = [original, reply].map(|peer| peer.window_scale.unwrap_or(0));
        if a != 0 || b != 0 {
            write!(f, ",wscale_orig={a},wscale_reply={b}")?;
        }
        write!(f, ",flags_orig={},flags_reply={})", flags(original), flags(reply))
    }
}

/// The names of a sender's flags.
fn flags(peer: &PeerInfo) -> &'static str {
    match (peer.window_scale, peer.is_liberal) {
        (Some(_), true) => "WINDOW_SCALE|BE_LIBERAL",
        (Some(_), false) => "WINDOW_SCALE",
        (None, true) => "BE_LIBERAL",
        (None, false) => "0",
    }
}

/// An expected connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectationView {
    /// Its key, where a source port of 0 stands for any.
    pub key: Key,
    /// The mark that it gets.
    pub mark: u32,
    /// The label that it gets.
    pub label: u128,
    /// The key of the original direction of the helper's connection.
    pub parent: Key,
}

impl View {
    /// The connection in one line. The tracker has no identifiers, status bits and TCP flags for `--more` but 0.
    pub fn line(&self, detail: Detail) -> impl Display {
        fmt::from_fn(move |f| {
            let protocol = protocol_name(self.original.proto);
            write!(f, "{protocol},orig=({}),reply=({})", tuple(&self.original), tuple(&self.reply))?;
            if detail.more {
                f.write_str(",id=0")?;
            }
            zone(f, self.original.zone)?;
            if detail.more {
                f.write_str(",status=0")?;
            }
            if detail.statistics {
                write!(f, ",timeout={}", self.timeout_s)?;
            }
            mark_and_label(f, self.mark, self.label)?;
            match &self.tcp {
                Some(tcp) if detail.more => tcp.write_details(f)?,
                Some(tcp) => write!(f, ",protoinfo=(state={})", tcp.connection)?,
                None => {}
            }
            if let Some(helper) = self.helper {
                write!(f, ",helper={helper}")?;
            }
            match &self.parent {
                Some(parent) if detail.more => write!(f, ",parent=({})", tuple(parent)),
                _ => Ok(()),
            }
        })
    }
}

impl Display for ExpectationView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{},orig=({})", protocol_name(self.key.proto), tuple(&self.key))?;
        zone(f, self.key.zone)?;
        mark_and_label(f, self.mark, self.label)?;
        write!(f, ",parent=({})", tuple(&self.parent))
    }
}

/// The name of an IP protocol, or its number.
pub fn protocol_name(proto: u8) -> Cow<'static, str> {
    let name = match proto {
        ipproto::ICMP => "icmp",
        2 => "igmp",
        ipproto::TCP => "tcp",
        ipproto::UDP => "udp",
        33 => "dccp",
        ipproto::ICMPV6 => "icmpv6",
        ipproto::SCTP => "sctp",
        136 => "udplite",
        other => return other.to_string().into(),
    };
    name.into()
}

/// Addresses and ports, or the ICMP identifier, type and code.
pub fn tuple(key: &Key) -> impl Display {
    fmt::from_fn(move |f| {
        write!(f, "src={},dst={},", key.src_ip(), key.dst_ip())?;
        if key.is_icmp() {
            write!(f, "id={},type={},code={}", key.src_port, key.dst_port >> 8, key.dst_port & 0xff)
        } else {
            write!(f, "sport={},dport={}", key.src_port, key.dst_port)
        }
    })
}

fn zone(f: &mut Formatter<'_>, zone: u16) -> fmt::Result {
    if zone == 0 { Ok(()) } else { write!(f, ",zone={zone}") }
}

fn mark_and_label(f: &mut Formatter<'_>, mark: u32, label: u128) -> fmt::Result {
    if mark != 0 {
        write!(f, ",mark={mark}")?;
    }
    if label == 0 { Ok(()) } else { write!(f, ",labels={label:#x}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::number_of;

    fn key(proto: u8, src: &str, dst: &str, ports: (u16, u16), zone: u16) -> Key {
        let number = |text: &str| number_of(text.parse().expect("an address"));
        Key {
            src: number(src),
            dst: number(dst),
            src_port: ports.0,
            dst_port: ports.1,
            zone,
            proto,
            is_v6: src.contains(':'),
        }
    }

    fn view(original: Key) -> View {
        let reply = original.reversed();
        View { original, reply, timeout_s: 59, mark: 0, label: 0, tcp: None, helper: None, parent: None }
    }

    const PLAIN: Detail = Detail { more: false, statistics: false };
    const MORE: Detail = Detail { more: true, statistics: false };
    const STATISTICS: Detail = Detail { more: false, statistics: true };
    const ALL: Detail = Detail { more: true, statistics: true };

    #[test]
    fn a_tcp_connection_has_all_parts() {
        let mut ftp = view(key(6, "10.1.1.1", "10.1.1.2", (3000, 21), 5));
        ftp.reply.dst = number_of("10.9.9.1".parse().expect("an address"));
        let peer = |state, window_scale, is_liberal| PeerInfo { state, window_scale, is_liberal };
        let (original, reply) = (peer("ESTABLISHED", Some(7), false), peer("SYN_SENT", None, true));
        ftp.tcp = Some(TcpStates { connection: "ESTABLISHED", original, reply });
        (ftp.mark, ftp.label, ftp.helper, ftp.timeout_s) = (7, 0x1234, Some("ftp"), 86399);
        let tuples = "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=3000,dport=21),reply=(src=10.1.1.2,dst=10.9.9.1,sport=21,dport=3000)";
        let more = "protoinfo=(state_orig=ESTABLISHED,state_reply=SYN_SENT,wscale_orig=7,wscale_reply=0,flags_orig=WINDOW_SCALE,flags_reply=BE_LIBERAL),helper=ftp";
        let plain = "mark=7,labels=0x1234,protoinfo=(state=ESTABLISHED),helper=ftp";
        assert_eq!(ftp.line(PLAIN).to_string(), format!("{tuples},zone=5,{plain}"));
        assert_eq!(ftp.line(MORE).to_string(), format!("{tuples},id=0,zone=5,status=0,mark=7,labels=0x1234,{more}"));
        assert_eq!(ftp.line(STATISTICS).to_string(), format!("{tuples},zone=5,timeout=86399,{plain}"));
        assert_eq!(
            ftp.line(ALL).to_string(),
            format!("{tuples},id=0,zone=5,status=0,timeout=86399,mark=7,labels=0x1234,{more}")
        );
    }

    #[test]
    fn each_protocol_has_its_tuple() {
        let cases = [
            (
                1,
                "10.1.1.1",
                "10.1.1.2",
                (9, 13 << 8),
                "icmp,orig=(src=10.1.1.1,dst=10.1.1.2,id=9,type=13,code=0),reply=(src=10.1.1.2,dst=10.1.1.1,id=9,type=14,code=0)",
            ),
            (
                58,
                "fc00::1",
                "fc00::2",
                (0, 128 << 8),
                "icmpv6,orig=(src=fc00::1,dst=fc00::2,id=0,type=128,code=0),reply=(src=fc00::2,dst=fc00::1,id=0,type=129,code=0)",
            ),
            (
                17,
                "fc00::1",
                "fc00::2",
                (1, 2),
                "udp,orig=(src=fc00::1,dst=fc00::2,sport=1,dport=2),reply=(src=fc00::2,dst=fc00::1,sport=2,dport=1)",
            ),
            (
                132,
                "10.1.1.1",
                "10.1.1.2",
                (3000, 21),
                "sctp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=3000,dport=21),reply=(src=10.1.1.2,dst=10.1.1.1,sport=21,dport=3000)",
            ),
            (
                47,
                "10.1.1.1",
                "10.1.1.2",
                (0, 0),
                "47,orig=(src=10.1.1.1,dst=10.1.1.2,sport=0,dport=0),reply=(src=10.1.1.2,dst=10.1.1.1,sport=0,dport=0)",
            ),
        ];
        for (proto, src, dst, ports, line) in cases {
            assert_eq!(view(key(proto, src, dst, ports, 0)).line(PLAIN).to_string(), line);
        }
        assert_eq!([2, 33, 136, 0, 255].map(protocol_name), ["igmp", "dccp", "udplite", "0", "255"]);
    }

    #[test]
    fn an_expected_connection_names_its_parent() {
        let parent = key(17, "10.1.1.1", "10.1.1.2", (3000, 69), 5);
        let mut child = view(key(17, "10.1.1.2", "10.1.1.1", (4000, 3000), 5));
        (child.mark, child.parent) = (7, Some(parent));
        let tuples = "udp,orig=(src=10.1.1.2,dst=10.1.1.1,sport=4000,dport=3000),reply=(src=10.1.1.1,dst=10.1.1.2,sport=3000,dport=4000)";
        assert_eq!(child.line(PLAIN).to_string(), format!("{tuples},zone=5,mark=7"));
        let named = "parent=(src=10.1.1.1,dst=10.1.1.2,sport=3000,dport=69)";
        assert_eq!(child.line(MORE).to_string(), format!("{tuples},id=0,zone=5,status=0,mark=7,{named}"));

        let expected = key(17, "10.1.1.2", "10.1.1.1", (0, 3000), 5);
        let expectation = ExpectationView { key: expected, mark: 7, label: 0x1234, parent };
        let line =
            format!("udp,orig=(src=10.1.1.2,dst=10.1.1.1,sport=0,dport=3000),zone=5,mark=7,labels=0x1234,{named}");
        assert_eq!(expectation.to_string(), line);
    }
}
