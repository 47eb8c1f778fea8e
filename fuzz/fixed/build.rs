//! Makes a module and a test of each file in `targets`.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("targets");
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = std::fs::read_dir(&folder).expect("a folder `targets`");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let (mut modules, mut tests) = (String::new(), String::new());
    for path in paths {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name in UTF-8");
        modules += &module(name, &path);
        tests += &test(name);
    }
    let out = std::env::var_os("OUT_DIR").expect("a folder for files");
    for (name, text) in [("targets.rs", modules), ("tests.rs", tests)] {
        std::fs::write(Path::new(&out).join(name), text).expect("a file");
    }
}

/// A target's module, and its function.
fn module(name: &str, path: &Path) -> String {
    let literal = format!("{:?}", path.to_str().expect("a name in UTF-8"));
    format!(
        "#[path = {literal}]\n\
         #[allow(unused_attributes, clippy::pedantic, reason = \"it is a program in a workspace of its own\")]\n\
         mod target_{name};\n\
         /// The target `{name}`.\n\
         pub fn {name}(bytes: &[u8]) {{ target_{name}::fuzz_target(bytes); }}\n"
    )
}

fn test(name: &str) -> String {
    format!("#[test]\nfn {name}() {{ tally::report!(\"{{}}\", run::run({name:?}, fixed_inputs::{name})); }}\n")
}
