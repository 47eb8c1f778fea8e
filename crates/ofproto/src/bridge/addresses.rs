//! The MAC table of a bridge: limits, static addresses, and addresses that are removed or move.

use super::Ofproto;
use crate::revalidate::Change;
use base::{MacAddr, PortNo};
use xlate::mac::{MacEntry, MacTableFull};

impl Ofproto {
    /// Sets the limits of the MAC table.
    pub fn configure_macs(&self, max_entries: usize, aging_secs: u32) {
        if self.macs.write().configure(max_entries, aging_secs) {
            self.changed(Change::Bridge(self.id));
        }
    }

    /// Adds a static address, and returns the entry that it replaces, if that is a different one.
    pub fn add_static_mac(&self, vlan: u16, mac: MacAddr, port: PortNo) -> Result<Option<MacEntry>, MacTableFull> {
        let (replaced, changed) = self.macs.write().add_static(vlan, mac, port, self.now())?;
        for (vlan, mac) in changed {
            self.changed(Change::Mac { bridge: self.id, vlan, mac });
        }
        Ok(replaced)
    }

    /// Removes a static address, and returns true if it existed.
    pub fn remove_static_mac(&self, vlan: u16, mac: MacAddr) -> bool {
        let existed = self.macs.write().remove_static(vlan, mac);
        if existed {
            self.changed(Change::Mac { bridge: self.id, vlan, mac });
        }
        existed
    }

    /// Removes all learned addresses.
    pub fn flush_macs(&self) {
        if self.macs.write().flush() {
            self.changed(Change::Bridge(self.id));
        }
    }

    /// Removes the addresses of a port.
    pub(crate) fn flush_port(&self, port: PortNo) {
        if self.macs.write().flush_port(port) {
            self.changed(Change::Bridge(self.id));
        }
    }

    /// Moves the addresses learned on one port to another one.
    pub(crate) fn move_macs(&self, from: PortNo, to: PortNo) {
        let moved = self.macs.write().move_port(from, to);
        self.macs_changed(moved);
    }

    fn macs_changed(&self, keys: Vec<xlate::mac::MacKey>) {
        keys.into_iter().for_each(|(vlan, mac)| self.changed(Change::Mac { bridge: self.id, vlan, mac }));
    }
}
