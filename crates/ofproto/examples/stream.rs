//! Sends files of OpenFlow 1.4 messages through a connection of a bridge: `stream FILE...`. Prints a line of JSON for each file:
//! its size, and the seconds until the reply to a barrier after it. The switch runs on a thread of its own, without packets,
//! and the connection is a Unix socket, so that a profile of the program mostly shows the processing of messages in the
//! switch.

use base::Clock;
use ofproto::{PeerKind, Service, ServiceConfig, Settings, Switch};
use openflow::Version;
use openflow::message::{Message, encode};
use openflow::stream::Framer;
use openflow::switch::Hello;
use openflow::versions::Versions;
use serde_json::json;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The type of a barrier reply (OpenFlow 1.4 section 7.1.1).
const BARRIER_REPLY: u8 = 21;
/// The type of an error.
const ERROR: u8 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("mgmt");
    let switch = Switch::new(Clock::real());
    switch.start_revalidator()?;
    let bridge = switch.add_bridge("br0");
    let config = ServiceConfig {
        target: format!("punix:{}", path.display()),
        kind: PeerKind::Service,
        versions: Versions::of(&[Version::V14]),
        dscp: 0,
        settings: Settings::default(),
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let _service = Service::start(&bridge, config).map_err(std::io::Error::other)?;
            std::future::pending::<std::io::Result<()>>().await
        })
    });
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut socket = UnixStream::connect(&path)?;
    let hello = Message::Hello(Hello { versions: Versions::of(&[Version::V14]) });
    socket.write_all(&encode(Version::V14, 1, &hello))?;
    for file in std::env::args().skip(1) {
        let mut bytes = std::fs::read(&file)?;
        let len = bytes.len();
        bytes.extend(encode(Version::V14, 2, &Message::BarrierRequest));
        let began = Instant::now();
        let mut reading = socket.try_clone()?;
        let answered = std::thread::spawn(move || until_barrier(&mut reading));
        socket.write_all(&bytes)?;
        let errors = answered.join().map_err(|_| "the reader has ended")??;
        println!("{}", json!({"file": file, "bytes": len, "seconds": began.elapsed().as_secs_f64(), "errors": errors}));
    }
    Ok(())
}

/// Reads until the barrier reply. Returns the number of errors before it.
fn until_barrier(socket: &mut UnixStream) -> std::io::Result<u64> {
    let (mut framer, mut chunk, mut errors) = (Framer::default(), vec![0; 1 << 16], 0);
    loop {
        let n = socket.read(&mut chunk)?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        framer.push(&chunk[..n]);
        while let Some(message) = framer.next_message().map_err(std::io::Error::other)? {
            match message.get(1) {
                Some(&BARRIER_REPLY) => return Ok(errors),
                Some(&ERROR) => errors += 1,
                _ => {}
            }
        }
    }
}
