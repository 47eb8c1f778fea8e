//! Datapaths without bridges, made and deleted by control commands (`dpctl/add-dp`, `dpctl/del-dp`). Like Open vSwitch's,
//! such a datapath forwards by flows that are added by hand, and drops all other packets; its port 0 is an internal device
//! of its own name.

use crate::devices::{Devices, Dp};
use crate::placement::{Attached, Options};
use crate::types::{DatapathClass, InterfaceClass};
use base::DpPort;
use netdev::Netdev;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of a datapath's own device.
const LOCAL: DpPort = DpPort(0);
/// Numbers of ports are below this.
const PORTS_MAX: u32 = 0xffff;

/// Why a datapath, or a port of one, could not be found or made. The texts are those of the system.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatapathError {
    /// No datapath has this type.
    #[error("Address family not supported by protocol")]
    UnknownType,
    /// The datapath of this name has another type, or the request makes no sense.
    #[error("Invalid argument")]
    Invalid,
    /// There is none.
    #[error("No such device")]
    Missing,
    /// There is one already.
    #[error("File exists")]
    Exists,
    /// The number belongs to another port.
    #[error("Device or resource busy")]
    NumberInUse,
    /// No port can have the number.
    #[error("Numerical result out of range")]
    NumberTooLarge,
    /// Another reason of the system.
    #[error("{0}")]
    System(String),
}

/// A step in adding a port, with what it failed for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddError {
    /// The device could not be opened.
    Open(DatapathError),
    /// The datapath did not take it.
    Add(DatapathError),
}

#[derive(Debug)]
struct Standalone {
    ports: BTreeMap<String, Attached>,
    dp: Dp,
}

/// Datapaths without bridges, by name.
#[derive(Debug, Default)]
pub struct StandaloneDatapaths(Mutex<BTreeMap<String, Standalone>>);

impl StandaloneDatapaths {
    /// All of them, by name.
    pub fn all(&self) -> Vec<Dp> {
        self.0.lock().values().map(|standalone| standalone.dp.clone()).collect()
    }

    /// Deletes those of a type.
    pub(crate) fn remove_kind(&self, kind: &str) {
        let mut all = self.0.lock();
        let (removed, kept) = std::mem::take(&mut *all).into_iter().partition(|(_, of)| of.dp.kind == kind);
        *all = kept;
        drop(all);
        let removed: BTreeMap<_, _> = removed;
        removed.into_values().for_each(end);
    }
}

/// Removes a datapath's ports. Returns when its packet threads use none of the devices any more.
fn end(Standalone { ports, dp }: Standalone) {
    drop(ports);
    dp.dpif.synchronize();
}

impl Devices {
    /// The datapath of this type and name, of bridges or made by hand. As in Open vSwitch, names are unique among all types.
    pub fn find_datapath(&self, kind: &str, name: &str) -> Result<Dp, DatapathError> {
        self.types.datapath(kind).ok_or(DatapathError::UnknownType)?;
        let dp = self.all_datapaths().into_iter().find(|dp| dp.name == name).ok_or(DatapathError::Missing)?;
        if dp.kind == kind { Ok(dp) } else { Err(DatapathError::Invalid) }
    }

    /// Makes a datapath with its own device.
    pub fn add_datapath(&self, kind: &str, name: &str) -> Result<Dp, DatapathError> {
        let class = self.types.datapath(kind).ok_or(DatapathError::UnknownType)?;
        match self.find_datapath(kind, name) {
            Ok(_) => return Err(DatapathError::Exists),
            Err(DatapathError::Missing) => {}
            Err(error) => return Err(error),
        }
        if name.is_empty() {
            return Err(DatapathError::Invalid);
        }
        let dp = Dp::open(kind, name, class, &self.clock).map_err(|e| DatapathError::System(e.to_string()))?;
        self.watch(&dp);
        let device = self.open_for_port(&dp, name, "internal", &Options::new())?;
        let own = attach(&dp, device, &Options::new(), Some(LOCAL))?;
        let ports = BTreeMap::from([(name.to_owned(), own)]);
        self.standalone.0.lock().insert(name.to_owned(), Standalone { ports, dp: dp.clone() });
        Ok(dp)
    }

    /// Deletes a datapath. As in Open vSwitch, one that bridges use stays as it is.
    pub fn delete_datapath(&self, dp: &Dp) {
        let removed = self.standalone.0.lock().remove(&dp.name);
        removed.into_iter().for_each(end);
    }

