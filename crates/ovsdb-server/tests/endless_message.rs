//! A message without end, in a process of its own: the test reads the peak of the process's memory.

mod common;

use common::{Client, connect, insert, start, transact, until};
use ovsdb::jsonrpc::Limits;
use tokio::io::AsyncWriteExt;

/// The server rejects a message at the length limit, and buffers no more of it than that.
#[tokio::test]
async fn a_message_without_end_ends_its_connection_only() {
    let directory = tempfile::tempdir().unwrap();
    let handle = start(directory.path());
    let mut other = Client::new(connect(directory.path()).await, Limits::default());
    transact(&mut other, insert("other")).await;
    let refused = || base::coverage::read("ovsdb_bad_message").unwrap_or_default();
    let before = refused();
    let mut stream = connect(directory.path()).await;
    stream.write_all(b"{\"id\":1,\"method\":\"echo\",\"params\":[\"").await.unwrap();
    let chunk = vec![b'x'; 1 << 20];
    let mut sent = 0;
    while stream.write_all(&chunk).await.is_ok() {
        sent += chunk.len();
        assert!(sent <= (1 << 30) + (2 << 20), "it is read past the limit");
        if sent == 512 << 20 {
            transact(&mut other, insert("meanwhile")).await;
        }
    }
    assert!(sent >= (1 << 30) - (2 << 20), "it is given up at {sent} bytes");
    until(&handle, "sessions", 1).await;
    assert_eq!(refused(), before + 1);
    transact(&mut other, insert("after")).await;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    // A gigabyte, and as much again while a buffer grows.
    assert!(peak_kib < 2_200_000, "{peak_kib} KiB");
}
