//! Each fuzz target, on its fixed inputs.

#[path = "fixed_inputs/run.rs"]
mod run;

include!(concat!(env!("OUT_DIR"), "/tests.rs"));

/// So that targets which are tested here are fuzzed, too.
#[test]
fn each_target_is_a_program() {
    let folder = run::folder();
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for file in std::fs::read_dir(folder.join("targets")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(manifest.contains(&format!("path = \"targets/{name}\"")), "{name} is no [[bin]] of fuzz/Cargo.toml");
    }
}
