//! Colours of flows (`--color`), added to the formatted text by its words.
//!
//! The colours and their names in `OVS_COLORS` are those of ovs-ofctl(8): `ac` the word `actions=`, `dr` drop, `le`
//! learn, `pm` names followed by a value, `pr` names followed by parentheses, `sp` some special names, `vl` names
//! without a value.

use std::io::IsTerminal;

/// Names of actions and fields in the special colour.
const SPECIAL: [&str; 8] = ["output", "load", "move", "group", "set_field", "resubmit", "exit", "dec_nsh_ttl"];
const SPECIAL_FIELDS: [&str; 2] = ["table", "priority"];
/// Fields and beginnings of their names that are not coloured.
const PLAIN_FIELDS: [&str; 5] = ["packet_type", "tun_gbp_flags", "tun_erspan_", "gtpu_", "tun_metadata"];
/// Properties of a flow beside its match.
const AROUND: [&str; 5] = ["table", "cookie", "idle_timeout", "hard_timeout", "importance"];
/// Names without a value that are neither actions nor flags of a message.
const PROTOCOLS: [&str; 17] = [
    "ip", "ipv6", "icmp", "icmp6", "tcp", "tcp6", "udp", "udp6", "sctp", "sctp6", "arp", "rarp", "mpls", "mplsm",
    "ipv4", "ip6", "nsh",
];
/// Actions without a value that have the colour of names that parentheses follow.
const WITHOUT_VALUE: [&str; 2] = ["dec_ttl", "decap"];
/// Actions without a value that have a colour of their own.
const VALUES: [&str; 6] = ["ct_clear", "pop_queue", "dec_mpls_ttl", "strip_vlan", "pop_vlan", "clear_actions"];
/// Properties of `learn` whose colour includes the comma before them.
const WITH_COMMA: [&str; 2] = [",fin_hard_timeout=", ",priority="];
/// Words without a value within parentheses.
const FLAGS: [&str; 8] =
    ["commit", "force", "pause", "random", "persistent", "hash", "send_flow_rem", "delete_learned"];
/// The directions of `sample`, which have the colour of names that a value follows.
const DIRECTIONS: [&str; 2] = ["ingress", "egress"];

/// Colours as SGR parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Colours {
    actions: String,
    drop: String,
    learn: String,
    param: String,
    paren: String,
    special: String,
    value: String,
}

impl Colours {
    /// The colours for `--color=WHEN`; an error if WHEN is unknown. `list` is `OVS_COLORS`.
    pub fn choose(when: &str, list: &str) -> Result<Option<Self>, String> {
        let wanted = match when {
            "always" | "yes" | "force" => true,
            "never" | "no" | "none" => false,
            "auto" | "tty" | "if-tty" => std::io::stdout().is_terminal(),
            other => return Err(format!("incorrect value `{other}' for --color")),
        };
        Ok(wanted.then(|| Self::parse(list)))
    }

    fn parse(list: &str) -> Self {
        let of = |name: &str, default: &str| {
            let found = list.split(':').filter_map(|item| item.split_once('=')).rfind(|(n, _)| *n == name);
            let sgr = found.map(|(_, sgr)| sgr).filter(|sgr| sgr.bytes().all(|b| b.is_ascii_digit() || b == b';'));
            sgr.unwrap_or(default).to_owned()
        };
        Self {
            actions: of("ac", "1;31"),
            drop: of("dr", "34"),
            learn: of("le", "31"),
            param: of("pm", "36"),
            paren: of("pr", "35"),
            special: of("sp", "33"),
            value: of("vl", "32"),
        }
    }

    /// Adds colours to the flows in lines of text.
    pub fn paint(&self, text: &str) -> String {
        text.split_inclusive('\n').map(|line| self.paint_line(line)).collect()
    }

    fn paint_line(&self, line: &str) -> String {
        let Some((head, actions)) = line.split_once("actions=") else { return line.to_owned() };
        let mut out = String::new();
        // The header of a message and the sign of a change precede the flow.
        let start = head.rfind("): ").map_or(0, |at| at + 3);
        let is_message = start > 0;
        let (header, matching) = head.split_at(start);
        out.push_str(header);
        let is_dump = !is_message && head.starts_with(' ');
        self.matching(matching, is_dump, &mut out);
        // Only dumps colour the word.
        put(&mut out, if is_dump { &self.actions } else { "" }, "actions=");
        let (actions, end) = actions.split_at(actions.trim_end().len());
        Painter { colours: self, rest: actions, out: &mut out }.actions();
        out.push_str(end);
        out
    }

