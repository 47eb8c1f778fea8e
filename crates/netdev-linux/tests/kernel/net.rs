//! Namespaces, veth pairs and processes in them, removed when dropped.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Runs a command line of words without spaces; panics with its errors if it fails.
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
    /// Names that no other test or run has.
    pub(crate) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests make network devices: run them as root");
        let prefix = format!("f{:x}{:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { prefix, namespaces: Vec::new(), links: Vec::new() }
    }

    /// A device's or namespace's name.
    pub(crate) fn name(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    /// A veth pair in this namespace, both ends up, with IPv6 off.
    pub(crate) fn veth(&mut self, a: &str, b: &str) -> (String, String) {
        let (a, b) = (self.name(a), self.name(b));
        run(&format!("ip link add {a} type veth peer name {b}"));
        self.links.push(a.clone());
        for end in [&a, &b] {
            no_ipv6(end);
            run(&format!("ip link set {end} up"));
        }
        (a, b)
    }

    /// A namespace with nothing in it.
    pub(crate) fn namespace(&mut self, suffix: &str) -> String {
        let namespace = self.name(suffix);
        run(&format!("ip netns add {namespace}"));
        self.namespaces.push(namespace.clone());
        namespace
    }

    /// A host in a namespace of its own: its device `e` has `address` and the MTU. Returns the namespace and the
    /// device at this end.
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

/// Keeps the host's own IPv6 stack off a device, so that only the test's frames pass it.
pub(crate) fn no_ipv6(device: &str) {
    let path = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
    let _ = std::fs::write(path, "1");
}

/// A Python program in a namespace, killed when dropped.
pub(crate) struct Python(Child, BufReader<std::process::ChildStdout>);

impl Python {
    /// Starts a program.
    pub(crate) fn start(namespace: &str, program: &str) -> Self {
        let mut child = Command::new("ip")
            .args(["netns", "exec", namespace, "python3", "-c", program])
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need ip and python3");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self(child, stdout)
    }

    /// The next line that the program prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    /// Everything that the program still prints, when it has ended well.
    pub(crate) fn finish(mut self) -> String {
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).expect("read");
        let status = self.0.wait().expect("wait");
        assert!(status.success(), "python3: {status}");
        rest.trim_end().to_owned()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
