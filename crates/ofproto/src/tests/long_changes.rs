//! Long changes of tables, beside which the control thread goes on.

use super::connections::{listening, serve_one};
use super::*;
use openflow::bundle::{BundleAdd, BundleControl, BundleStep, flag};
use openflow::switch::Hello;
use std::sync::mpsc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

const V: Version = Version::V14;

/// One end of a connection that is served by a task.
struct Session {
    end: DuplexStream,
    received: Vec<u8>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Session {
    async fn new(bridge: &Arc<Ofproto>) -> Self {
        let (end, theirs) = tokio::io::duplex(1 << 20);
        let bridge = Arc::clone(bridge);
        let serving = tokio::spawn(async move { serve_one(&bridge, &listening(&[V]), theirs).await });
        let mut session = Self { end, received: Vec::new(), serving };
        session.send(&[Message::Hello(Hello { versions: Versions::of(&[V]) })]).await;
        assert!(matches!(session.next().await, Message::Hello(_)));
        session
    }

    async fn send(&mut self, messages: &[Message]) {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| encode(V, 9, message)).collect();
        self.end.write_all(&bytes).await.expect("room");
    }

    async fn next(&mut self) -> Message {
        loop {
            if let [_, _, a, b, ..] = self.received[..]
                && let len = usize::from(u16::from_be_bytes([a, b]))
                && self.received.len() >= len
            {
                let message: Vec<u8> = self.received.drain(..len).collect();
                return decode(&message).expect("decodes").2;
            }
            assert!(self.end.read_buf(&mut self.received).await.expect("reads") > 0, "not the end");
        }
    }
}

fn flow(priority: u16) -> Message {
    Message::FlowMod(Form::Standard, Box::new(add(Match::ANY, priority, vec![])))
}

/// A bundle of `n` flow additions.
fn bundle(n: u16) -> Vec<Message> {
    let (bundle_id, flags) = (1, flag::ATOMIC);
    let adds = (0..n).map(|n| Message::BundleAdd(Box::new(BundleAdd { bundle_id, flags, message: flow(n) })));
    let commit = BundleControl { bundle_id, ty: BundleStep::Commit.wire(false), flags };
    adds.chain([Message::BundleControl(commit)]).collect()
}

#[tokio::test]
async fn a_long_bundle_holds_up_neither_other_connections_nor_other_bridges() {
    let mut lab = Lab::new();
    let (br, other) = (lab.bridge("br", 1), lab.bridge("other", 1));
    let mut committing = Session::new(&br).await;
    let (mut changing, mut asking) = (Session::new(&br).await, Session::new(&br).await);
    let mut elsewhere = Session::new(&other).await;
    // The tables are locked as they are during the commit, for as long as this test wants.
    let (locked, is_locked) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let holder = std::thread::spawn({
        let br = Arc::clone(&br);
        move || {
            let writer = br.writer.lock();
            locked.send(()).expect("waits");
            let _ = released.recv();
            drop(writer);
        }
    });
    is_locked.recv().expect("locks");
    committing.send(&bundle(200)).await;
    while !br.is_changing() {
        tokio::task::yield_now().await;
    }
    // A control thread that waited for the tables would not get any further.
    changing.send(&[flow(1000), Message::BarrierRequest]).await;
    for n in 0..3 {
        asking.send(&[Message::EchoRequest(vec![n])]).await;
        assert_eq!(asking.next().await, Message::EchoReply(vec![n]));
    }
    elsewhere.send(&[flow(5), Message::BarrierRequest]).await;
    assert_eq!(elsewhere.next().await, Message::BarrierReply);
    assert_eq!((br.n_flows(), other.n_flows()), (0, 1));
    lab.switch.housekeeping();
    asking.send(&[Message::StatsRequest { more: false, body: StatsRequest::Meter(u32::MAX) }]).await;
    release.send(()).expect("held");
    holder.join().expect("no panic");
    assert!(matches!(committing.next().await, Message::BundleControl(_)));
    assert_eq!(changing.next().await, Message::BarrierReply);
    assert_eq!(br.n_flows(), 201);
    assert!(matches!(asking.next().await, Message::StatsReply { .. }));
}
