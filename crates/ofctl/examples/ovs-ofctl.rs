//! The program on its own, for the tests that compare it with Open vSwitch's.

fn main() -> std::process::ExitCode {
    ofctl::main(std::env::args_os().collect())
}
