//! Controller status: of all controllers on request, and of one whose state changed, to controllers that
//! asked for that (OpenFlow 1.5 sections 7.3.5.20 and 7.4.7).

use super::peer::Peer;
use super::remote::{PeerKind, Remote};
use crate::bridge::Ofproto;
use openflow::controller_status::{ControllerReason, ControllerStatus};
use openflow::message::Message;
use openflow::role::Role;

impl Ofproto {
    /// Returns the status of all controllers, including configured ones that are not connected.
    pub(super) fn controller_statuses(&self) -> Vec<ControllerStatus> {
        let peers = self.connections().all();
        let mut all = Vec::new();
        for remote in self.connections().remotes().iter().filter(|remote| remote.kind == PeerKind::Controller) {
            let before = all.len();
            let connected = peers.iter().filter(|p| std::ptr::eq(&raw const *p.remote, &raw const **remote));
            all.extend(
                connected.filter(|p| p.version().is_some()).map(|p| of_peer(p, ControllerReason::Request, true)),
            );
            if all.len() == before {
                all.push(of_remote(remote, ControllerReason::Request));
            }
        }
        all
    }

    /// Sends the status of a controller that is or was connected.
    pub(super) fn notify_of_peer(&self, peer: &Peer, reason: ControllerReason, is_up: bool) {
        if peer.remote.kind == PeerKind::Controller && peer.version().is_some() {
            self.notify_of_controller(of_peer(peer, reason, is_up));
        }
    }

    /// Sends the status of a controller that was added to the configuration or removed from it.
    pub(super) fn notify_of_remote(&self, remote: &Remote, reason: ControllerReason) {
        if remote.kind == PeerKind::Controller {
            self.notify_of_controller(of_remote(remote, reason));
        }
    }

    fn notify_of_controller(&self, status: ControllerStatus) {
        let reason = status.reason as u32;
        let message = Message::ControllerStatus(Box::new(status));
        self.connections().for_each(|peer| {
            if peer.wants(|a| a.controller_status, reason) {
                peer.notify(&message);
            }
        });
    }
}

fn of_peer(peer: &Peer, reason: ControllerReason, is_up: bool) -> ControllerStatus {
    let (short_id, role) = {
        let state = peer.state.lock();
        (state.controller_id, state.role)
    };
    ControllerStatus { short_id, role, reason, is_up, uri: Some(peer.remote.target.clone().into_bytes()) }
}

fn of_remote(remote: &Remote, reason: ControllerReason) -> ControllerStatus {
    let uri = Some(remote.target.clone().into_bytes());
    ControllerStatus { short_id: 0, role: Role::Equal, reason, is_up: false, uri }
}
