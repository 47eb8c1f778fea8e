//! Execution of the JSON-RPC methods (RFC 7047 section 4.1, ovsdb-server(7)).

use std::sync::Arc;

use ovsdb::json::is_id;
use ovsdb::jsonrpc::Message;
use ovsdb::{DatabaseSchema, Error, Result, Uuid};
use serde_json::{Value, json};

use crate::admission::Permit;
use crate::core::{Core, Now};
use crate::follow::must_be_forwarded;
use crate::hosted::{Hosted, Role};
use crate::monitor::{Monitor, Version};
use crate::session::{Access, Output, Session, SessionId, Text};
use crate::triggers::{Trigger, tables_of};

/// The reply to a request.
enum Answer {
    Reply(Value),
    /// A serialised reply: the part before the shared body, the body, and the part after it.
    Written(Written),
    Error(Value),
    /// Not yet: the transaction waits.
    Later,
}

type Written = (Vec<u8>, Arc<[u8]>, &'static [u8]);

impl Core {
    /// Takes a message from a session's client.
    pub fn message(&mut self, session: SessionId, message: Message, now: Now) {
        self.admitted(session, message, Permit::default(), now);
    }

    /// As [`Core::message`], for a message with a permit, which is released when the request is answered.
    pub fn admitted(&mut self, session: SessionId, message: Message, permit: Permit, now: Now) {
        if self.is_link(session) {
            self.link_message(session, message, now);
            return;
        }
        if !self.has_session(session) {
            return;
        }
        match message {
            Message::Request { id, method, params } => self.request((session, permit), id, &method, params, now),
            Message::Notification { method, params } => {
                if method == "cancel" {
                    self.cancel(session, params.first().unwrap_or(&Value::Null));
                }
            }
            // Clients answer the echo requests that probe whether they live.
            Message::Reply { ref id, .. } if *id == "echo" => {}
            other => {
                let reason = format!("received unexpected {} message", other.kind());
                self.close(session, &reason);
            }
        }
    }

    fn request(
        &mut self,
        (session, permit): (SessionId, Permit),
        id: Value,
        method: &str,
        params: Vec<Value>,
        now: Now,
    ) {
        let pending = self.triggers.has(session, &id) || self.is_forwarded(session, &id);
        if pending && matches!(method, "transact" | "convert") {
            let error = Error::syntax(&Value::from(params), format!("{method}: duplicate request ID"));
            self.send(session, Message::error(id, error.to_json()));
            return;
        }
        let answer =
            self.dispatch((session, permit), &id, method, params, now).unwrap_or_else(|e| Answer::Error(e.to_json()));
        match answer {
            Answer::Reply(result) => self.answer(session, Message::reply(id, result)),
            Answer::Written(result) => self.outputs.push(Output::Write(session, Text::reply(&id, result))),
            Answer::Error(error) => self.answer(session, Message::error(id, error)),
            Answer::Later => {}
        }
        self.retry_triggers(now);
    }

    /// Sends a reply, even to a session that the request itself disconnected, as a conversion does.
    fn answer(&mut self, session: SessionId, message: Message) {
        let closed = |output: &Output| matches!(output, Output::Close(id, _) if *id == session);
        let end = self.outputs.len();
        let at = if self.has_session(session) { end } else { self.outputs.iter().position(closed).unwrap_or(end) };
        self.outputs.insert(at, Output::Send(session, message));
    }

    fn dispatch(
        &mut self,
        (session, permit): (SessionId, Permit),
        id: &Value,
        method: &str,
        params: Vec<Value>,
        now: Now,
    ) -> Result<Answer> {
        let reply = |result: Value| Ok(Answer::Reply(result));
        match method {
            "transact" => self.transact((session, permit), id, params, now),
            "echo" => reply(Value::from(params)),
            "list_dbs" => reply(self.database_names().collect()),
            "get_schema" => {
                let name = self.database_param("get_schema", &params)?;
                reply(self.database(&name).map_or(Value::Null, |database| database.schema().to_json()))
            }
            "get_server_id" => reply(Value::from(self.server_id.to_string())),
            "monitor" => self.monitor(session, Version::V1, method, &params).map(Answer::Written),
            "monitor_cond" | "monitor_cond_since" if self.refuses_conditions => {
                Ok(Answer::Error(Value::from("unknown method")))
            }
            "monitor_cond" => self.monitor(session, Version::V2, method, &params).map(Answer::Written),
            "monitor_cond_since" => self.monitor(session, Version::V3, method, &params).map(Answer::Written),
            "monitor_cond_change" => self.monitor_cond_change(session, &params).map(Answer::Reply),
            "monitor_cancel" => Ok(self.monitor_cancel(session, &params)),
            "lock" | "steal" | "unlock" if self.refuses_locks(session) => {
                let reason = "lock and unlock methods not allowed, DB server is read only.";
                Ok(Answer::Error(Value::from(reason)))
            }
            "lock" => self.lock(session, &params).map(Answer::Reply),
            "steal" => self.steal(session, &params).map(Answer::Reply),
            "unlock" => self.unlock(session, &params).map(Answer::Reply),
            "set_db_change_aware" => {
                let [Value::Bool(aware)] = params.as_slice() else {
                    let details = "set_db_change_aware: true or false parameter expected";
                    return Err(Error::syntax(&Value::from(params), details));
                };
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.change_aware = *aware;
                }
                reply(json!({}))
            }
            "convert" => {
                let name = self.database_param("convert", &params)?;
                let [_, schema] = params.as_slice() else {
                    return Err(Error::syntax(&Value::from(params), "array expected"));
                };
                if self.must_forward(session, &name) {
                    self.forward((session, permit), id, "convert", params)?;
                    return Ok(Answer::Later);
                }
                self.convert_method(session, &name, schema, now)?;
                reply(json!({}))
            }
            _ => Ok(Answer::Error(Value::from("unknown method"))),
        }
    }

    /// The database that a request's first parameter names.
    fn database_param(&self, method: &str, params: &[Value]) -> Result<String> {
        let params_json = || Value::from(params);
        let Some(name) = params.first().and_then(Value::as_str) else {
            let details = format!("{method} request params must begin with <db-name>");
            return Err(Error::syntax(&params_json(), details));
        };
        let Some(hosted) = self.databases.get(name) else {
            let details = format!("{method} request specifies unknown database {name}");
            return Err(Error::syntax_tagged(&params_json(), "unknown database", details));
        };
        if !hosted.is_available() {
            let details = format!(
                "{method} request specifies database {name} which is not yet available because it has not completed \
                 joining its cluster"
            );
            return Err(Error::new("database not available", details));
        }
        Ok(name.to_owned())
    }

    fn transact(
        &mut self,
        (session, permit): (SessionId, Permit),
        id: &Value,
        params: Vec<Value>,
        now: Now,
    ) -> Result<Answer> {
        let database = self.database_param("transact", &params)?;
        if must_be_forwarded(params.get(1..).unwrap_or_default()) && self.must_forward(session, &database) {
            self.forward((session, permit), id, "transact", params)?;
            return Ok(Answer::Later);
        }
        let operations = params.into_iter().skip(1).collect();
        let (created_ms, id) = (now.monotonic_ms, id.clone());
        let mut trigger =
            Trigger { session, id, database, operations, created_ms, timeout_ms: None, permit, tables: None };
        if let Some(result) = self.attempt(&mut trigger, now) {
            return Ok(Answer::Reply(result));
        }
        check_may_wait(&trigger.permit)?;
        // The permissions of a role are in tables that the operations do not name.
        let has_role = self.sessions.get(&session).is_some_and(|session| session.access.role().is_some());
        let schema = self.database(&trigger.database).map(|database| database.schema()).filter(|_| !has_role);
        trigger.tables = schema.map(|schema| tables_of(schema, &trigger.operations));
        self.triggers.push(trigger);
        Ok(Answer::Later)
    }

    fn cancel(&mut self, session: SessionId, id: &Value) {
        if let Some(trigger) = self.triggers.cancel(session, id) {
            self.send(session, Message::error(trigger.id, "canceled"));
        }
        self.cancel_forwarded(session, Some(id));
    }

    /// Returns true if a session gets no locks, since it may not change anything.
    fn refuses_locks(&self, session: SessionId) -> bool {
        let mut databases = self.databases.iter().filter(|(name, _)| !name.starts_with('_')).peekable();
        let only_backups = databases.peek().is_some() && databases.all(|(_, hosted)| hosted.role == Role::Backup);
        only_backups || self.sessions.get(&session).is_some_and(|session| session.access.read_only)
    }

    fn convert_method(&mut self, session: SessionId, name: &str, schema: &Value, now: Now) -> Result<()> {
        let access = self.sessions.get(&session).map(|session| &session.access);
        if let Some(role) = access.and_then(Access::role) {
            return Err(role.may_not_convert(name));
        }
        if name.starts_with('_') || access.is_some_and(|access| access.read_only) {
            let details = format!("convert operation not allowed on reserved database {name}");
            return Err(Error::new("not allowed", details));
        }
        if self.databases.get(name).is_some_and(|hosted| hosted.role == Role::Backup) {
            let details = "convert operation not allowed when database server is in read only mode";
            return Err(Error::new("not allowed", details));
        }
        let schema = DatabaseSchema::from_json(schema)?;
        if schema.name != name {
            let details = format!("new schema name ({}) does not match database name ({name})", schema.name);
            return Err(Error::new("invalid parameters", details));
        }
        self.convert(name, schema, now)
    }

    fn monitor(&mut self, session: SessionId, version: Version, method: &str, params: &[Value]) -> Result<Written> {
        let name = self.database_param(method, params)?;
        let invalid = || Error::syntax(&Value::from(params), "invalid parameters");
        let (id, requests, since) = match (version, params) {
            (Version::V3, [_, id, requests, since]) => (id, requests, Some(since)),
            (Version::V1, [_, id, requests, ..]) | (Version::V2, [_, id, requests]) => (id, requests, None),
            _ => return Err(invalid()),
        };
        if !requests.is_object() {
            return Err(Error::syntax(requests, "monitor-requests must be object"));
        }
        let client = self.sessions.get_mut(&session).ok_or_else(invalid)?;
        if client.monitor_position(id).is_some() {
            return Err(Error::syntax(id, "duplicate monitor ID"));
        }
        let since = since.map(parse_transaction_id).transpose()?;
        let Hosted { database, views, .. } = self.databases.get_mut(&name).ok_or_else(invalid)?;
        let mut monitor = Monitor::from_json(database.schema(), id.clone(), version, requests)?;
        monitor.view = views.share(monitor.view);
        let result = match since {
            None => (Vec::new(), views.initial(&monitor.view, database), b"}".as_slice()),
            Some(since) => {
                let last = database.last_transaction();
                match monitor.view.updates_since(database, since) {
                    Some(updates) => (format!("[true,\"{last}\",").into_bytes(), updates.into(), b"]}".as_slice()),
                    None => {
                        let shown = views.initial(&monitor.view, database);
                        (format!("[false,\"{last}\",").into_bytes(), shown, b"]}".as_slice())
                    }
                }
            }
        };
        client.monitors.push((name, monitor));
        Ok(result)
    }

    fn monitor_cond_change(&mut self, session: SessionId, params: &[Value]) -> Result<Value> {
        let [id, new_id, requests] = params else {
            return Err(Error::syntax(&Value::from(params), "invalid parameters"));
        };
        let unknown = || Error::syntax(id, "unknown monitor session");
        let client = self.sessions.get_mut(&session).ok_or_else(unknown)?;
        let at = client.monitor_position(id).ok_or_else(unknown)?;
        if id != new_id && client.monitor_position(new_id).is_some() {
            return Err(Error::syntax(new_id, "duplicate monitor ID"));
        }
        let (name, monitor) = client.monitors.get_mut(at).ok_or_else(unknown)?;
        let Hosted { database, views, .. } = self.databases.get_mut(name.as_str()).ok_or_else(unknown)?;
        let updates = monitor.change_conditions(database, requests)?;
        monitor.view = views.share(monitor.view.clone());
        monitor.id = new_id.clone();
        if let Some(updates) = updates {
            let text = monitor.notification(database.last_transaction(), updates.into());
            self.outputs.push(Output::Write(session, text));
        }
        Ok(json!({}))
    }

    fn monitor_cancel(&mut self, session: SessionId, params: &[Value]) -> Answer {
        let [id] = params else {
            return Answer::Error(Value::from("invalid parameters"));
        };
        let client = self.sessions.get_mut(&session);
        match client.and_then(|client| Some((client.monitor_position(id)?, client))) {
            Some((at, client)) => {
                client.monitors.remove(at);
                Answer::Reply(json!({}))
            }
            None => Answer::Error(Value::from("unknown monitor")),
        }
    }

    fn lock(&mut self, session: SessionId, params: &[Value]) -> Result<Value> {
        let name = self.new_lock_name(session, "lock", params)?;
        let locked = self.locks.request(&name, session);
        if let Some(client) = self.sessions.get_mut(&session).filter(|_| locked) {
            client.locks_owned.insert(name);
        }
        Ok(json!({ "locked": locked }))
    }

    fn steal(&mut self, session: SessionId, params: &[Value]) -> Result<Value> {
        let name = self.new_lock_name(session, "steal", params)?;
        let victim = self.locks.steal(&name, session);
        if let Some(client) = self.sessions.get_mut(&session) {
            client.locks_owned.insert(name.clone());
        }
        if let Some((id, victim)) = victim.and_then(|id| Some((id, self.sessions.get_mut(&id)?))) {
            victim.locks_owned.remove(&name);
            self.send(id, Message::notification("stolen", vec![Value::from(name)]));
        }
        Ok(json!({"locked": true}))
    }

    fn unlock(&mut self, session: SessionId, params: &[Value]) -> Result<Value> {
        let name = lock_name("unlock", params)?;
        let client: Option<&mut Session> = self.sessions.get_mut(&session);
        if !client.is_some_and(|client| client.locks_requested.remove(&name)) {
            let details = "unlock: \"unlock\" without \"lock\" or \"steal\"";
            return Err(Error::syntax(&Value::from(params), details));
        }
        self.release_lock(&name, session);
        Ok(json!({}))
    }

    /// Returns the lock named by a `lock` or `steal` request; the session must not have requested it before.
    fn new_lock_name(&mut self, session: SessionId, method: &str, params: &[Value]) -> Result<String> {
        let name = lock_name(method, params)?;
        let client = self.sessions.get_mut(&session);
        if !client.is_some_and(|client| client.locks_requested.insert(name.clone())) {
            let details = format!("must issue \"unlock\" before new \"{method}\"");
            return Err(Error::syntax(&Value::from(params), details));
        }
        Ok(name)
    }

    /// Takes a session out of a lock's queue and tells the next owner.
    pub(crate) fn release_lock(&mut self, name: &str, session: SessionId) {
        if let Some(client) = self.sessions.get_mut(&session) {
            client.locks_owned.remove(name);
        }
        let next = self.locks.release(name, session);
        if let Some((id, client)) = next.and_then(|id| Some((id, self.sessions.get_mut(&id)?))) {
            client.locks_owned.insert(name.to_owned());
            self.send(id, Message::notification("locked", vec![Value::from(name)]));
        }
    }
}

/// Refuses a request that must wait for a condition if its permit does not allow waiting.
pub(crate) fn check_may_wait(permit: &Permit) -> Result<()> {
    if !permit.may_not_wait() {
        return Ok(());
    }
    base::coverage!(ovsdb_request_refused);
    Err(Error::new("resources exhausted", "too many requests of all clients wait for this one to wait, too"))
}

/// Refuses a request that is too long to be forwarded now.
pub(crate) fn check_fits(fits: bool) -> Result<()> {
    if fits {
        return Ok(());
    }
    base::coverage!(ovsdb_request_refused);
    Err(Error::new("resources exhausted", "the request is too long to be forwarded beside others"))
}

fn parse_transaction_id(json: &Value) -> Result<Uuid> {
    let Some(text) = json.as_str() else {
        return Err(Error::syntax(json, "last-txn-id must be string"));
    };
    Uuid::parse(text).ok_or_else(|| Error::syntax(json, "last-txn-id must be UUID format."))
}

fn lock_name(method: &str, params: &[Value]) -> Result<String> {
    match params {
        [Value::String(name)] if is_id(name) => Ok(name.clone()),
        _ => Err(Error::syntax(&Value::from(params), format!("{method} request params must be <id>"))),
    }
}
