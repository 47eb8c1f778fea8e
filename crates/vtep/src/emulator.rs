//! The loop: after each change of a database, and every second, it compares the present state with the wanted one and
//! makes the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ovsdb_client::schemas::{vswitch, vtep};
use ovsdb_client::{Error, Idl, LockState, Outcome};
use tokio::time::MissedTickBehavior;

use crate::changes::{SwitchChange, VtepChange, of_report, of_switch};
use crate::flow_table::FlowTable;
use crate::hardware_vtep::{self, Unusable};
use crate::model::{Fault, Learned, Problem, Role, Switch};
use crate::open_vswitch;
use crate::options::Options;
use crate::plan::{Plan, plan};

/// Time between requests for learned addresses.
const POLL: Duration = Duration::from_secs(1);
/// A lock of the database Open_vSwitch, by which one emulator at a time changes the switch.
const LOCK: &str = "ovs_vtep";

/// Runs the emulator until it ends.
pub(crate) fn serve(options: Options, log: &Arc<vlog::Log>) -> Result<(), String> {
    let mut started = daemon::start(&options.command_line, options.daemon.clone(), log).map_err(|e| e.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async move {
        let commands = unixctl::Commands::new(cli::version_text(log.program()).trim_end());
        daemon::control::register(&commands, log, started.shutdown(), Vec::new);
        let control = started.bind_control(commands.clone()).map_err(|e| e.to_string())?;
        let control = control.map(|server| tokio::spawn(server.run()));
        let mut emulator = Emulator::new(&options).map_err(|e| e.to_string())?;
        let mut end = tokio::select! {
            begun = emulator.begin() => match begun {
                Ok(()) => None,
                Err(unusable) => {
                    log.write_fatal("vtep", &unusable.to_string());
                    Some(Err(unusable.to_string()))
                }
            },
            end = started.terminated(&commands) => Some(end.map(|_| ()).map_err(|e| e.to_string())),
        };
        if end.is_none() {
            started.ready();
            end = tokio::select! {
                () = emulator.run() => None,
                end = started.terminated(&commands) => Some(end.map(|_| ()).map_err(|e| e.to_string())),
            };
        }
        if let Some(control) = control {
            control.abort();
            // The result of a cancelled task does not matter.
            let _ = control.await;
        }
        end.unwrap_or(Ok(()))
    })
}

/// The emulator of one physical switch.
struct Emulator {
    name: String,
    rundir: PathBuf,
    switch: Idl,
    vtep: Idl,
    /// By bridge.
    tables: BTreeMap<String, FlowTable>,
    learned: Learned,
    /// Logged problems, each of which is logged again after it was gone.
    problems: BTreeSet<Problem>,
}

/// Whether to request learned addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poll {
    Now,
    Later,
}

impl Emulator {
    fn new(options: &Options) -> Result<Self, Error> {
        let tls = tls::Tls::new(options.tls.clone());
        let mut switch = Idl::new(&options.switch_db, &tls, vswitch::DATABASE, open_vswitch::wanted())?;
        switch.set_lock(Some(LOCK));
        Ok(Self {
            name: options.name.clone(),
            rundir: options.rundir.clone(),
            switch,
            vtep: Idl::new(&options.vtep_db, &tls, vtep::DATABASE, hardware_vtep::wanted())?,
            tables: BTreeMap::new(),
            learned: Learned::new(),
            problems: BTreeSet::new(),
        })
    }

    /// Waits for both databases and makes the first changes.
    async fn begin(&mut self) -> Result<(), Unusable> {
        while !self.is_connected() {
            self.changed().await;
        }
        let (name, remotes) = (&self.name, (self.switch.remote(), self.vtep.remote()));
        tracing::info!(target: "vtep", "emulating physical switch {name} ({}, {})", remotes.0, remotes.1);
        self.step(Poll::Now).await
    }

    /// Returns true if both replicas follow their servers, and the server has answered the request for the lock.
    fn is_connected(&self) -> bool {
        self.switch.is_live() && self.vtep.is_live() && self.switch.lock_state() != Some(LockState::Unknown)
    }

    async fn changed(&mut self) {
        // These fail only for programs that do not reconnect.
        tokio::select! {
            _ = self.switch.changed() => {}
            _ = self.vtep.changed() => {}
        }
    }

    /// Serves for ever.
    async fn run(&mut self) {
        let mut tick = tokio::time::interval(POLL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let poll = tokio::select! {
                () = self.changed() => Poll::Later,
                _ = tick.tick() => Poll::Now,
            };
            let problem = self.step(poll).await.err().map(|unusable| Problem::unreported(unusable.to_string()));
            if let Some(problem) = problem {
                self.log_problems(BTreeSet::from([problem]));
            }
        }
    }

