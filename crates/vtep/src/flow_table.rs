//! The flows of one bridge, kept in step with the wanted ones.
//!
//! When the connection is new, the table reads all flows and deletes the unwanted ones, whoever made them. From then on
//! it knows its flows and sends changes only: flows that another program adds later stay.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{MacAddr, PortNo};
use flow::{Field, Match};
use openflow::flow_msg::{FlowStats, FlowStatsRequest};
use openflow::multipart::{StatsReply, StatsRequest};
use openflow::{Action, FlowMod, FlowModCommand, OfpError};
use tokio::time::Instant;

use crate::changes::{FlowChange, of_flows};
use crate::connection::{Connection, FlowError};
use crate::flow::{
    DESTINATIONS, FlowId, Flows, LEARNED_COOKIE, LEARNED_PRIORITY, Matching, REMOTE_PRIORITY, Treatment,
};

/// Time for which a bridge may refuse connections before that is an error: it is being added, or the switch restarts.
const START_MAX: Duration = Duration::from_secs(5);

/// The flows of one bridge.
#[derive(Debug)]
pub(crate) struct FlowTable {
    socket: PathBuf,
    connection: Option<Connection>,
    /// The flows that this program has added, or found.
    installed: Flows,
    /// When the connection was lost, or the bridge was new.
    unconnected_since: Instant,
}

impl FlowTable {
    /// The flows of the bridge with this management socket.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, connection: None, installed: Flows::new(), unconnected_since: Instant::now() }
    }

    /// The management socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns true if an error is to be reported: it is none of the connection, or the bridge has refused connections for
    /// longer than a start takes.
    pub(crate) fn is_overdue(&self, error: &FlowError) -> bool {
        !matches!(error, FlowError::Io(_) | FlowError::Closed) || self.unconnected_since.elapsed() > START_MAX
    }

    /// Makes the flows the wanted ones. After an error the next call begins with a new connection.
    pub(crate) async fn update(&mut self, wanted: &Flows) -> Result<(), FlowError> {
        let outcome = self.try_update(wanted).await;
        self.close_after_error(outcome)
    }

    fn close_after_error<T>(&mut self, outcome: Result<T, FlowError>) -> Result<T, FlowError> {
        if outcome.is_err() && self.connection.take().is_some() {
            self.unconnected_since = Instant::now();
        }
        outcome
    }

    async fn try_update(&mut self, wanted: &Flows) -> Result<(), FlowError> {
        if self.connection.is_none() {
            let mut connection = Connection::open(&self.socket).await?;
            let present = statistics(&mut connection, FlowStatsRequest::default()).await?;
            let (installed, unwanted) = sort(&present, wanted);
            connection.change(unwanted).await?;
            (self.installed, self.connection) = (installed, Some(connection));
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let mut mods = Vec::new();
        for change in of_flows(&self.installed, wanted) {
            match change {
                FlowChange::Add(id, treatment) => {
                    mods.extend(forget(id));
                    mods.push(id.add(&treatment));
                }
                FlowChange::Delete(id) => mods.push(id.delete()),
            }
        }
        connection.change(mods).await?;
        self.installed.clone_from(wanted);
        Ok(())
    }

    /// Requests the learned addresses with their ports, and deletes those that `is_local` does not accept. Without a
    /// connection there are none.
    pub(crate) async fn learned(
        &mut self,
        is_local: impl Fn(u16) -> bool,
    ) -> Result<BTreeMap<MacAddr, u16>, FlowError> {
        let outcome = self.try_learned(is_local).await;
        self.close_after_error(outcome)
    }

    async fn try_learned(&mut self, is_local: impl Fn(u16) -> bool) -> Result<BTreeMap<MacAddr, u16>, FlowError> {
        let Some(connection) = &mut self.connection else { return Ok(BTreeMap::new()) };
        let request = FlowStatsRequest {
            table_id: Some(DESTINATIONS),
            cookie: LEARNED_COOKIE,
            cookie_mask: u64::MAX,
            ..FlowStatsRequest::default()
        };
        let present = statistics(connection, request).await?;
        let (local, foreign): (BTreeMap<_, _>, BTreeMap<_, _>) =
            present.iter().filter_map(learned).partition(|(_, port)| is_local(*port));
        connection.change(foreign.keys().map(|mac| delete_learned(*mac))).await?;
        Ok(local)
    }
}

async fn statistics(connection: &mut Connection, request: FlowStatsRequest) -> Result<Vec<FlowStats>, FlowError> {
    match connection.statistics(StatsRequest::NxFlow(request)).await? {
        StatsReply::NxFlow(flows) => Ok(flows),
        _ => Err(OfpError::BrcBadType.into()),
    }
}

/// The wanted ones among present flows, and flow mods that delete all others but learned flows.
fn sort(present: &[FlowStats], wanted: &Flows) -> (Flows, Vec<FlowMod>) {
    let known: HashMap<(u8, u16, Match), (&FlowId, &Treatment)> =
        wanted.iter().map(|flow| ((flow.0.table, flow.0.priority, flow.0.matching.to_match()), flow)).collect();
    let mut installed = Flows::new();
    let mut unwanted = Vec::new();
    for flow in present {
        if learned(flow).is_some() {
            continue;
        }
        let same = known.get(&(flow.table_id, flow.priority, flow.matching.clone()));
        let same = same.filter(|(_, treatment)| {
            treatment.to_actions() == flow.actions && (flow.idle_timeout, flow.hard_timeout) == (0, 0)
        });
        match same {
            Some((id, treatment)) => {
                installed.insert(**id, (*treatment).clone());
            }
            None => unwanted.push(FlowMod {
                table_id: Some(flow.table_id),
                priority: flow.priority,
                matching: flow.matching.clone(),
                ..FlowMod::new(FlowModCommand::DeleteStrict)
            }),
        }
    }
    (installed, unwanted)
}

/// The address and the port of a learned flow; `None` for other flows.
fn learned(flow: &FlowStats) -> Option<(MacAddr, u16)> {
    let [Action::Output { port: PortNo(port), .. }] = flow.actions.as_slice() else { return None };
    let (mac, _) = flow.matching.get(Field::EthDst);
    let mac = MacAddr::from_u64(mac as u64);
    let is_learned = (flow.cookie, flow.table_id, flow.priority) == (LEARNED_COOKIE, DESTINATIONS, LEARNED_PRIORITY)
        && flow.idle_timeout != 0
        && flow.matching == Matching::Destination(mac).to_match();
    Some((mac, u16::try_from(*port).ok().filter(|_| is_learned)?))
}

/// Before the flow of an address that the controller reports: deletes the learned flow of the address, which has moved
/// there. The next frame from it here would make it a learned one again.
fn forget(id: FlowId) -> Option<FlowMod> {
    match id.matching {
        Matching::Destination(mac) if id.priority == REMOTE_PRIORITY => Some(delete_learned(mac)),
        _ => None,
    }
}

fn delete_learned(mac: MacAddr) -> FlowMod {
    FlowMod { cookie: LEARNED_COOKIE, cookie_mask: u64::MAX, ..FlowId::learned(mac).delete() }
}
