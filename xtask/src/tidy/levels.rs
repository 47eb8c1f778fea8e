//! Crate levels: every edge between crates of the workspace points to a strictly lower one.
//!
//! A crate states its level in `[package.metadata.flowstone]`; dev-dependencies are exempt, because tests may use
//! crates of higher levels. `xtask` itself has no level and may depend on none of the crates.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Finding, output};

/// A member of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Its Cargo.toml, relative to the root of the tree.
    pub(crate) manifest: String,
    level: Option<u64>,
    /// Names of its dependencies for building or running, in and outside of the workspace.
    needs: Vec<String>,
}

/// The members of the workspace at `root`, by `cargo metadata`, which needs no network for this.
pub(crate) fn crates(root: &Path) -> Result<Vec<Crate>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&output(&mut command)?).map_err(|error| format!("cargo: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    packages.iter().map(|package| member(root, package)).collect()
}

fn member(root: &Path, package: &Value) -> Result<Crate, String> {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("cargo metadata leaves out a name".to_owned());
    let manifest = text(&package["manifest_path"])?;
    let inside = Path::new(&manifest).strip_prefix(root).map_err(|error| format!("{manifest}: {error}"))?;
    let edges = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let needs = edges.iter().filter(|edge| edge["kind"] != "dev").map(|edge| text(&edge["name"]));
    Ok(Crate {
        name: text(&package["name"])?,
        manifest: inside.to_string_lossy().into_owned(),
        level: package["metadata"]["flowstone"]["level"].as_u64(),
        needs: needs.collect::<Result<_, _>>()?,
    })
}

/// Reports crates without a level, and edges that do not point down.
pub(crate) fn check(crates: &[Crate], findings: &mut Vec<Finding>) {
    let levels: BTreeMap<&str, Option<u64>> =
        crates.iter().map(|member| (member.name.as_str(), member.level)).collect();
    for member in crates {
        let beside = member.name == "xtask";
        if member.level.is_none() && !beside {
            findings.push(Finding::new(&member.manifest, 1, "states no package.metadata.flowstone.level"));
        }
        for need in &member.needs {
            let Some(&lower) = levels.get(need.as_str()) else { continue };
            let what = match (member.level, lower) {
                (Some(own), Some(lower)) if lower < own => continue,
                (Some(own), Some(lower)) => format!("level {own} depends on {need} of level {lower}"),
                _ if beside => format!("stands beside the levels but depends on {need}"),
                _ => continue,
            };
            findings.push(Finding::new(&member.manifest, 1, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, level: Option<u64>, needs: &[&str]) -> Crate {
        let needs = needs.iter().map(ToString::to_string).collect();
        Crate { name: name.to_owned(), manifest: format!("{name}/Cargo.toml"), level, needs }
    }

    fn found(crates: &[Crate]) -> Vec<String> {
        let mut findings = Vec::new();
        check(crates, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn edges_point_down() {
        let low = || member("low", Some(1), &["serde"]);
        assert!(found(&[low(), member("high", Some(2), &["low"])]).is_empty());
        assert_eq!(
            found(&[low(), member("level", Some(1), &["low"])]),
            ["level/Cargo.toml:1: level 1 depends on low of level 1"]
        );
        assert_eq!(
            found(&[low(), member("xtask", None, &["low"])]),
            ["xtask/Cargo.toml:1: stands beside the levels but depends on low"]
        );
    }

    #[test]
    fn levels_are_stated() {
        let expected = ["free/Cargo.toml:1: states no package.metadata.flowstone.level"];
        assert_eq!(found(&[member("free", None, &[])]), expected);
    }
}
