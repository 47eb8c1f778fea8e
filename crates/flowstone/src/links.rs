//! `flowstone links DIR`: creates symbolic links so that every program runs under its own name.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Creates the links and replaces existing ones; a file of any other kind is reported and left alone.
pub(crate) fn main(name: &str, args: &[OsString], programs: impl Iterator<Item = &'static str>) -> ExitCode {
    let [directory] = args else {
        return cli::fail(name, "links: exactly one argument is required, the directory to make the links in");
    };
    let executable = match std::env::current_exe() {
        Ok(executable) => executable,
        Err(error) => return cli::fail(name, format!("links: the path of this program is not known ({error})")),
    };
    let directory = Path::new(directory);
    if let Err(error) = std::fs::create_dir_all(directory) {
        return cli::fail(name, format!("links: {}: {error}", directory.display()));
    }
    for program in programs {
        let link = directory.join(program);
        if let Err(error) = make(&executable, &link) {
            return cli::fail(name, format!("links: {}: {error}", link.display()));
        }
    }
    ExitCode::SUCCESS
}

fn make(executable: &Path, link: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(link) {
        Ok(found) if found.is_symlink() => std::fs::remove_file(link)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "exists and is no symbolic link")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::os::unix::fs::symlink(executable, link)
}
