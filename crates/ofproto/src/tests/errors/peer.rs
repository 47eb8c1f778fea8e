//! The same cases on Open vSwitch: it answers what we do, but where a case says otherwise.
//!
//! The programs are taken from the folder `$FLOWSTONE_PEERS` (`bin/`, and the schema under `usr/share/openvswitch`).
//! Without that variable the test is skipped, but under `CI=true` it fails.

use super::script::{Case, Outcome, Step, XID, cases, is_of_the_lab, steps};
use super::{errors_in, name};
use openflow::Version;
use openflow::message::{Message, encode};
use openflow::stream::Framer;
use openflow::switch::Hello;
use openflow::types::xid;
use openflow::versions::Versions;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const VERSIONS: &str = "protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15";

/// A running Open vSwitch in a folder of its own.
struct Switch {
    bin: PathBuf,
    dir: PathBuf,
    daemons: Vec<Child>,
}

impl Drop for Switch {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Switch {
    fn start(peers: &Path) -> Self {
        let dir = std::env::temp_dir().join(format!("flowstone-ofproto-errors-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary folder");
        let mut switch = Self { bin: peers.join("bin"), dir, daemons: Vec::new() };
        let path = |name: &str| switch.dir.join(name).display().to_string();
        let (db, sock) = (path("conf.db"), format!("unix:{}", path("db.sock")));
        let schema = peers.join("usr/share/openvswitch/vswitch.ovsschema").display().to_string();
        switch.run("ovsdb-tool", &["create", &db, &schema]);
        let server = switch.command("ovsdb-server", &[&db, &format!("--remote=p{sock}")]).spawn().expect("starts");
        switch.daemons.push(server);
        let vsctl = ["--retry", "--timeout=20", &format!("--db={sock}")];
        switch.run("ovs-vsctl", &[&vsctl[..], &["--no-wait", "init"]].concat());
        let options = ["--enable-dummy=override", "--disable-system", "--pidfile", &sock];
        let daemon = switch.command("ovs-vswitchd", &options).spawn().expect("starts");
        switch.daemons.push(daemon);
        let setup = format!(
            "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure {VERSIONS} \
             -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
             -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2"
        );
        switch.run("ovs-vsctl", &vsctl.into_iter().chain(setup.split_whitespace()).collect::<Vec<_>>());
        switch
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, &self.dir);
        }
        command
    }

    fn run(&self, program: &str, args: &[&str]) {
        assert!(self.command(program, args).status().expect("runs").success(), "{program} {args:?}");
    }

    /// What is answered to these messages, sent one after the other: the errors to all of them. A connection that ends says
    /// so.
    fn talk(&self, version: Version, messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let mut stream = UnixStream::connect(self.dir.join("br0.mgmt")).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(|e| e.to_string())?;
        let mut all = encode(version, 1, &Message::Hello(Hello { versions: Versions::of(&[version]) }));
        messages.iter().for_each(|message| all.extend_from_slice(message));
        all.extend(encode(version, 0xec40, &Message::BarrierRequest));
        all.extend(encode(version, 0xec40, &Message::EchoRequest(vec![7])));
        stream.write_all(&all).map_err(|e| e.to_string())?;
        let (mut framer, mut chunk, mut answers) = (Framer::default(), vec![0; 1 << 16], Vec::new());
        loop {
            match stream.read(&mut chunk).map_err(|e| e.to_string())? {
                0 => return Err("the connection ended".into()),
                n => framer.push(&chunk[..n]),
            }
            while let Some(message) = framer.next_message().map_err(|e| e.to_string())? {
                if message[1] == 3 && xid(message) == 0xec40 {
                    return Ok(answers);
                }
                answers.push(message.to_vec());
            }
        }
    }

    /// Forgets flows, groups, meters and options of tunnels.
    fn reset(&self) {
        let lines = [
            "type 14 16*00_ff03_0000_0000_0000_ffffffff_ffffffff_ffffffff_0000_0000_00010004_00000000",
            "type 15 0002_00_00_fffffffc",
            "type 29 0002_0000_ffffffff",
            "nicira 24 0002_000000000000",
        ];
        let messages: Vec<Vec<u8>> =
            lines.iter().flat_map(|line| steps(line, Version::V13)).filter_map(bytes).collect();
        // Options are in use until flows that are gone have been cleaned up.
        let forgets = || errors_in(&self.talk(Version::V13, &messages).expect("answers")).is_empty();
        assert!((0..1000).any(|_| forgets()), "all can be forgotten");
    }
}

fn bytes(step: Step) -> Option<Vec<u8>> {
    if let Step::Message(bytes) = step { Some(bytes) } else { None }
}

#[test]
fn open_vswitch_answers_the_same() {
    let Some(peers) = std::env::var_os("FLOWSTONE_PEERS") else {
        let ci = std::env::var("CI").is_ok_and(|v| v == "true");
        assert!(!ci, "FLOWSTONE_PEERS must name a folder with Open vSwitch's programs when CI=true");
        println!("skipped: FLOWSTONE_PEERS is unset, so there is no ovs-vswitchd to compare with");
        return;
    };
    let switch = Switch::start(Path::new(&peers));
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for Case { error, versions, when, outcome, peer } in cases() {
        let Outcome::Sent(lines) = outcome else { continue };
        if lines.iter().any(|line| is_of_the_lab(line)) {
            continue;
        }
        for version in versions {
            let messages: Vec<Vec<u8>> = lines.iter().flat_map(|line| steps(line, version)).filter_map(bytes).collect();
            tried += 1;
            switch.reset();
            let wanted = peer.as_ref().map_or(Some(error), |(other, _)| *other);
            let wanted = wanted.and_then(|error| error.number(version)).map(|number| name(version, number));
            let wanted = wanted.unwrap_or_else(|| "none".into());
            let told = match switch.talk(version, &messages) {
                Ok(answers) => {
                    let last = errors_in(&answers).into_iter().rfind(|(xid, _)| *xid == XID);
                    last.map_or_else(|| "none".into(), |(_, number)| name(version, number))
                }
                Err(why) => why,
            };
            if told != wanted {
                wrong.push(format!("{version} {error} ({when}): {told}"));
            }
        }
    }
    assert!(wrong.is_empty(), "of {tried} cases {} differ:\n{}", wrong.len(), wrong.join("\n"));
}
