//! The command wait: until a database appears on the server, is connected, or disappears.

use ovsdb::jsonrpc::Message;
use ovsdb_client::schemas::server::{self, Database, database};
use ovsdb_client::{Replica, Wanted, columns};
use serde_json::{Value, json};

use super::{Call, Done, text};

/// Checks the last argument.
pub(super) fn check_state(state: &str) -> Done {
    if ["added", "connected", "removed"].contains(&state) { Ok(()) } else { Err(format!("{state}: unknown state")) }
}

pub(super) async fn wait(mut call: Call) -> Done {
    let schema = call.client.schema(server::DATABASE).await.map_err(text)?;
    let mut replica = Replica::new(&Wanted::from(&columns! { database { NAME, CONNECTED } }));
    replica.bind(&schema);
    let params = vec![server::DATABASE.into(), json!("wait"), replica.monitor_requests()];
    let contents = call.client.request("monitor_cond", params).await.map_err(text)?;
    replica.apply_updates2(&contents).map_err(|error| error.to_string())?;
    let (name, state) = (call.arg(0).to_owned(), call.arg(1).to_owned());
    while !is_reached(&replica, &name, &state) {
        let message = call.client.receive().await.map_err(text)?;
        if let Message::Notification { method, params } = message
            && method == "update2"
        {
            let updates = params.get(1).unwrap_or(&Value::Null);
            replica.apply_updates2(updates).map_err(|error| error.to_string())?;
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
