//! The cores of the machine and their memory nodes, as /sys/devices/system says.

use dpif::Cpu;
use std::collections::BTreeMap;
use std::path::Path;

/// Cores that are online, with the node of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cores(BTreeMap<usize, usize>);

impl Cores {
    /// The cores of this machine, as they are now.
    pub fn of_machine() -> Self {
        Self::read(Path::new("/sys/devices/system"))
    }

    /// Reads the folder that describes them; cores that no node names are of node 0.
    fn read(system: &Path) -> Self {
        let list = |path: &Path| std::fs::read_to_string(path).map(|text| parse_list(&text)).unwrap_or_default();
        let mut cores: BTreeMap<usize, usize> =
            list(&system.join("cpu/online")).into_iter().map(|core| (core, 0)).collect();
        for entry in std::fs::read_dir(system.join("node")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(node) = name.to_str().and_then(|n| n.strip_prefix("node")?.parse().ok()) else { continue };
            for core in list(&entry.path().join("cpulist")) {
                cores.entry(core).and_modify(|of| *of = node);
            }
        }
        Self(cores)
    }

    /// The core of this number, if it is online.
    pub fn core(&self, core: usize) -> Option<Cpu> {
        self.0.get(&core).map(|numa| Cpu { core, numa: *numa })
    }
}

/// The numbers of a list as `0-3,8`, cpuset(7); what is none is left out.
fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        (last < 1 << 16).then_some(first..=last)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores() {
        assert_eq!(parse_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_list("\n"), [0; 0]);
        assert_eq!(parse_list("3,x-2,-,4-1,6-99999999999"), [3]);
    }

    #[test]
    fn a_machine_with_two_nodes() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("cpu/online", "0-2,9\n");
        put("node/node0/cpulist", "0-1\n");
        put("node/node3/cpulist", "2-3\n");
        put("node/online", "0,3\n");
        let cores = Cores::read(dir.path());
        let nodes = [0, 1, 2, 3, 9].map(|core| cores.core(core).map(|cpu| cpu.numa));
        // Core 3 is offline.
        assert_eq!(nodes, [Some(0), Some(0), Some(3), None, Some(0)]);
        assert!(Cores::of_machine().core(usize::MAX).is_none());
    }
}
