//! Meters as translations see them (OpenFlow 1.3 section 5.7): the numbers that the datapath has for them.

use crate::numbered::Numbered;
use crate::trace::Kind;
use crate::translate::Xlate;
use crate::verdict::Dependency;
use base::Millis;
use dpif::{DpAction, MeterId};
use openflow::meter::{METER_CONTROLLER, MeterConfig};

/// A meter. It does not change: a modification replaces it by another, of the same one below.
#[derive(Debug)]
pub struct Meter {
    /// What the controller asked for, with its number.
    pub config: MeterConfig,
    /// What the datapath calls it.
    pub below: MeterId,
    /// When it was added.
    pub created: Millis,
}

/// The meters of a bridge.
pub type Meters = Numbered<Meter>;

impl Xlate<'_> {
    /// The `meter` instruction. What the meter drops gets to no action behind it.
    pub(crate) fn meter(&mut self, id: u32) {
        match self.find_meter(id) {
            Some(below) => {
                self.commit();
                self.emit(DpAction::Meter(below));
            }
            None => self.tracer.note(Kind::Warning, || format!("there is no meter {id}")),
        }
    }

    /// The meter of what goes to controllers: the one that the action names, or else the one for all of it.
    pub(crate) fn controller_meter(&mut self, id: Option<u32>) -> Option<MeterId> {
        id.and_then(|id| self.find_meter(id)).or_else(|| self.find_meter(METER_CONTROLLER))
    }

    fn find_meter(&mut self, meter: u32) -> Option<MeterId> {
        let dependency = Dependency::Meter { bridge: self.pos.bridge.id, meter };
        if !self.out.dependencies.contains(&dependency) {
            self.out.dependencies.push(dependency);
        }
        self.view().meters.get(meter).map(|meter| meter.below)
    }
}