    /// Colours fields and statistics separated by commas or blanks.
    fn matching(&self, text: &str, is_dump: bool, out: &mut String) {
        let mut rest = text;
        while !rest.is_empty() {
            let separators = rest.len() - rest.trim_start_matches([',', ' ', '+', '-']).len();
            let (before, token) = rest.split_at(separators);
            out.push_str(before);
            let (token, after) = token.split_at(token.find([',', ' ']).unwrap_or(token.len()));
            rest = after;
            match token.split_once('=') {
                Some(("conj_id", value)) => {
                    put(out, &self.param, "conj_id");
                    out.push('=');
                    out.push_str(value);
                }
                // Except in dumps, these are not coloured beside the match.
                Some((name, _)) if !is_dump && AROUND.contains(&name) => out.push_str(token),
                Some((name, _)) if PLAIN_FIELDS.iter().any(|plain| name.starts_with(plain)) => out.push_str(token),
                Some((name, value)) => {
                    let special = SPECIAL_FIELDS.contains(&name);
                    put(out, if special { &self.special } else { &self.param }, &format!("{name}="));
                    out.push_str(value);
                }
                None if PROTOCOLS.contains(&token) => put(out, &self.value, token),
                None => out.push_str(token),
            }
        }
    }
}

/// Text in a colour.
fn put(out: &mut String, sgr: &str, text: &str) {
    if sgr.is_empty() {
        out.push_str(text);
    } else {
        out.push_str(&format!("\x1b[{sgr}m\x1b[K{text}\x1b[m\x1b[K"));
    }
}

/// Colours a list of actions.
struct Painter<'a> {
    colours: &'a Colours,
    rest: &'a str,
    out: &'a mut String,
}

impl<'a> Painter<'a> {
    /// Takes a word, possibly empty, from the front.
    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = self.rest.strip_prefix(sign);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    /// Writes the rest of an item, up to its comma or the end of the enclosing parentheses.
    fn value(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.rest.chars().next() {
            if self.eat("->") {
                put(self.out, &self.colours.special, "->");
                continue;
            }
            match c {
                ',' if depth == 0 => return,
                ')' if depth == 0 => return,
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            }
            self.out.push(c);
            self.rest = &self.rest[c.len_utf8()..];
        }
    }

    fn actions(&mut self) {
        while !self.rest.is_empty() {
            self.action();
            if self.eat(",") {
                self.out.push(',');
            } else if !self.rest.is_empty() {
                // Unknown syntax: a sign without a word before it.
                self.out.push_str(self.rest);
                self.rest = "";
            }
        }
    }

    fn action(&mut self) {
        let c = self.colours;
        let word = self.word();
        let special = SPECIAL.contains(&word);
        match self.rest.chars().next() {
            // Port names are no actions, and an empty word is a value.
            _ if word.is_empty() || word.starts_with(|ch: char| ch.is_ascii_uppercase() || ch.is_ascii_digit()) => {
                self.out.push_str(word);
                self.value();
            }
            Some(':') => {
                self.eat(":");
                put(self.out, if special { &c.special } else { &c.param }, &format!("{word}:"));
                self.value();
            }
            Some('(') if word == "output" => {
                put(self.out, &c.special, word);
                self.value();
            }
            // The destination is written like the source, without colour.
            Some('(') if word == "check_pkt_larger" => {
                self.eat("(");
                put(self.out, &c.param, "check_pkt_larger(");
                let inner = self.rest.find(')').map_or(self.rest.len(), |at| at + 1);
                let (inside, after) = self.rest.split_at(inner);
                let end = after.find([',', ')', '\n', ' ']).unwrap_or(after.len());
                self.out.push_str(inside);
                self.out.push_str(&after[..end]);
                self.rest = &after[end..];
            }
            Some('(') => {
                self.eat("(");
                let colour = if word == "learn" { &c.learn } else { &c.paren };
                if matches!(word, "dec_ttl" | "nat") {
                    put(self.out, colour, word);
                    put(self.out, colour, "(");
                } else {
                    put(self.out, colour, &format!("{word}("));
                }
                self.arguments(word);
                if self.eat(")") {
                    put(self.out, colour, ")");
                }
                self.value();
            }
            _ => {
                let colour = match word {
                    "drop" => Some(&c.drop),
                    _ if special => Some(&c.special),
                    _ if VALUES.contains(&word) => Some(&c.value),
                    _ if WITHOUT_VALUE.contains(&word) => Some(&c.paren),
                    _ => None,
                };
                match colour {
                    Some(colour) => put(self.out, colour, word),
                    None => self.out.push_str(word),
                }
                self.value();
            }
        }
    }

