//! Python programs in namespaces, which act as hosts.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

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

    /// The remaining output of the program, after it has exited successfully.
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