    /// Adds a device to a datapath, under a number if that is asked for. A port that no bridge has is removed from a
    /// datapath of bridges at once, as in Open vSwitch: that is what dropping the returned value does.
    pub fn add_port(
        &self,
        dp: &Dp,
        name: &str,
        kind: &str,
        options: &Options,
        requested: Option<DpPort>,
    ) -> Result<Option<Attached>, AddError> {
        if let Some(there) = dp.placements.find(name) {
            // The device is open. The bridge of a port that was removed by hand takes it up again by itself.
            return match self.shown_kind(kind, dp.class) {
                None => Err(AddError::Open(DatapathError::UnknownType)),
                Some(kind) if there.device.kind() != kind => Err(AddError::Open(DatapathError::Exists)),
                Some(_) if there.port().is_some() => Err(AddError::Add(DatapathError::Exists)),
                Some(_) => Ok(None),
            };
        }
        let device = self.open_for_port(dp, name, kind, options).map_err(AddError::Open)?;
        if let Some(number) = requested {
            check_number(dp, number).map_err(AddError::Add)?;
        }
        let by_name = || (dp.class == DatapathClass::Dummy).then(|| Attached::number_by_name(name)).flatten();
        let attached = attach(dp, device, options, requested.or_else(by_name)).map_err(AddError::Add)?;
        let mut standalone = self.standalone.0.lock();
        match standalone.get_mut(&dp.name) {
            Some(standalone) => {
                standalone.ports.insert(name.to_owned(), attached);
                Ok(None)
            }
            None => Ok(Some(attached)),
        }
    }

    /// Removes a port from a datapath, and waits until packet threads have let go of its device.
    pub fn delete_port(&self, dp: &Dp, number: DpPort) -> Result<(), DatapathError> {
        if number == LOCAL || number == DpPort::NONE {
            return Err(DatapathError::Invalid);
        }
        dp.remove_port(number).map_err(|_| DatapathError::Missing)?;
        if let Some(standalone) = self.standalone.0.lock().get_mut(&dp.name) {
            standalone.ports.retain(|_, attached| attached.port().is_some());
        }
        dp.dpif.synchronize();
        Ok(())
    }

    /// Opens a device for a port.
    fn open_for_port(
        &self,
        dp: &Dp,
        name: &str,
        kind: &str,
        options: &Options,
    ) -> Result<Arc<dyn Netdev>, DatapathError> {
        // A device is a port of one datapath.
        if self.all_datapaths().iter().any(|other| other.placements.find(name).is_some()) {
            return Err(DatapathError::Exists);
        }
        self.open(name, kind, dp.class, options).map_err(|error| DatapathError::System(error.reason()))
    }

    /// The type that a device shows if an interface of type `kind` is opened for it.
    fn shown_kind<'a>(&self, kind: &'a str, class: DatapathClass) -> Option<&'a str> {
        match self.types.interface(kind, class)? {
            InterfaceClass::Dummy(shown) | InterfaceClass::Memory(shown) => Some(shown),
            InterfaceClass::Patch | InterfaceClass::Tunnel(_) => None,
            InterfaceClass::System | InterfaceClass::AfXdp | InterfaceClass::Internal => Some(kind),
        }
    }
}

fn attach(
    dp: &Dp,
    device: Arc<dyn Netdev>,
    options: &Options,
    number: Option<DpPort>,
) -> Result<Attached, DatapathError> {
    Attached::new(dp, device, options, number).map_err(|error| DatapathError::System(error.to_string()))
}

/// Whether a port can get this number: it must be free. The own device of a datapath has [`LOCAL`].
fn check_number(dp: &Dp, number: DpPort) -> Result<(), DatapathError> {
    if number.0 >= PORTS_MAX {
        return Err(DatapathError::NumberTooLarge);
    }
    if number == LOCAL || dp.dpif.ports().iter().any(|port| port.number == number) {
        return Err(DatapathError::NumberInUse);
    }
    Ok(())
}

