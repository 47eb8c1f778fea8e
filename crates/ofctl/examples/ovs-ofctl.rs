//! The program by itself, for the tests that compare it with Debian's.

fn main() -> std::process::ExitCode {
    ofctl::main(std::env::args_os().collect())
}
