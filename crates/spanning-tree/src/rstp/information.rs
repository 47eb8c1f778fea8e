//! The Port Information machine (17.27): takes the information of BPDUs, and lets it expire.

use super::Rstp;
use super::port::{Information, Origin, Port};
use crate::bpdu::{Bpdu, Config, Flags};
use crate::id::{SECOND, Times, to_ms};
use crate::settings::Version;
use crate::status::Role;
use base::Millis;

/// The classification of a message (17.19.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Received {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRootAlternate,
    Other,
}

/// A message: the role of its sender and its contents. A configuration BPDU is from a designated port, as is an RST BPDU
/// of unknown role (9.3.4).
#[derive(Clone, Copy, Debug)]
struct Message {
    role: Role,
    config: Config,
    is_rapid: bool,
}

impl Rstp {
    /// Makes one transition of the machine of a port. Returns true if it did.
    pub(super) fn inform(&mut self, index: usize, now: Millis) -> bool {
        let version = self.version;
        let port = &mut self.ports[index];
        if !port.enabled && port.origin != Origin::Disabled {
            port.disable_information();
            return true;
        }
        match port.information {
            Information::Disabled if port.enabled => {
                port.age();
                true
            }
            Information::Disabled => port.message.take().is_some(),
            Information::Aged | Information::Current if port.selected && port.update_info => {
                port.update();
                true
            }
            Information::Current
                if port.origin == Origin::Received
                    && !port.received_info.is_running()
                    && !port.update_info
                    && port.message.is_none() =>
            {
                port.age();
                true
            }
            Information::Current if !port.update_info => match port.message.take() {
                Some(bpdu) => {
                    port.take_message(&bpdu, version, now);
                    true
                }
                None => false,
            },
            _ => false,
        }
    }
}

impl Port {
    /// DISABLED.
    fn disable_information(&mut self) {
        self.information = Information::Disabled;
        self.message = None;
        (self.proposing, self.proposed, self.agree, self.agreed) = (false, false, false, false);
        self.received_info.stop();
        self.origin = Origin::Disabled;
        self.request_selection();
    }

    /// AGED.
    fn age(&mut self) {
        self.information = Information::Aged;
        self.origin = Origin::Aged;
        self.request_selection();
    }

    fn request_selection(&mut self) {
        self.reselect = true;
        self.selected = false;
    }

    /// UPDATE, where betterorsameInfo(Mine) is that of 17.21.1.
    fn update(&mut self) {
        self.information = Information::Current;
        (self.proposing, self.proposed) = (false, false);
        let is_better_or_same = self.origin == Origin::Mine && self.designated_vector <= self.port_vector;
        self.agreed &= is_better_or_same;
        self.synced &= self.agreed;
        self.port_vector = self.designated_vector;
        self.port_times = self.designated_times;
        self.update_info = false;
        self.origin = Origin::Mine;
        self.new_info = true;
    }

    /// RECEIVE and the states behind it.
    fn take_message(&mut self, bpdu: &Bpdu, version: Version, now: Millis) {
        let (config, is_rapid) = match bpdu {
            Bpdu::TopologyChange => {
                self.received_tcn = true;
                return;
            }
            Bpdu::Config(config) => (*config, false),
            Bpdu::Rapid(config) => (*config, config.flags.role() != Role::Disabled),
        };
        let role = if is_rapid { config.flags.role() } else { Role::Designated };
        let message = Message { role, config, is_rapid };
        match self.classify(&message) {
            Received::SuperiorDesignated => {
                (self.agreed, self.proposing) = (false, false);
                self.record_proposal(&message);
                self.set_tc_flags(&message);
                let is_better_or_same = self.origin == Origin::Received && message.config.vector <= self.port_vector;
                self.agree &= is_better_or_same;
                self.port_vector = message.config.vector;
                self.port_times = message.times();
                self.update_received_info(now);
                self.origin = Origin::Received;
                self.request_selection();
            }
            Received::RepeatedDesignated => {
                self.record_proposal(&message);
                self.set_tc_flags(&message);
                self.update_received_info(now);
            }
            Received::InferiorDesignated => {
                if message.has(Flags::LEARNING) {
                    self.disputed = true;
                    self.agreed = false;
                }
            }
            Received::InferiorRootAlternate => {
                // recordAgreement (17.21.9)
                let agrees = version == Version::Rapid && self.point_to_point && message.has(Flags::AGREEMENT);
                self.agreed = agrees;
                self.proposing &= !agrees;
                self.set_tc_flags(&message);
            }
            Received::Other => {}
        }
    }

    /// rcvInfo (17.21.8). Information is superior if it is better, or from the designated port of the LAN (17.6).
    fn classify(&self, message: &Message) -> Received {
        let (heard, known) = (&message.config.vector, &self.port_vector);
        let is_same_sender =
            heard.bridge.address() == known.bridge.address() && heard.port.0 & 0xfff == known.port.0 & 0xfff;
        let is_same = heard == known && message.times() == self.port_times;
        match message.role {
            Role::Designated if is_same && self.origin == Origin::Received => Received::RepeatedDesignated,
            Role::Designated if is_same => Received::Other,
            Role::Designated if heard <= known || is_same_sender => Received::SuperiorDesignated,
            Role::Designated => Received::InferiorDesignated,
            Role::Root | Role::Alternate | Role::Backup if heard >= known => Received::InferiorRootAlternate,
            _ => Received::Other,
        }
    }

    /// recordProposal (17.21.11).
    fn record_proposal(&mut self, message: &Message) {
        self.proposed |= message.has(Flags::PROPOSAL);
    }

    /// setTcFlags (17.21.17), for BPDUs other than notifications.
    fn set_tc_flags(&mut self, message: &Message) {
        self.received_tc |= message.config.flags.contains(Flags::TOPOLOGY_CHANGE);
        self.received_tc_ack |= message.config.flags.contains(Flags::ACKNOWLEDGMENT);
    }

    /// updtRcvdInfoWhile (17.21.23): information that is too old expires at once.
    fn update_received_info(&mut self, now: Millis) {
        let Times { message_age, max_age, hello_time, .. } = self.port_times;
        match next_message_age(message_age) {
            Some(age) if age <= max_age => self.received_info.start(3 * to_ms(hello_time), now),
            _ => self.received_info.stop(),
        }
    }
}

impl Message {
    /// Returns true if it is an RST BPDU with this flag.
    fn has(&self, flag: Flags) -> bool {
        self.is_rapid && self.config.flags.contains(flag)
    }

    /// recordTimes (17.21.12): a hello time of less than a second is taken as a second.
    fn times(&self) -> Times {
        let times = self.config.times;
        Times { hello_time: times.hello_time.max(SECOND), ..times }
    }
}

/// The age of information that the bridge passes on: one second more, in whole seconds. `None` if it is too great.
pub(super) fn next_message_age(age: u16) -> Option<u16> {
    let seconds = age.checked_add(SECOND / 2)? / SECOND;
    seconds.checked_add(1)?.checked_mul(SECOND)
}
