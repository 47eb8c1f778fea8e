//! The cores for packet threads and their memory nodes: those of the machine, as /sys/devices/system says, or dummies
//! (`--dummy-numa`).

use dpif::Cpu;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// Numbers of nodes are below this.
const NODES_MAX: i64 = 128;

/// The dummy cores of the process, which the command line sets before all else.
static DUMMIES: OnceLock<Cores> = OnceLock::new();

/// Cores that are online, with the node of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cores {
    numa_of: BTreeMap<usize, usize>,
    /// They exist in name only.
    are_dummies: bool,
}

impl Cores {
    /// The dummy cores that were set, or the cores of this machine as they are now.
    pub fn of_machine() -> Self {
        DUMMIES.get().cloned().unwrap_or_else(|| Self::read(Path::new("/sys/devices/system")))
    }

    /// Logs the cores at the start of the process. With `dummies`, the node of each dummy as `0,0,1,1`, these are the
    /// process's cores from now on; a number that no node can have is logged and left out.
    pub fn discover(dummies: Option<&str>) {
        if let Some(nodes) = dummies {
            let (cores, invalid) = Self::dummies(nodes);
            for node in invalid {
                tracing::warn!(target: "ovs_numa", "Invalid numa node {node}");
            }
            // A process starts once.
            let _ = DUMMIES.set(cores);
        }
        Self::of_machine().log();
    }

    /// The cores of a list as of [`Cores::discover`], and its numbers that no node can have. As in Open vSwitch a word
    /// counts as the number that it begins with, 0 without one.
    fn dummies(nodes: &str) -> (Self, Vec<i64>) {
        let (valid, invalid): (Vec<i64>, Vec<i64>) = nodes
            .split(',')
            .filter(|word| !word.is_empty())
            .map(leading_number)
            .partition(|n| (0..NODES_MAX).contains(n));
        let numa_of = valid.into_iter().map(|node| node as usize).enumerate().collect();
        (Self { numa_of, are_dummies: true }, invalid)
    }

    /// Whether they exist in name only, so that threads run anywhere.
    pub fn are_dummies(&self) -> bool {
        self.are_dummies
    }

    /// The first core of each node.
    pub fn first_of_each_node(&self) -> BTreeSet<Cpu> {
        let mut first = BTreeMap::new();
        for (core, numa) in &self.numa_of {
            first.entry(*numa).or_insert(*core);
        }
        first.into_iter().map(|(numa, core)| Cpu { core, numa }).collect()
    }

    /// Logs how many there are.
    fn log(&self) {
        let mut by_node: BTreeMap<usize, usize> = BTreeMap::new();
        for numa in self.numa_of.values() {
            *by_node.entry(*numa).or_default() += 1;
        }
        for (numa, n) in &by_node {
            tracing::info!(target: "ovs_numa", "Discovered {n} CPU cores on NUMA node {numa}");
        }
        let (nodes, cores) = (by_node.len(), self.numa_of.len());
        tracing::info!(target: "ovs_numa", "Discovered {nodes} NUMA nodes and {cores} CPU cores");
    }

    /// Reads the folder that describes them; cores that no node names are of node 0.
    fn read(system: &Path) -> Self {
        let list = |path: &Path| std::fs::read_to_string(path).map(|text| parse_list(&text)).unwrap_or_default();
        let mut numa_of: BTreeMap<usize, usize> =
            list(&system.join("cpu/online")).into_iter().map(|core| (core, 0)).collect();
        for entry in std::fs::read_dir(system.join("node")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(node) = name.to_str().and_then(|n| n.strip_prefix("node")?.parse().ok()) else { continue };
            for core in list(&entry.path().join("cpulist")) {
                numa_of.entry(core).and_modify(|of| *of = node);
            }
        }
        Self { numa_of, are_dummies: false }
    }

    /// The core of this number, if it is online.
    pub fn core(&self, core: usize) -> Option<Cpu> {
        self.numa_of.get(&core).map(|numa| Cpu { core, numa: *numa })
    }
}

/// The number that a text begins with, after spaces and a sign; 0 if it begins with none.
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let end = text.char_indices().position(|(at, c)| !(c.is_ascii_digit() || at == 0 && (c == '-' || c == '+')));
    let number = &text[..end.unwrap_or(text.len())];
    let is_none = !number.bytes().any(|byte| byte.is_ascii_digit());
    // A number that is too large stands for a node that cannot exist.
    if is_none { 0 } else { number.parse().unwrap_or(i64::MAX) }
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
    fn dummy_cores() {
        let nodes = |list: &str| {
            let (cores, invalid) = Cores::dummies(list);
            assert!(cores.are_dummies());
            (cores.numa_of.into_values().collect::<Vec<_>>(), invalid)
        };
        assert_eq!(nodes("0,0,1,1"), (vec![0, 0, 1, 1], vec![]));
        assert_eq!(nodes("3,5,127,128"), (vec![3, 5, 127], vec![128]));
        assert_eq!(nodes("-1,0,x,, 2,7x,-,+1,é,99999999999999999999"), (vec![0, 0, 2, 7, 0, 1, 0], vec![-1, i64::MAX]));
        assert_eq!((nodes(""), nodes(",")), ((vec![], vec![]), (vec![], vec![])));
        let (cores, _) = Cores::dummies("5,0,5,0");
        assert_eq!(cores.first_of_each_node(), [Cpu { core: 0, numa: 5 }, Cpu { core: 1, numa: 0 }].into());
        assert_eq!(cores.core(3), Some(Cpu { core: 3, numa: 0 }));
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
