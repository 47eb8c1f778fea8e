//! The command wait: until a database appears on the server, is connected, or disappears. It waits for the server, too.

use std::sync::Arc;
use std::time::Duration;

use ovsdb::jsonrpc::Message;
use ovsdb_client::schemas::server::{self, Database, database};
use ovsdb_client::{Client, Error, Order, Replica, Wanted, columns};
use serde_json::{Value, json};
use tls::Tls;
use tracing::info;

use super::{Done, text};

/// The first pause between attempts to connect, in seconds; pauses double.
const BACKOFF_MIN_S: u64 = 1;
/// The longest pause, in seconds.
const BACKOFF_MAX_S: u64 = 8;

/// Checks the last argument.
pub(super) fn check_state(state: &str) -> Done {
    if ["added", "connected", "removed"].contains(&state) { Ok(()) } else { Err(format!("{state}: unknown state")) }
}

/// Waits until database `name` of the servers `remote` is in `state`. A connection that cannot be made, or that ends, is made
/// again.
pub(super) async fn wait(remote: &str, tls: &Arc<Tls>, name: &str, state: &str) -> Done {
    // With several servers the attempts at each are logged where they are made.
    let log = |event: &str| {
        if !remote.contains(',') {
            info!(target: "reconnect", "{remote}: {event}");
        }
    };
    let mut backoff_s = 0;
    loop {
        log("connecting...");
        match Client::connect_to(remote, tls, Order::Shuffled, async |_: &mut Client| true).await {
            Ok(client) => {
                log("connected");
                backoff_s = 0;
                match watch(client, name, state).await {
                    Ok(()) => return Ok(()),
                    Err(Error::Connection { .. }) => log("connection closed by peer"),
                    Err(error) => return Err(text(error)),
                }
            }
            Err(error) => log(&format!("connection attempt failed ({})", reason(error))),
        }
        backoff_s = (backoff_s * 2).clamp(BACKOFF_MIN_S, BACKOFF_MAX_S);
        if backoff_s > BACKOFF_MIN_S {
            log(&format!("waiting {backoff_s} seconds before reconnect"));
        }
        tokio::time::sleep(Duration::from_secs(backoff_s)).await;
    }
}

/// Why a connection could not be made, without the server's name.
fn reason(error: Error) -> String {
    match error {
        Error::Connection { problem, .. } => problem,
        Error::Remote { .. } => "Address family not supported by protocol".to_owned(),
        other => other.to_string(),
    }
}

async fn watch(mut client: Client, name: &str, state: &str) -> Result<(), Error> {
    // The server keeps the connection when it removes a database. Old servers do not know the request.
    let _ = client.call("set_db_change_aware", vec![true.into()]).await?;
    let schema = client.schema(server::DATABASE).await?;
    let mut replica = Replica::new(&Wanted::from(&columns! { database { NAME, CONNECTED } }));
    replica.bind(&schema);
    let params = vec![server::DATABASE.into(), json!("wait"), replica.monitor_requests()];
    let contents = client.request("monitor_cond", params).await?;
    let remote = client.name().to_owned();
    let broken = |error| Error::Protocol { remote: remote.clone(), error };
    replica.apply_updates2(&contents).map_err(broken)?;
    while !is_reached(&replica, name, state) {
        let message = client.receive().await?;
        if let Message::Notification { method, params } = message
            && method == "update2"
        {
            replica.apply_updates2(params.get(1).unwrap_or(&Value::Null)).map_err(broken)?;
        }
    }
    Ok(())
}

fn is_reached(replica: &Replica, name: &str, state: &str) -> bool {
    let found = replica.all(Database).find(|row| row.get(database::NAME) == name);
    match state {
        "removed" => found.is_none(),
        "connected" => found.is_some_and(|row| row.get(database::CONNECTED)),
        _ => found.is_some(),
    }
}
