//! The four kinds of JSON-RPC 1.0 messages.

use serde_json::{Map, Value};

use crate::json::canonical;
use crate::write::{self, Object};

/// A JSON-RPC message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A request, which the peer answers with a reply or an error of the same id.
    Request {
        /// Not null.
        id: Value,
        /// The method.
        method: String,
        /// The arguments; Open vSwitch allows only an array.
        params: Vec<Value>,
    },
    /// A request that is not answered.
    Notification {
        /// The method.
        method: String,
        /// The arguments.
        params: Vec<Value>,
    },
    /// The answer to a request that succeeded.
    Reply {
        /// The request's id.
        id: Value,
        /// The outcome; may be null.
        result: Value,
    },
    /// The answer to a request that failed.
    Error {
        /// The request's id.
        id: Value,
        /// The error; not null.
        error: Value,
    },
}

/// JSON that is not a JSON-RPC message; its connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not an object.
    #[error("message is not a JSON object")]
    NotObject,
    /// `method` is not a string.
    #[error("method is not a JSON string")]
    MethodNotString,
    /// `params` is not an array.
    #[error("\"params\" must be JSON array")]
    ParamsNotArray,
    /// A member that this kind of message needs is missing.
    #[error("{kind} must have \"{member}\"")]
    Missing {
        /// The kind of message.
        kind: &'static str,
        /// The member.
        member: &'static str,
    },
    /// A member that this kind of message cannot have.
    #[error("{kind} must not have \"{member}\"")]
    Excess {
        /// The kind of message.
        kind: &'static str,
        /// The member.
        member: &'static str,
    },
    /// A member that no message has.
    #[error("message has unexpected member \"{0}\"")]
    Unexpected(String),
}

impl Message {
    /// A request.
    pub fn request(id: impl Into<Value>, method: impl Into<String>, params: Vec<Value>) -> Self {
        Message::Request { id: id.into(), method: method.into(), params }
    }

    /// A notification.
    pub fn notification(method: impl Into<String>, params: Vec<Value>) -> Self {
        Message::Notification { method: method.into(), params }
    }

    /// The answer to a request that succeeded.
    pub fn reply(id: Value, result: impl Into<Value>) -> Self {
        Message::Reply { id, result: result.into() }
    }

    /// The answer to a request that failed.
    pub fn error(id: Value, error: impl Into<Value>) -> Self {
        Message::Error { id, error: error.into() }
    }

