//! QoS of a device by the kernel's queueing disciplines, as rows of the tables QoS and Queue ask for it.
//!
//! The discipline is the device's root, with handle 1:0. Queue N of `linux-htb` and `linux-hfsc` is class 1:(N+1) below the
//! class 1:fffe, which has the rate of the port; packets without a queue take that of queue 0.
//!
//! Without a row the device has no discipline of the switch, also none of an earlier run. Disciplines of other handles or
//! kinds stay as they are.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netdev::device::errno_text;
use netdev::qos::{DeviceQos, HtbClass, HtbSettings, QosError, QosReport, QosSpec, QueueReport};
use parking_lot::Mutex;

use crate::host::HostState;
use crate::link::Link;
use crate::system::status;
use crate::tc::{Classes, Flat, Tc};

/// In the order of Open vSwitch's `qos/show-types`.
const TYPES: &[&str] =
    &["linux-netem", "linux-fq_codel", "linux-codel", "linux-hfsc", "linux-noop", "linux-sfq", "linux-htb"];

/// The QoS of a device.
#[derive(Debug)]
pub(crate) struct KernelQos {
    host: Arc<HostState>,
    link: Arc<Link>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last request, with its outcome; `None` before the first.
    requested: Option<Option<QosSpec>>,
    applied: Option<Applied>,
}

/// The current configuration.
#[derive(Debug)]
struct Applied {
    kind: String,
    discipline: Discipline,
    /// When queues were added.
    created: BTreeMap<u32, Instant>,
}

/// A discipline with its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Discipline {
    /// Whatever the administrator has set up.
    Noop,
    Flat(Flat),
    Classes(Classes, HtbSettings),
}

impl KernelQos {
    pub(crate) fn new(host: Arc<HostState>, link: Arc<Link>) -> Self {
        Self { host, link, state: Mutex::default() }
    }

    fn tc(&self) -> io::Result<Tc<'_>> {
        if self.link.is_gone() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        if self.link.location().namespace.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        Ok(Tc { netlink: &self.host.netlink, ifindex: self.link.ifindex() })
    }

    fn discipline(&self, spec: &QosSpec) -> Option<Discipline> {
        let mtu = self.link.last().and_then(|info| info.mtu).unwrap_or(1500);
        let number = |key, default: u32| spec.number(key).and_then(|n| n.try_into().ok()).unwrap_or(default);
        // Zero stands for the default, except where it means something.
        let positive = |key, default: u32| Some(number(key, 0)).filter(|n| *n > 0).unwrap_or(default);
        let speed = || status(&self.host, &self.link).speed;
        Some(match spec.kind.as_str() {
            "linux-noop" => Discipline::Noop,
            "linux-htb" => Discipline::Classes(Classes::Htb, HtbSettings::new(spec, speed(), Some(mtu))),
            "linux-hfsc" => Discipline::Classes(Classes::Hfsc, HtbSettings::of_hfsc(spec, speed())),
            "linux-sfq" => {
                Discipline::Flat(Flat::Sfq { quantum: positive("quantum", mtu), perturb: number("perturb", 10) })
            }
            "linux-codel" => Discipline::Flat(Flat::Codel {
                target: positive("target", 5000),
                limit: positive("limit", 10_240),
                interval: positive("interval", 100_000),
            }),
            "linux-fq_codel" => Discipline::Flat(Flat::FqCodel {
                target: positive("target", 5000),
                limit: positive("limit", 10_240),
                interval: positive("interval", 1_000_000),
                flows: positive("flows", 1024),
                quantum: positive("quantum", 1514),
            }),
            "linux-netem" => Discipline::Flat(Flat::Netem {
                latency_us: number("latency", 0),
                limit: positive("limit", 1000),
                loss_percent: number("loss", 0),
                jitter_us: number("jitter", 0),
            }),
            _ => return None,
        })
    }

    /// Sets up a discipline in place of the one that is there.
    fn apply(&self, spec: &QosSpec, state: &mut State) -> Result<(), QosError> {
        let refused = |problem: String| QosError::Refused { port: self.link.name().to_owned(), problem };
        let Some(discipline) = self.discipline(spec) else {
            let (port, kind) = (self.link.name().to_owned(), spec.kind.clone());
            return Err(QosError::UnknownType { port, kind, port_type: "system" });
        };
        let before = state.applied.take();
        let tc = self.tc().map_err(|error| refused(errno_text(&error)))?;
        let outcome = match (&discipline, before.as_ref().map(|applied| &applied.discipline)) {
            (new, Some(old)) if new == old => Ok(()),
            (Discipline::Noop, _) => Ok(()),
            (Discipline::Flat(flat), _) => tc.install(flat).map_err(|error| of_kind(flat.kind(), &error)),
            (Discipline::Classes(kind, new), Some(Discipline::Classes(of, old))) if kind == of => {
                change(tc, *kind, new, old).map_err(|error| errno_text(&error))
            }
            (Discipline::Classes(kind, new), _) => tc
                .install_classes(*kind)
                .map_err(|error| of_kind(kind.kind(), &error))
                .and_then(|()| fill(tc, *kind, new).map_err(|error| errno_text(&error))),
        };
        if let Err(problem) = outcome {
            // Half of the queues would send the packets of the others elsewhere.
            let _ = tc.remove();
            return Err(refused(problem));
        }
        let mut created = before.map(|applied| applied.created).unwrap_or_default();
        if let Discipline::Classes(_, settings) = &discipline {
            created.retain(|queue, _| settings.classes.contains_key(queue));
            for queue in settings.classes.keys() {
                created.entry(*queue).or_insert_with(Instant::now);
            }
        }
        self.link.set_queues(!matches!(discipline, Discipline::Flat(_)));
        state.applied = Some(Applied { kind: spec.kind.clone(), discipline, created });
        Ok(())
    }

    /// Removes a discipline of the switch.
    fn remove(&self, state: &mut State) -> Result<(), QosError> {
        let was_noop = matches!(&state.applied, Some(Applied { discipline: Discipline::Noop, .. }));
        state.applied = None;
        let outcome = self.tc().and_then(|tc| match tc.root()? {
            Some(root) if root.is_of_switch() && !was_noop => tc.remove(),
            _ => Ok(()),
        });
        match outcome {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP | libc::EPERM)) => {
                let problem = errno_text(&error);
                Err(QosError::Refused { port: self.link.name().to_owned(), problem })
            }
            _ => Ok(()),
        }
    }
}

