//! The datapath and interface types that exist, and which implementation stands behind each of them.
//!
//! `--enable-dummy` adds dummy types beside the real ones; at the levels `system` and `override` dummies also take the
//! place of the type `system`, or of all types. A replaced type keeps its name: rows and `dpctl/show` say `system`, and
//! frames come from `netdev-dummy/receive`.

use tunnel::TunnelType;

/// What `--enable-dummy` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DummyLevel {
    /// No dummies.
    #[default]
    Off,
    /// The types `dummy`, `dummy-internal` and `dummy-pmd` exist beside the others.
    Beside,
    /// Besides, the datapath and interface types `system` are dummies.
    System,
    /// Besides, all datapath and interface types but `patch` are dummies.
    Override,
}

impl DummyLevel {
    /// Parses the option's argument. An unknown level is an error with Open vSwitch's text.
    pub fn parse(level: Option<&str>) -> Result<Self, String> {
        match level {
            None | Some("") => Ok(Self::Beside),
            Some("system") => Ok(Self::System),
            Some("override") => Ok(Self::Override),
            Some(other) => Err(format!("{other}: unknown dummy level")),
        }
    }
}

/// What implements a datapath type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatapathClass {
    /// The userspace datapath with devices of the kernel.
    Userspace,
    /// The same for tests: internal ports are dummies, and ports are numbered by their names.
    Dummy,
}

/// What implements an interface type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterfaceClass {
    /// A dummy that shows this type.
    Dummy(&'static str),
    /// A kernel device over packet sockets.
    System,
    /// A kernel device over AF_XDP.
    AfXdp,
    /// A tap device.
    Internal,
    /// A device in memory, of this type.
    Memory(&'static str),
    /// No device: a connection to another bridge.
    Patch,
    /// A tunnel: a port of the datapath without queues.
    Tunnel(TunnelType),
}

const DATAPATHS: &[&str] = &["netdev", "system"];
/// All but the dummies, sorted.
const INTERFACES: &[(&str, InterfaceClass)] = &[
    ("afxdp", InterfaceClass::AfXdp),
    ("bareudp", InterfaceClass::Tunnel(TunnelType::Bareudp)),
    ("erspan", InterfaceClass::Tunnel(TunnelType::Erspan)),
    ("geneve", InterfaceClass::Tunnel(TunnelType::Geneve)),
    ("gre", InterfaceClass::Tunnel(TunnelType::Gre)),
    ("gtpu", InterfaceClass::Tunnel(TunnelType::Gtpu)),
    ("internal", InterfaceClass::Internal),
    ("ip6erspan", InterfaceClass::Tunnel(TunnelType::Ip6Erspan)),
    ("ip6gre", InterfaceClass::Tunnel(TunnelType::Ip6Gre)),
    ("null", InterfaceClass::Memory("null")),
    ("patch", InterfaceClass::Patch),
    ("replay", InterfaceClass::Memory("replay")),
    ("srv6", InterfaceClass::Tunnel(TunnelType::Srv6)),
    ("system", InterfaceClass::System),
    ("vxlan", InterfaceClass::Tunnel(TunnelType::Vxlan)),
];
const DUMMIES: &[&str] = &["dummy", "dummy-internal", "dummy-pmd"];
/// Types of Open vSwitch that exist as dummies only: scripts for test environments (`ovs-sandbox`) use them there.
const OVERRIDDEN_ONLY: &[&str] = &["afxdp-nonpmd", "tap"];

/// The beginnings of names of devices that Open vSwitch makes for tunnels.
const TUNNEL_DEVICES: &[&str] = &[
    "erspan_sys",
    "genev_sys",
    "gre_sys",
    "gtpu_sys",
    "ip6erspan_sys",
    "ip6gre_sys",
    "srv6_sys",
    "udp_sys",
    "vxlan_sys",
];

/// The types that the command line allows (`--enable-dummy`, `--disable-system`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Types {
    /// Dummies.
    pub dummy: DummyLevel,
    /// No `system` datapath, unless it is a dummy.
    pub no_system: bool,
    /// No routes, rules and addresses of the kernel: tunnels go only by those of dummy devices and of commands.
    pub no_system_routes: bool,
}

