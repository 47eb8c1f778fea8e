//! The machine of a protocol with its settings, as the switch hosts it.
//!
//! Invariants: a protocol is enabled on exactly the ports of its current settings; a machine has its settings before its
//! first frame of a new port, and the overlay admits states of a port before the machine decides about it.

use crate::switch::Switch;
use base::{BridgePort, Millis};
use parking_lot::{Mutex, MutexGuard};
use protocols::{Accepts, Engine, Machine, Protocol};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// A machine that takes settings.
pub(crate) trait Configurable: Machine + Default + 'static {
    /// The number under which the engine runs it.
    const PROTOCOL: Protocol;
    /// Its settings; the default has no ports.
    type Settings: Clone + PartialEq + Default + Debug + Send;

    /// Makes these settings the current ones.
    fn configure(&mut self, settings: Self::Settings, now: Millis);

    /// The ports of the settings, each with the frames that are punted to the machine.
    fn ports(settings: &Self::Settings) -> BTreeMap<BridgePort, Accepts>;

    /// Removes a port from the settings. Returns true if it was there.
    fn remove(settings: &mut Self::Settings, port: BridgePort) -> bool;
}

/// A machine and its settings.
#[derive(Debug)]
pub(crate) struct Hosted<M: Configurable> {
    machine: Arc<Mutex<M>>,
    settings: Mutex<M::Settings>,
}

impl<M: Configurable> Hosted<M> {
    /// Registers a machine without ports.
    pub(crate) fn new(engine: &Engine) -> Self {
        let machine = Arc::new(Mutex::new(M::default()));
        let shared: Arc<Mutex<M>> = Arc::clone(&machine);
        engine.register(M::PROTOCOL, shared);
        Self { machine, settings: Mutex::default() }
    }

    /// The machine, locked. After a change, [`Engine::poll`] carries out its effects.
    pub(crate) fn lock(&self) -> MutexGuard<'_, M> {
        self.machine.lock()
    }

    /// Makes these settings the current ones, if they differ.
    pub(crate) fn configure(&self, switch: &Switch, settings: M::Settings) {
        let mut current = self.settings.lock();
        if *current == settings {
            return;
        }
        let ports = M::ports(&settings);
        // Ports that are gone remain until their last frames were sent.
        let mut both = M::ports(&current);
        both.extend(ports.iter().map(|(port, accepts)| (*port, *accepts)));
        current.clone_from(&settings);
        self.machine.lock().configure(settings, switch.clock().now());
        switch.enable_protocol(M::PROTOCOL, &both);
        switch.protocols.engine.poll(M::PROTOCOL);
        switch.enable_protocol(M::PROTOCOL, &ports);
    }
}

/// A hosted machine of any protocol.
pub(crate) trait Host {
    /// Ends the protocol on a port: its last frames leave before this returns. The overlay keeps the port until the next
    /// configuration.
    fn end(&self, switch: &Switch, port: BridgePort);
}

impl<M: Configurable> Host for Hosted<M> {
    fn end(&self, switch: &Switch, port: BridgePort) {
        let mut current = self.settings.lock();
        if M::remove(&mut current, port) {
            self.machine.lock().configure(current.clone(), switch.clock().now());
            switch.protocols.engine.poll(M::PROTOCOL);
        }
    }
}