    /// The name of the message's kind in log messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Message::Request { .. } => "request",
            Message::Notification { .. } => "notification",
            Message::Reply { .. } => "reply",
            Message::Error { .. } => "error",
        }
    }

    /// The message as logs show it: its kind and its members.
    pub fn description(&self) -> String {
        let kind = self.kind();
        match self {
            Message::Request { id, method, params } => {
                let params = canonical(&params.clone().into());
                format!("{kind}, method=\"{method}\", params={params}, id={}", canonical(id))
            }
            Message::Notification { method, params } => {
                format!("{kind}, method=\"{method}\", params={}", canonical(&params.clone().into()))
            }
            Message::Reply { id, result } => format!("{kind}, result={}, id={}", canonical(result), canonical(id)),
            Message::Error { id, error } => format!("{kind}, error={}, id={}", canonical(error), canonical(id)),
        }
    }

    /// The method of a request or notification.
    pub fn method(&self) -> Option<&str> {
        match self {
            Message::Request { method, .. } | Message::Notification { method, .. } => Some(method),
            _ => None,
        }
    }

    /// The id, except of a notification.
    pub fn id(&self) -> Option<&Value> {
        match self {
            Message::Request { id, .. } | Message::Reply { id, .. } | Message::Error { id, .. } => Some(id),
            Message::Notification { .. } => None,
        }
    }

    /// Reads a message.
    pub fn from_json(json: Value) -> Result<Self, MessageError> {
        let Value::Object(mut object) = json else {
            return Err(MessageError::NotObject);
        };
        let method = match object.remove("method") {
            None => None,
            Some(Value::String(method)) => Some(method),
            Some(_) => return Err(MessageError::MethodNotString),
        };
        let params = match object.remove("params") {
            None => None,
            Some(Value::Array(params)) => Some(params),
            Some(_) => return Err(MessageError::ParamsNotArray),
        };
        let result = object.remove("result");
        let error = object.remove("error").filter(|error| !error.is_null());
        let id = object.remove("id").filter(|id| !id.is_null());
        if let Some(unexpected) = object.keys().next() {
            return Err(MessageError::Unexpected(unexpected.clone()));
        }
        match method {
            Some(method) => Self::call(method, params, result, error, id),
            None => Self::answer(params, result, error, id),
        }
    }

    fn call(
        method: String,
        params: Option<Vec<Value>>,
        result: Option<Value>,
        error: Option<Value>,
        id: Option<Value>,
    ) -> Result<Self, MessageError> {
        let kind = if id.is_some() { "request" } else { "notification" };
        if result.is_some_and(|result| !result.is_null()) {
            return Err(MessageError::Excess { kind, member: "result" });
        }
        if error.is_some() {
            return Err(MessageError::Excess { kind, member: "error" });
        }
        let params = params.ok_or(MessageError::Missing { kind, member: "params" })?;
        Ok(match id {
            Some(id) => Message::Request { id, method, params },
            None => Message::Notification { method, params },
        })
    }

    fn answer(
        params: Option<Vec<Value>>,
        result: Option<Value>,
        error: Option<Value>,
        id: Option<Value>,
    ) -> Result<Self, MessageError> {
        let kind = match (&error, &result) {
            (Some(_), _) => "error",
            (None, Some(_)) => "reply",
            (None, None) if id.is_some() => return Err(MessageError::Missing { kind: "request", member: "method" }),
            (None, None) => return Err(MessageError::Missing { kind: "notification", member: "method" }),
        };
        if params.is_some() {
            return Err(MessageError::Excess { kind, member: "params" });
        }
        let id = id.ok_or(MessageError::Missing { kind, member: "id" })?;
        match (error, result) {
            (Some(_), Some(result)) if !result.is_null() => Err(MessageError::Excess { kind, member: "result" }),
            (Some(error), _) => Ok(Message::Error { id, error }),
            (None, result) => Ok(Message::Reply { id, result: result.unwrap_or(Value::Null) }),
        }
    }

    /// The message as JSON.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        match self {
            Message::Request { id, method, params } => {
                object.insert("id".into(), id.clone());
                object.insert("method".into(), Value::from(method.as_str()));
                object.insert("params".into(), Value::from(params.clone()));
            }
            Message::Notification { method, params } => {
                object.insert("id".into(), Value::Null);
                object.insert("method".into(), Value::from(method.as_str()));
                object.insert("params".into(), Value::from(params.clone()));
            }
            Message::Reply { id, result } => {
                object.insert("id".into(), id.clone());
                object.insert("result".into(), result.clone());
                object.insert("error".into(), Value::Null);
            }
            Message::Error { id, error } => {
                object.insert("id".into(), id.clone());
                object.insert("result".into(), Value::Null);
                object.insert("error".into(), error.clone());
            }
        }
        Value::Object(object)
    }

    /// The message in its wire format.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        let array = |out: &mut Vec<u8>, values: &[Value]| {
            out.push(b'[');
            write::list(out, values, write::value);
            out.push(b']');
        };
        match self {
            Message::Request { id, method, params } => {
                write::value(object.member("id"), id);
                write::string(object.member("method"), method);
                array(object.member("params"), params);
            }
            Message::Notification { method, params } => {
                object.member("id").extend_from_slice(b"null");
                write::string(object.member("method"), method);
                array(object.member("params"), params);
            }
            Message::Reply { id, result } => {
                write::value(object.member("id"), id);
                write::value(object.member("result"), result);
                object.member("error").extend_from_slice(b"null");
            }
            Message::Error { id, error } => {
                write::value(object.member("id"), id);
                object.member("result").extend_from_slice(b"null");
                write::value(object.member("error"), error);
            }
        }
        object.end();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_those_of_logs() {
        let request = Message::request(1, "m", vec!["x".into()]);
        assert_eq!(request.description(), "request, method=\"m\", params=[\"x\"], id=1");
        let update = Message::notification("update", vec![Value::Null]);
        assert_eq!(update.description(), "notification, method=\"update\", params=[null]");
        assert_eq!(Message::reply(2.into(), "r").description(), "reply, result=\"r\", id=2");
        assert_eq!(Message::error(3.into(), "e").description(), "error, error=\"e\", id=3");
    }
}