impl Types {
    /// The names of the datapath types, sorted, for Open_vSwitch:datapath_types.
    pub fn datapath_types(self) -> Vec<&'static str> {
        let dummy = (self.dummy != DummyLevel::Off).then_some("dummy");
        dummy.into_iter().chain(DATAPATHS.iter().copied()).filter(|kind| self.datapath(kind).is_some()).collect()
    }

    /// Whether no interface may have this name: datapaths call a device of their own `ovs-` and their type, and the
    /// devices of tunnels begin with the others.
    pub fn is_reserved(self, name: &str) -> bool {
        let is_datapath = name.strip_prefix("ovs-").is_some_and(|kind| self.datapath(kind).is_some());
        is_datapath || TUNNEL_DEVICES.iter().any(|prefix| name.starts_with(prefix))
    }

    /// The names of the interface types, sorted, for Open_vSwitch:iface_types.
    pub fn iface_types(self) -> Vec<&'static str> {
        let mut types: Vec<&str> = INTERFACES.iter().map(|(kind, _)| *kind).collect();
        if self.dummy != DummyLevel::Off {
            types.extend(DUMMIES);
        }
        if self.dummy == DummyLevel::Override {
            types.extend(OVERRIDDEN_ONLY);
        }
        types.sort_unstable();
        types
    }

    /// What implements the datapath type `kind`; `None` if there is no such type.
    pub fn datapath(self, kind: &str) -> Option<DatapathClass> {
        match (kind, self.dummy) {
            ("dummy", DummyLevel::Off) => None,
            ("dummy", _) | ("netdev", DummyLevel::Override) => Some(DatapathClass::Dummy),
            ("system", DummyLevel::System | DummyLevel::Override) => Some(DatapathClass::Dummy),
            ("system", _) if self.no_system => None,
            ("netdev" | "system", _) => Some(DatapathClass::Userspace),
            _ => None,
        }
    }

    /// What implements the interface type `kind` on a datapath of this class; `None` if there is no such type.
    pub fn interface(self, kind: &str, datapath: DatapathClass) -> Option<InterfaceClass> {
        let dummy = DUMMIES.iter().find(|dummy| **dummy == kind && self.dummy != DummyLevel::Off);
        let overridden = OVERRIDDEN_ONLY.iter().find(|name| **name == kind && self.dummy == DummyLevel::Override);
        if let Some(kind) = dummy.or(overridden) {
            return Some(InterfaceClass::Dummy(kind));
        }
        let (name, class) = INTERFACES.iter().find(|(name, _)| *name == kind)?;
        Some(match (class, self.dummy, datapath) {
            (InterfaceClass::Patch, ..) => InterfaceClass::Patch,
            (InterfaceClass::Internal, _, DatapathClass::Dummy) => InterfaceClass::Dummy("dummy-internal"),
            (_, DummyLevel::Override, _) => InterfaceClass::Dummy(name),
            (InterfaceClass::System, DummyLevel::System, _) => InterfaceClass::Dummy(name),
            _ => *class,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(dummy: DummyLevel, no_system: bool) -> Types {
        Types { dummy, no_system, no_system_routes: false }
    }

    #[test]
    fn levels_are_parsed_and_unknown_ones_refused() {
        assert_eq!(DummyLevel::parse(None), Ok(DummyLevel::Beside));
        assert_eq!(DummyLevel::parse(Some("")), Ok(DummyLevel::Beside));
        assert_eq!(DummyLevel::parse(Some("system")), Ok(DummyLevel::System));
        assert_eq!(DummyLevel::parse(Some("override")), Ok(DummyLevel::Override));
        assert_eq!(DummyLevel::parse(Some("all")).unwrap_err(), "all: unknown dummy level");
    }

    #[test]
    fn a_dummy_system_datapath_stays_although_system_is_disabled() {
        assert_eq!(types(DummyLevel::Off, false).datapath_types(), ["netdev", "system"]);
        assert_eq!(types(DummyLevel::Off, true).datapath_types(), ["netdev"]);
        assert_eq!(types(DummyLevel::Beside, true).datapath_types(), ["dummy", "netdev"]);
        assert_eq!(types(DummyLevel::System, true).datapath_types(), ["dummy", "netdev", "system"]);
        assert_eq!(types(DummyLevel::Override, true).datapath_types(), ["dummy", "netdev", "system"]);
    }

    #[test]
    fn names_of_datapaths_and_tunnels_are_reserved() {
        let is_reserved = |no_system, name| types(DummyLevel::Beside, no_system).is_reserved(name);
        for name in ["ovs-netdev", "ovs-dummy", "ovs-system", "gre_sys", "gre_sys1", "vxlan_sys_4789", "genev_sys_6081"]
        {
            assert!(is_reserved(false, name), "{name}");
        }
        for name in ["ovs-other", "ovs-", "netdev", "xgre_sys", "gre_sy", "ovs-netdev1", "tap_sys"] {
            assert!(!is_reserved(false, name), "{name}");
        }
        assert!(!is_reserved(true, "ovs-system") && !types(DummyLevel::Off, true).is_reserved("ovs-dummy"));
    }

    #[test]
    fn system_replaces_the_class_system_only() {
        let types = types(DummyLevel::System, false);
        assert_eq!(types.datapath("system"), Some(DatapathClass::Dummy));
        assert_eq!(types.datapath("netdev"), Some(DatapathClass::Userspace));
        let class = |kind| types.interface(kind, DatapathClass::Userspace);
        assert_eq!(class("system"), Some(InterfaceClass::Dummy("system")));
        assert_eq!(class("internal"), Some(InterfaceClass::Internal));
        assert_eq!(class("afxdp"), Some(InterfaceClass::AfXdp));
        assert_eq!(class("geneve"), Some(InterfaceClass::Tunnel(TunnelType::Geneve)));
        let internal = types.interface("internal", DatapathClass::Dummy);
        assert_eq!(internal, Some(InterfaceClass::Dummy("dummy-internal")));
    }

    #[test]
    fn override_replaces_every_type_but_patch() {
        let types = types(DummyLevel::Override, false);
        for kind in types.datapath_types() {
            assert_eq!(types.datapath(kind), Some(DatapathClass::Dummy), "{kind}");
        }
        for kind in types.iface_types() {
            let expected = match kind {
                "patch" => InterfaceClass::Patch,
                "internal" => InterfaceClass::Dummy("dummy-internal"),
                _ => InterfaceClass::Dummy(kind),
            };
            assert_eq!(types.interface(kind, DatapathClass::Dummy), Some(expected), "{kind}");
        }
        assert_eq!(types.interface("bogus", DatapathClass::Dummy), None);
    }

    #[test]
    fn without_dummies_there_are_none() {
        let types = types(DummyLevel::Off, false);
        assert_eq!(types.datapath("dummy"), None);
        for kind in ["dummy", "dummy-internal", "dummy-pmd", "tap"] {
            assert_eq!(types.interface(kind, DatapathClass::Userspace), None, "{kind}");
        }
    }
}