/// Gives a port of a dummy datapath another number, as `dpif-dummy/change-port-number` does.
pub fn renumber(dp: &Dp, name: &str, number: &dyn Fn() -> Option<DpPort>) -> Result<(), String> {
    let placement = dp.placements.find(name).filter(|placement| placement.port().is_some()).ok_or("unknown port")?;
    let number = number().filter(|number| number.0 > 0 && number.0 < PORTS_MAX).ok_or("bad port number")?;
    if dp.dpif.ports().iter().any(|port| port.number == number) {
        return Err("port number already in use".to_owned());
    }
    dp.renumber_port(&placement, number).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DummyLevel, Types};
    use base::Clock;

    fn devices() -> Devices {
        let types = Types { dummy: DummyLevel::Override, no_system: true, no_system_routes: true };
        Devices::new(types, Clock::real(), Arc::default())
    }

    fn numbers(dp: &Dp) -> Vec<(u32, String)> {
        dp.dpif.ports().iter().map(|port| (port.number.0, port.device.name().to_owned())).collect()
    }

    #[test]
    fn names_are_unique_among_all_types() {
        let devices = devices();
        let dp = devices.add_datapath("dummy", "d").unwrap();
        assert_eq!(dp.full_name(), "dummy@d");
        assert_eq!(devices.add_datapath("dummy", "d").unwrap_err(), DatapathError::Exists);
        assert_eq!(devices.add_datapath("netdev", "d").unwrap_err(), DatapathError::Invalid);
        assert_eq!(devices.add_datapath("nope", "e").unwrap_err(), DatapathError::UnknownType);
        assert_eq!(devices.find_datapath("dummy", "e").unwrap_err(), DatapathError::Missing);
        devices.delete_datapath(&dp);
        assert_eq!(devices.find_datapath("dummy", "d").unwrap_err(), DatapathError::Missing);
        // The device is closed once nobody holds the datapath.
        drop(dp);
        devices.add_datapath("netdev", "d").unwrap();
    }

    #[test]
    fn ports_come_and_go() {
        let devices = devices();
        let dp = devices.add_datapath("dummy", "d").unwrap();
        let add = |name, kind, number: Option<u32>| {
            devices.add_port(&dp, name, kind, &Options::new(), number.map(DpPort)).map(|attached| attached.is_some())
        };
        assert_eq!(add("p5", "dummy", None), Ok(false));
        assert_eq!(add("q", "system", None), Ok(false));
        assert_eq!(add("p5", "dummy", None), Err(AddError::Add(DatapathError::Exists)));
        assert_eq!(add("p5", "system", None), Err(AddError::Open(DatapathError::Exists)));
        assert_eq!(add("p6", "dummy", Some(5)), Err(AddError::Add(DatapathError::NumberInUse)));
        assert_eq!(add("p6", "dummy", Some(0)), Err(AddError::Add(DatapathError::NumberInUse)));
        assert_eq!(add("p6", "dummy", Some(70_000)), Err(AddError::Add(DatapathError::NumberTooLarge)));
        let local = (0, "d".to_owned());
        assert_eq!(numbers(&dp), [local.clone(), (1, "q".to_owned()), (5, "p5".to_owned())]);
        assert_eq!(devices.delete_port(&dp, LOCAL), Err(DatapathError::Invalid));
        assert_eq!(devices.delete_port(&dp, DpPort(7)), Err(DatapathError::Missing));
        assert_eq!(devices.delete_port(&dp, DpPort(1)), Ok(()));
        assert_eq!(add("q", "dummy", Some(9)), Ok(false));
        let to = |name, n: u32| renumber(&dp, name, &|| Some(DpPort(n)));
        assert_eq!(to("q", 5), Err("port number already in use".to_owned()));
        assert_eq!(to("q", 0), Err("bad port number".to_owned()));
        assert_eq!(to("r", 0), Err("unknown port".to_owned()));
        assert_eq!(to("q", 22), Ok(()));
        assert_eq!(numbers(&dp), [local, (5, "p5".to_owned()), (22, "q".to_owned())]);
    }

    #[test]
    fn a_bridge_s_datapath_ends_those_of_its_type() {
        let devices = devices();
        devices.add_datapath("dummy", "d").unwrap();
        devices.add_datapath("netdev", "ovs-netdev").unwrap();
        let dp = devices.datapath("dummy").unwrap();
        let names: Vec<String> = devices.all_datapaths().iter().map(Dp::full_name).collect();
        assert_eq!(names, ["dummy@ovs-dummy", "netdev@ovs-netdev"]);
        // Deleting it does nothing, and a port that no bridge has does not stay.
        devices.delete_datapath(&dp);
        let added = devices.add_port(&dp, "p1", "dummy", &Options::new(), None).unwrap();
        assert_eq!((added.is_some(), numbers(&dp).len()), (true, 1));
        drop(added);
        assert_eq!(numbers(&dp), []);
    }
}