    /// Colours the content of parentheses up to the closing one.
    fn arguments(&mut self, of: &str) {
        let c = self.colours;
        while !self.rest.is_empty() && !self.rest.starts_with(')') {
            match of {
                "learn" if self.rest.starts_with(',') => {
                    let name = WITH_COMMA.iter().find(|name| self.rest.starts_with(**name)).copied();
                    let name = name.unwrap_or(",");
                    self.eat(name);
                    match name {
                        "," => self.out.push(','),
                        ",priority=" => put(self.out, &c.special, name),
                        _ => put(self.out, &c.param, name),
                    }
                    if name != "," {
                        self.value();
                    }
                    continue;
                }
                "encap" => {
                    self.header();
                    continue;
                }
                "clone" | "write_actions" | "exec" => self.action(),
                "learn" if self.bits(c) => {}
                _ => self.argument(c),
            }
            if of != "learn" && self.eat(",") {
                self.out.push(',');
            }
        }
    }

    /// Colours the parentheses after the name of the header that `encap` pushes, but nothing within them.
    fn header(&mut self) {
        let name = self.word();
        self.out.push_str(name);
        if self.eat("(") {
            put(self.out, &self.colours.paren, "(");
            while !self.rest.is_empty() && !self.rest.starts_with(')') {
                self.value();
                if self.eat(",") {
                    self.out.push(',');
                }
            }
            if self.eat(")") {
                put(self.out, &self.colours.paren, ")");
            }
        } else {
            self.value();
            if self.eat(",") {
                self.out.push(',');
            }
        }
    }

    /// Colours the matched bits of a field, given by value or by other bits, if they come next.
    fn bits(&mut self, c: &Colours) -> bool {
        let end = self.rest.find([',', ')', '=', ':', '(']).unwrap_or(self.rest.len());
        let (bits, rest) = self.rest.split_at(end);
        if !bits.ends_with(']') {
            return false;
        }
        self.rest = rest;
        put(self.out, &c.param, bits);
        if self.eat("=") {
            put(self.out, &c.param, "=");
        }
        self.value();
        true
    }

