//! Devices that are ports of a datapath. The bridges attach them, and so do control commands (`dpctl/add-if`); a command
//! can also remove a bridge's port or give it another number, which the bridge then follows.

use crate::devices::Dp;
use base::DpPort;
use dpif::{Dpif, DpifError};
use netdev::qos::{Policing, QosSpec};
use netdev::{Netdev, NetdevError};
use ofproto::Switch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The options of a device, as Interface:options has them.
pub type Options = BTreeMap<String, String>;

/// A device and its port. All holders see the same port.
#[derive(Debug)]
pub struct Placement {
    /// The device.
    pub device: Arc<dyn Netdev>,
    /// Its port; `None` after it was removed.
    port: Mutex<Option<DpPort>>,
    options: Mutex<Options>,
}

impl Placement {
    /// The number of its port; `None` if the port was removed.
    pub fn port(&self) -> Option<DpPort> {
        *self.port.lock()
    }

    /// The options of the device.
    pub fn options(&self) -> Options {
        self.options.lock().clone()
    }

    /// Replaces the options of the device.
    pub fn set_options(&self, options: &Options) -> Result<(), NetdevError> {
        let mut current = self.options.lock();
        self.device.set_options(options)?;
        current.clone_from(options);
        Ok(())
    }
}

/// The devices attached to a datapath, by name.
#[derive(Debug, Default)]
pub struct Placements(Mutex<BTreeMap<String, Arc<Placement>>>);

impl Placements {
    /// The device of this name, whose port may have been removed.
    pub fn find(&self, name: &str) -> Option<Arc<Placement>> {
        self.0.lock().get(name).cloned()
    }

    /// The device with this port.
    pub fn at(&self, port: DpPort) -> Option<Arc<Placement>> {
        self.0.lock().values().find(|placement| placement.port() == Some(port)).cloned()
    }
}

impl Dp {
    /// Removes a port by hand. Its device stays open as long as it is attached.
    pub fn remove_port(&self, number: DpPort) -> Result<(), DpifError> {
        let placement = self.placements.at(number).ok_or(DpifError::NoPort(number))?;
        let mut port = placement.port.lock();
        self.switch.end_protocols(number);
        self.dpif.port_del(number)?;
        *port = None;
        Ok(())
    }

    /// Gives a device's port another number, which must be free. Waits for packet threads.
    pub fn renumber_port(&self, placement: &Placement, number: DpPort) -> Result<(), DpifError> {
        let mut port = placement.port.lock();
        let Some(old) = *port else { return Err(DpifError::NoPort(number)) };
        self.switch.end_protocols(old);
        self.dpif.port_del(old)?;
        *port = None;
        // Its queues are opened again.
        self.dpif.synchronize();
        *port = Some(self.dpif.port_add(Arc::clone(&placement.device), Some(number))?);
        Ok(())
    }
}

/// A device that is a port of a datapath. When this value is dropped, protocols send their last frames out of the device,
/// and it is removed. Packet threads may use it a little longer: [`crate::devices::Devices::synchronize`] waits for them,
/// as is necessary before the device or its name is used again.
#[derive(Debug)]
pub struct Attached {
    /// The device and its port.
    pub placement: Arc<Placement>,
    placements: Arc<Placements>,
    dpif: Arc<dyn Dpif>,
    switch: Arc<Switch>,
}

impl Attached {
    /// The number that a device gets on a dummy datapath if it is free, so that tests can tell: the first one in its name,
    /// past a hundred for `br0` and the like.
    pub fn number_by_name(name: &str) -> Option<DpPort> {
        let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
        let base = if name.starts_with("br") { 100 } else { 0 };
        digits.parse::<u32>().ok()?.checked_add(base).filter(|n| *n > 0).map(DpPort)
    }

    /// Adds `device`, opened with `options`, to `dp`, under number `requested` if that is free.
    pub fn new(
        dp: &Dp,
        device: Arc<dyn Netdev>,
        options: &Options,
        requested: Option<DpPort>,
    ) -> Result<Self, DpifError> {
        let port = dp.dpif.port_add(Arc::clone(&device), requested)?;
        let placement =
            Arc::new(Placement { device, port: Mutex::new(Some(port)), options: Mutex::new(options.clone()) });
        dp.placements.0.lock().insert(placement.device.name().to_owned(), Arc::clone(&placement));
        let (switch, placed) = (Arc::downgrade(&dp.switch), Arc::downgrade(&placement));
        placement.device.changes().subscribe_to_reports(Arc::new(move || {
            let (Some(switch), Some(placement)) = (switch.upgrade(), placed.upgrade()) else { return };
            if let Some(port) = placement.port() {
                switch.member_link_changed(port, placement.device.has_carrier());
            }
        }));
        Ok(Self {
            placement,
            placements: Arc::clone(&dp.placements),
            dpif: Arc::clone(&dp.dpif),
            switch: Arc::clone(&dp.switch),
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Netdev> {
        &self.placement.device
    }

    /// The number of its port; `None` if the port was removed by hand.
    pub fn port(&self) -> Option<DpPort> {
        self.placement.port()
    }

    /// Sets the core that polls each receive queue, by queue, and adopts the number of queues that the device has.
    pub fn set_queues(&self, affinity: &BTreeMap<usize, usize>) -> Result<(), DpifError> {
        match self.port() {
            Some(port) => self.dpif.port_set_queues(port, affinity),
            None => Ok(()),
        }
    }

    /// Sets up QoS by the kernel if the device passes its queues, or else in userspace; removes it with `None`.
    pub fn set_qos(&self, spec: Option<&QosSpec>) -> Result<(), DpifError> {
        match (self.device().kernel_qos(), self.port()) {
            (Some(kernel), _) => Ok(kernel.set(spec)?),
            (None, Some(port)) => self.dpif.port_set_qos(port, spec),
            (None, None) => Ok(()),
        }
    }

    /// Sets the ingress policing.
    pub fn set_policing(&self, policing: &Policing) -> Result<(), DpifError> {
        self.port().map_or(Ok(()), |port| self.dpif.port_set_policing(port, policing))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut placements = self.placements.0.lock();
        let name = self.placement.device.name();
        // Another device may have the name by now.
        if placements.get(name).is_some_and(|other| Arc::ptr_eq(other, &self.placement)) {
            placements.remove(name);
        }
        drop(placements);
        if let Some(port) = self.placement.port.lock().take() {
            self.switch.end_protocols(port);
            // Fails only if the port is gone already.
            let _ = self.dpif.port_del(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dummy_ports_are_numbered_by_name() {
        let number = |name| Attached::number_by_name(name).map(|n| n.0);
        assert_eq!((number("p7"), number("br0"), number("br12")), (Some(7), Some(100), Some(112)));
        assert_eq!((number("p12x3"), number("brx5")), (Some(12), Some(105)));
        assert_eq!((number("p"), number("p0"), number("p99999999999")), (None, None, None));
    }
}
