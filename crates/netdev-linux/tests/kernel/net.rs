//! Namespaces and veth pairs, removed when dropped.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Runs a command line of words without spaces; panics with its error output if it fails.
pub(crate) fn run(line: &str) -> Output {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|e| panic!("cannot run `{line}` ({e}): these tests need {program} installed"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed (these tests need root): {errors}");
    output
}

/// The names of one test.
pub(crate) struct Net {
    prefix: String,
    namespaces: Vec<String>,
    links: Vec<String>,
}

impl Net {
    /// Names that no other test or run uses.
    pub(crate) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests make network devices: run them as root");
        let prefix = format!("f{:x}{:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { prefix, namespaces: Vec::new(), links: Vec::new() }
    }

    /// A device's or namespace's name.
    pub(crate) fn name(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    /// A veth pair in this namespace, both ends up, with IPv6 disabled.
    pub(crate) fn veth(&mut self, a: &str, b: &str) -> (String, String) {
        let (a, b) = (self.name(a), self.name(b));
        run(&format!("ip link add {a} type veth peer name {b}"));
        self.links.push(a.clone());
        for end in [&a, &b] {
            no_ipv6(end);
        }
        up(&a, &b);
        (a, b)
    }

    /// An empty namespace.
    pub(crate) fn namespace(&mut self, suffix: &str) -> String {
        let namespace = self.name(suffix);
        run(&format!("ip netns add {namespace}"));
        self.namespaces.push(namespace.clone());
        namespace
    }

    /// A host in a namespace of its own, whose device `e` has this address and MTU. Returns the namespace and the local
    /// device.
    pub(crate) fn host(&mut self, suffix: &str, address: &str, mtu: u32) -> (String, String) {
        let (port, inside) = self.veth(&format!("p{suffix}"), &format!("h{suffix}"));
        let namespace = self.namespace(suffix);
        run(&format!("ip link set {port} mtu {mtu}"));
        run(&format!("ip link set {inside} netns {namespace} name e mtu {mtu}"));
        run(&format!("ip -n {namespace} address add {address} dev e"));
        run(&format!("ip -n {namespace} link set e up"));
        run(&format!("ip -n {namespace} link set lo up"));
        (namespace, port)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for link in &self.links {
            let _ = Command::new("ip").args(["link", "del", link]).stderr(Stdio::null()).status();
        }
        for namespace in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
    }
}

/// Sets both ends of a veth pair up, and returns when frames pass. The kernel starts to send some time after the
/// carrier is up, and silently drops earlier frames.
pub(crate) fn up(a: &str, b: &str) {
    for end in [a, b] {
        run(&format!("ip link set {end} up"));
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    for end in [a, b] {
        let state = || std::fs::read_to_string(format!("/sys/class/net/{end}/operstate")).unwrap_or_default();
        while state().trim_end() != "up" {
            assert!(Instant::now() < deadline, "{end} is {:?}", state());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // Setting the link up again takes the lock that is held until transmission has started.
    run(&format!("ip link set {a} up"));
}

/// Disables the host's own IPv6 stack on a device, so that only the test's frames pass it.
pub(crate) fn no_ipv6(device: &str) {
    let path = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
    let _ = std::fs::write(path, "1");
}