    /// Compares the present state with the wanted one, and makes the changes.
    async fn step(&mut self, poll: Poll) -> Result<(), Unusable> {
        // The replicas may be outdated, and without the lock another emulator is at work.
        if !self.switch.is_live() || !self.vtep.is_live() {
            return Ok(());
        }
        if !self.switch.has_lock() {
            let text = "another ovs-vtep is running on this switch; waiting until it ends";
            self.log_problems(BTreeSet::from([Problem::unreported(text.to_owned())]));
            return Ok(());
        }
        let contents = hardware_vtep::read(self.vtep.replica(), &self.name)?;
        let switch = open_vswitch::read(self.switch.replica(), &self.name);
        if !switch.bridges.contains_key(&self.name) {
            return Err(Unusable::NoBridge(self.name.clone()));
        }
        let mut problems = contents.problems;
        let plan_now = plan(&contents.vtep, &switch, &self.learned);
        problems.extend(plan_now.problems.iter().cloned());
        self.change_switch(&of_switch(&switch.bridges, &plan_now.bridges)).await;
        self.change_flows(&plan_now, &switch, poll, &mut problems).await;
        let mut plan_now = plan(&contents.vtep, &switch, &self.learned);
        plan_now.report.add_faults(&problems);
        self.change_vtep(contents.vtep.tunnel_ip, &of_report(&contents.report, &plan_now.report)).await;
        self.log_problems(problems);
        Ok(())
    }

    async fn change_switch(&mut self, changes: &[SwitchChange]) {
        if changes.is_empty() {
            return;
        }
        for change in changes {
            tracing::info!(target: "vtep", "{change}");
        }
        let mut txn = self.switch.transaction();
        txn.comment("ovs-vtep");
        changes.iter().for_each(|change| open_vswitch::write(&mut txn, change));
        report(vswitch::DATABASE, &txn.commit().await);
    }

    async fn change_vtep(&mut self, tunnel_ip: Ipv4Addr, changes: &[VtepChange]) {
        if changes.is_empty() {
            return;
        }
        for change in changes {
            match change {
                VtepChange::SetCounters(..) | VtepChange::SetTunnel(..) => tracing::debug!(target: "vtep", "{change}"),
                _ => tracing::info!(target: "vtep", "{change}"),
            }
        }
        let mut txn = self.vtep.transaction();
        hardware_vtep::write(&mut txn, &self.name, tunnel_ip, changes);
        report(vtep::DATABASE, &txn.commit().await);
    }

    /// Brings the flows of bridges that exist in step, and requests learned addresses.
    async fn change_flows(&mut self, plan: &Plan, switch: &Switch, poll: Poll, problems: &mut BTreeSet<Problem>) {
        self.tables.retain(|bridge, _| plan.flows.contains_key(bridge));
        self.learned.retain(|bridge, _| plan.flows.contains_key(bridge));
        for (bridge, wanted) in &plan.flows {
            if !switch.bridges.contains_key(bridge) {
                continue;
            }
            let socket = || FlowTable::new(self.rundir.join(format!("{bridge}.mgmt")));
            let table = self.tables.entry(bridge.clone()).or_insert_with(socket);
            let mut outcome = table.update(wanted).await;
            if poll == Poll::Now && outcome.is_ok() {
                let ports = plan.bridges.get(bridge).filter(|bridge| matches!(bridge.role, Role::Logical(_)));
                let ports = ports.into_iter().flat_map(|bridge| &bridge.ports);
                let local: BTreeSet<u16> = ports
                    .filter(|(_, port)| port.kind == "patch")
                    .filter_map(|(name, _)| switch.ofport(name))
                    .collect();
                match table.learned(|port| local.contains(&port)).await {
                    Ok(learned) => drop(self.learned.insert(bridge.clone(), learned)),
                    Err(error) => outcome = Err(error),
                }
            }
            match outcome {
                Err(error) if table.is_overdue(&error) => {
                    let fault = if error.is_full() { Fault::MAC_TABLE } else { Fault::SWITCH };
                    problems.insert(Problem { text: format!("{}: {error}", table.socket().display()), fault });
                }
                _ => {}
            }
        }
    }

    /// Logs the problems that are new.
    fn log_problems(&mut self, problems: BTreeSet<Problem>) {
        for problem in problems.difference(&self.problems) {
            tracing::warn!(target: "vtep", "{problem}");
        }
        self.problems = problems;
    }
}

/// Logs why changes were not made: the next change of the database, or the next second, repeats them.
fn report(database: &str, outcome: &Result<Outcome, Error>) {
    match outcome {
        Ok(Outcome::Committed(_) | Outcome::Unchanged) => {}
        Ok(Outcome::TryAgain | Outcome::NotLocked) => tracing::debug!(target: "vtep", "{database}: trying again"),
        Err(error) => tracing::warn!(target: "vtep", "{database}: {error}"),
    }
}