/// The reason why the kernel does not install a discipline.
fn of_kind(kind: &str, error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::ENOENT) {
        return format!("the kernel does not have the discipline {kind} ({})", errno_text(error));
    }
    format!("{kind}: {}", errno_text(error))
}

/// The class of which all queues are parts.
fn root_class(settings: &HtbSettings) -> HtbClass {
    let burst = settings.classes.values().map(|class| class.burst).max().unwrap_or(0);
    HtbClass { min_rate: settings.max_rate, max_rate: settings.max_rate, burst, priority: 0 }
}

/// Adds the classes of a new discipline.
fn fill(tc: Tc<'_>, kind: Classes, settings: &HtbSettings) -> io::Result<()> {
    tc.set_root_class(kind, &root_class(settings))?;
    settings.classes.iter().try_for_each(|(queue, class)| tc.set_queue(kind, *queue, class))
}

/// Changes the classes that differ.
fn change(tc: Tc<'_>, kind: Classes, new: &HtbSettings, old: &HtbSettings) -> io::Result<()> {
    if root_class(new) != root_class(old) {
        tc.set_root_class(kind, &root_class(new))?;
    }
    for queue in old.classes.keys().filter(|queue| !new.classes.contains_key(queue)) {
        tc.remove_queue(*queue)?;
    }
    for (queue, class) in new.classes.iter().filter(|(queue, class)| old.classes.get(queue) != Some(class)) {
        tc.set_queue(kind, *queue, class)?;
    }
    Ok(())
}

impl DeviceQos for KernelQos {
    fn types(&self) -> &'static [&'static str] {
        TYPES
    }

    fn set(&self, spec: Option<&QosSpec>) -> Result<(), QosError> {
        let spec = spec.filter(|spec| !spec.kind.is_empty());
        let mut state = self.state.lock();
        if state.requested.as_ref().is_some_and(|requested| requested.as_ref() == spec) {
            return Ok(());
        }
        self.link.set_queues(false);
        let outcome = match spec {
            Some(spec) => self.apply(spec, &mut state),
            None => self.remove(&mut state),
        };
        state.requested = outcome.is_ok().then(|| spec.cloned());
        outcome
    }

    fn report(&self) -> Option<QosReport> {
        let state = self.state.lock();
        let applied = state.applied.as_ref()?;
        let kind = applied.kind.clone();
        match &applied.discipline {
            Discipline::Noop => None,
            Discipline::Flat(flat) => Some(QosReport { kind, config: flat_report(flat), ..QosReport::default() }),
            Discipline::Classes(of, settings) => {
                let counters: BTreeMap<u32, _> =
                    self.tc().and_then(Tc::counters).unwrap_or_default().into_iter().collect();
                let queue = |(queue, class): (&u32, &HtbClass)| {
                    let mut config = class.report();
                    if *of == Classes::Hfsc {
                        config.retain(|(key, _)| key.ends_with("rate"));
                    }
                    let age = applied.created.get(queue).map_or(Duration::ZERO, Instant::elapsed);
                    (*queue, QueueReport { config, counters: counters.get(queue).copied(), age })
                };
                let queues = settings.classes.iter().map(queue).collect();
                Some(QosReport { kind, config: settings.report(), queues })
            }
        }
    }
}

/// The settings of a discipline, in the order of Open vSwitch's commands.
fn flat_report(flat: &Flat) -> Vec<(&'static str, u64)> {
    let config: Vec<(&'static str, u32)> = match *flat {
        Flat::Sfq { quantum, perturb } => vec![("quantum", quantum), ("perturb", perturb)],
        Flat::Codel { target, limit, interval } => {
            vec![("limit", limit), ("interval", interval), ("target", target)]
        }
        Flat::FqCodel { target, limit, interval, flows, quantum } => {
            vec![("limit", limit), ("quantum", quantum), ("flows", flows), ("interval", interval), ("target", target)]
        }
        Flat::Netem { latency_us, limit, loss_percent, jitter_us } => {
            vec![("jitter", jitter_us), ("limit", limit), ("loss", loss_percent), ("latency", latency_us)]
        }
    };
    config.into_iter().map(|(key, value)| (key, value.into())).collect()
}