    fn argument(&mut self, c: &Colours) {
        let start = self.rest;
        let word = self.word();
        if matches!(word, "load" | "output" | "exec" | "nat") && self.rest.starts_with([':', '(']) {
            self.rest = start;
            self.action();
        } else if matches!(word, "src" | "dst") && self.eat("=") {
            put(self.out, &c.param, word);
            put(self.out, &c.param, "=");
            self.value();
        } else if self.eat("=") {
            let special = SPECIAL_FIELDS.contains(&word);
            put(self.out, if special { &c.special } else { &c.param }, &format!("{word}="));
            self.value();
        } else if word == "members" && self.eat(":") {
            put(self.out, &c.param, "members:");
            self.value();
        } else if FLAGS.contains(&word) || DIRECTIONS.contains(&word) {
            put(self.out, if FLAGS.contains(&word) { &c.value } else { &c.param }, word);
            self.value();
        } else {
            self.out.push_str(word);
            self.value();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows colours as braces, for readability.
    fn painted(text: &str) -> String {
        let painted = Colours::parse("").paint(text);
        painted.replace("\x1b[m\x1b[K", "}").replace("m\x1b[K", " ").replace("\x1b[", "{")
    }

    #[test]
    fn parameters_of_sample_and_bundle() {
        assert_eq!(
            painted(
                " packet_type=(1,0x800) actions=sample(sampling_port=2,egress),bundle(eth_src,0,hrw,ofport,members:1,2),pop_queue"
            ),
            " packet_type=(1,0x800) {1;31 actions=}{35 sample(}{36 sampling_port=}2,{36 egress}{35 )},\
             {35 bundle(}eth_src,0,hrw,ofport,{36 members:}1,2{35 )},{32 pop_queue}"
        );
    }

    #[test]
    fn some_names_are_plain_and_some_signs_coloured() {
        assert_eq!(
            painted(
                "tun_gbp_flags=0x1,gtpu_flags=5,tun_metadata3=5,tun_flags=+oam actions=clear_actions,dec_ttl,dec_mpls_ttl,pop_vlan,dec_nsh_ttl"
            ),
            "tun_gbp_flags=0x1,gtpu_flags=5,tun_metadata3=5,{36 tun_flags=}+oam \
             actions={32 clear_actions},{35 dec_ttl},{32 dec_mpls_ttl},{32 pop_vlan},{33 dec_nsh_ttl}"
        );
        assert_eq!(
            painted(
                "ip actions=learn(table=1,idle_timeout=5,fin_hard_timeout=4,priority=7,limit=4),encap(nsh(md_type=2,tlv(0x1000,10,0x1234))),encap(ethernet)"
            ),
            "{32 ip} actions={31 learn(}{33 table=}1,{36 idle_timeout=}5{36 ,fin_hard_timeout=}4{33 ,priority=}7,\
             {36 limit=}4{31 )},{35 encap(}nsh{35 (}md_type=2,tlv(0x1000,10,0x1234){35 )}{35 )},{35 encap(}ethernet{35 )}"
        );
    }

    #[test]
    fn flows() {
        assert_eq!(
            painted(
                " cookie=0x0, duration=0.029s, table=0, idle_age=0, priority=0,reg0=0x1 actions=load:0x1->NXM_NX_REG0[]\n"
            ),
            " {36 cookie=}0x0, {36 duration=}0.029s, {33 table=}0, {36 idle_age=}0, {33 priority=}0,{36 reg0=}0x1 \
             {1;31 actions=}{33 load:}0x1{33 ->}NXM_NX_REG0[]\n"
        );
        assert_eq!(
            painted(
                "OFPT_FLOW_MOD (xid=0x5): ADD priority=1,udp,in_port=2 idle:60 actions=output:1,NORMAL,resubmit(,2),drop"
            ),
            "OFPT_FLOW_MOD (xid=0x5): ADD {33 priority=}1,{32 udp},{36 in_port=}2 idle:60 actions={33 output:}1,NORMAL,\
             {35 resubmit(},2{35 )},{34 drop}"
        );
        assert_eq!(
            painted(
                "+ip actions=clone(output:2,exit),dec_ttl(1,2),learn(table=1,NXM_OF_ETH_SRC[],load:0x5->NXM_NX_REG0[]),CONTROLLER:3"
            ),
            "+{32 ip} actions={35 clone(}{33 output:}2,{33 exit}{35 )},{35 dec_ttl}{35 (}1,2{35 )},\
             {31 learn(}{33 table=}1,{36 NXM_OF_ETH_SRC[]},{33 load:}0x5{33 ->}NXM_NX_REG0[]{31 )},CONTROLLER:3"
        );
        assert_eq!(painted("no flow\n"), "no flow\n");
    }

    #[test]
    fn colours_are_chosen_and_named() {
        assert_eq!(Colours::choose("never", ""), Ok(None));
        assert!(Colours::choose("maybe", "").is_err());
        let chosen = Colours::choose("always", "dr=1;2:vl=x").expect("a word").expect("colours");
        assert_eq!((chosen.drop.as_str(), chosen.value.as_str()), ("1;2", "32"));
    }

    proptest::proptest! {
        /// No text is lost, whatever the input.
        #[test]
        fn only_colours_are_added(text in "[ ,a-c:=()\\[\\]>-]{0,20}actions=[ ,a-c:=()\\[\\]>-]{0,30}") {
            let mut painted = Colours::parse("").paint(&text);
            for sgr in ["1;31", "34", "31", "36", "35", "33", "32", ""] {
                painted = painted.replace(&format!("\x1b[{sgr}m\x1b[K"), "");
            }
            proptest::prop_assert_eq!(painted, text);
        }
    }
}
