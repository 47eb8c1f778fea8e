//! The commands of a daemon: names, usage, numbers of arguments, handlers; and `list-commands`, `version` and
//! `set-options`, which every daemon has.
//!
//! A handler replies at once ([`Commands::register`]), in a future ([`Commands::register_async`]), or keeps its
//! [`Call`] and replies later from any thread ([`Commands::register_call`]), for example from the loop that owns the
//! state. A call dropped without a reply is answered with an error.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};

/// The number of arguments of a command.
pub type Arity = RangeInclusive<usize>;

/// The format of replies that a connection requested (`ovs-appctl --format`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputFormat {
    /// Text for people.
    #[default]
    Text,
    /// JSON; a command with a text reply has it wrapped in an object.
    Json,
}

/// A reply: a text, or JSON if the call requested it, or the text of an error.
type Answer = Result<Value, String>;

/// A command that was called.
#[derive(Debug)]
pub struct Call {
    args: Vec<String>,
    format: OutputFormat,
    answer: oneshot::Sender<Answer>,
}

impl Call {
    /// The arguments, as many as the command's [`Arity`] allows.
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// The requested format; only [`OutputFormat::Json`] allows [`Self::reply_json`].
    pub fn format(&self) -> OutputFormat {
        self.format
    }

    /// Answers with a text or an error.
    pub fn reply(self, outcome: Result<String, String>) {
        let answer = text_answer(outcome, self.format);
        // If the connection has closed, no reply is needed.
        let _ = self.answer.send(answer);
    }

    /// Replies with JSON to a caller that requested it.
    pub fn reply_json(self, value: Value) {
        let answer = match self.format {
            OutputFormat::Json => Ok(value),
            OutputFormat::Text => text_answer(Ok(value.to_string()), self.format),
        };
        let _ = self.answer.send(answer);
    }
}

fn text_answer(outcome: Result<String, String>, format: OutputFormat) -> Answer {
    let text = outcome?;
    Ok(match format {
        OutputFormat::Text => Value::String(text),
        // The text is as the command made it.
        OutputFormat::Json => {
            let mut members = Map::new();
            members.insert("reply".to_owned(), Value::String(text));
            members.insert("reply-format".to_owned(), Value::String("plain".to_owned()));
            Value::Object(members)
        }
    })
}

type BoxFuture = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

type ImmediateHandler = dyn Fn(&[String]) -> Result<String, String> + Send + Sync;
type AsyncHandler = dyn Fn(Vec<String>) -> BoxFuture + Send + Sync;

#[derive(Clone)]
enum Handler {
    Now(Arc<ImmediateHandler>),
    Async(Arc<AsyncHandler>),
    Call(Arc<dyn Fn(Call) + Send + Sync>),
    /// `list-commands`, which needs the table that contains it: the commands whose names begin with this.
    List(&'static str),
    /// `set-options`, which changes the connection.
    SetOptions,
}

struct Command {
    usage: String,
    is_listed: bool,
    arity: Arity,
    handler: Handler,
}

/// The commands of a daemon. Clones share one table, whose commands may change at any time.
#[derive(Clone)]
pub struct Commands {
    table: Arc<Mutex<BTreeMap<String, Command>>>,
    /// Requests that were read and whose replies are not yet written.
    pending: Arc<watch::Sender<usize>>,
}

/// Counts a request until its reply is written.
#[derive(Debug)]
pub(crate) struct Pending(Arc<watch::Sender<usize>>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl std::fmt::Debug for Commands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

impl Commands {
    /// The commands that every server has: `list-commands`, `set-options`, and `version`, which answers
    /// `version_text`.
    pub fn new(version_text: impl Into<String>) -> Self {
        let commands = Self { table: Arc::default(), pending: Arc::new(watch::Sender::new(0)) };
        let version_text = version_text.into().trim_end().to_owned();
        commands.insert("list-commands", "", 0..=0, Handler::List(""));
        commands.insert("set-options", "[--format text|json]", 1..=2, Handler::SetOptions);
        commands.register("version", "", 0..=0, move |_| Ok(version_text.clone()));
        commands
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Command>> {
        // No handler runs under the lock, so a poisoned table is consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, name: &str, usage: &str, arity: Arity, handler: Handler) {
        self.lock().insert(name.to_owned(), Command { usage: usage.to_owned(), is_listed: true, arity, handler });
    }

    /// Leaves a command out of `list-commands`, as an older name of another one.
    pub fn hide(&self, name: &str) {
        if let Some(command) = self.lock().get_mut(name) {
            command.is_listed = false;
        }
    }

    /// A command that lists the commands whose names begin with `beginning`, as `list-commands` lists all.
    pub fn register_list(&self, name: &str, beginning: &'static str) {
        self.insert(name, "", 0..=usize::MAX, Handler::List(beginning));
    }

    /// A command that is answered at once. `usage` shows its arguments in `list-commands`. A command of the same name
    /// is replaced.
    pub fn register(
        &self,
        name: &str,
        usage: &str,
        arity: Arity,
        handler: impl Fn(&[String]) -> Result<String, String> + Send + Sync + 'static,
    ) {
        self.insert(name, usage, arity, Handler::Now(Arc::new(handler)));
    }

    /// A command that is answered at once by a handler with state of its own.
    pub fn register_mut(
        &self,
        name: &str,
        usage: &str,
        arity: Arity,
        handler: impl FnMut(&[String]) -> Result<String, String> + Send + 'static,
    ) {
        let handler = Mutex::new(handler);
        self.register(name, usage, arity, move |args| (*handler.lock().unwrap_or_else(PoisonError::into_inner))(args));
    }

    /// Registers a command that replies when a future ends.
    pub fn register_async<F>(
        &self,
        name: &str,
        usage: &str,
        arity: Arity,
        handler: impl Fn(Vec<String>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.insert(name, usage, arity, Handler::Async(Arc::new(move |args| Box::pin(handler(args)))));
    }

    /// Registers a command whose handler owns the call and replies later, or in JSON.
    pub fn register_call(&self, name: &str, usage: &str, arity: Arity, handler: impl Fn(Call) + Send + Sync + 'static) {
        self.insert(name, usage, arity, Handler::Call(Arc::new(handler)));
    }

    /// Removes a command.
    pub fn unregister(&self, name: &str) {
        self.lock().remove(name);
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn list(&self, beginning: &str, format: OutputFormat) -> Answer {
        let table = self.lock();
        let listed = || table.iter().filter(|(name, command)| command.is_listed && name.starts_with(beginning));
        match format {
            OutputFormat::Text => {
                let mut out = "The available commands are:\n".to_owned();
                for (name, command) in listed() {
                    out.push_str(&format!("  {name:<23} {}\n", command.usage));
                }
                Ok(Value::String(out))
            }
            OutputFormat::Json => Ok(Value::Object(
                listed().map(|(name, command)| (name.clone(), Value::String(command.usage.clone()))).collect(),
            )),
        }
    }

    /// The handler of `method`, if it accepts `params`.
    fn find(&self, method: &str, params: &[Value]) -> Result<(Handler, Vec<String>), String> {
        let table = self.lock();
        let Some(command) = table.get(method) else {
            return Err(format!(
                "\"{method}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
            ));
        };
        let (least, most) = (*command.arity.start(), *command.arity.end());
        if params.len() < least {
            return Err(format!("\"{method}\" command requires at least {least} arguments"));
        }
        if params.len() > most {
            return Err(format!("\"{method}\" command takes at most {most} arguments"));
        }
        let args = params.iter().map(|param| param.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
        let args = args.ok_or_else(|| format!("\"{method}\" command has non-string argument"))?;
        Ok((command.handler.clone(), args))
    }

    /// Counts a request as waiting for its reply until the value is dropped.
    pub(crate) fn pending(&self) -> Pending {
        self.pending.send_modify(|count| *count += 1);
        Pending(Arc::clone(&self.pending))
    }

    /// Waits until all requests are answered: a daemon does so before it exits.
    pub async fn drained(&self) {
        // The sender lives as long as `self`, so only the count ends this.
        let _ = self.pending.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Runs a command for a connection whose replies have `format`, and returns the reply.
    pub async fn run(&self, method: &str, params: &[Value], format: &mut OutputFormat) -> Answer {
        let (handler, args) = self.find(method, params)?;
        match handler {
            Handler::Now(handler) => text_answer(handler(&args), *format),
            Handler::Async(handler) => text_answer(handler(args).await, *format),
            Handler::List(beginning) => self.list(beginning, *format),
            Handler::SetOptions => text_answer(set_options(&args, format).map(|()| String::new()), OutputFormat::Text),
            Handler::Call(handler) => {
                let (answer, waiting) = oneshot::channel();
                handler(Call { args, format: *format, answer });
                waiting.await.unwrap_or_else(|_| Err(format!("\"{method}\" command was not answered")))
            }
        }
    }
}

/// Applies the options of `set-options`, with the errors of `getopt`. Words that are no options are ignored.
fn set_options(args: &[String], format: &mut OutputFormat) -> Result<(), String> {
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next().filter(|word| *word != "--") {
        let Some(option) = word.strip_prefix("--") else {
            match word.strip_prefix('-').and_then(|letters| letters.chars().next()) {
                Some(letter) => return Err(format!("unrecognized option '{letter}'")),
                None => continue,
            }
        };
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        if !"format".starts_with(name) {
            return Err(format!("unrecognized option '{word}'"));
        }
        *format = match value.or_else(|| words.next()) {
            Some("text") => OutputFormat::Text,
            Some("json") => OutputFormat::Json,
            Some(other) => return Err(format!("option format has invalid value {other}")),
            None => return Err("option '--format' requires an argument".to_owned()),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_connection() {
        let set = |args: &[&str]| {
            let mut format = OutputFormat::Text;
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            set_options(&args, &mut format).map(|()| format)
        };
        for args in [&["--format", "json"][..], &["--format=json"], &["--form", "json"], &["x", "--format=json"]] {
            assert_eq!(set(args), Ok(OutputFormat::Json), "{args:?}");
        }
        for args in [&["x"][..], &["", "json"], &["--", "--x"], &["--format=text"]] {
            assert_eq!(set(args), Ok(OutputFormat::Text), "{args:?}");
        }
        for (args, error) in [
            (&["--format"][..], "option '--format' requires an argument"),
            (&["--format="], "option format has invalid value "),
            (&["--nonsense"], "unrecognized option '--nonsense'"),
            (&["-xy", "z"], "unrecognized option 'x'"),
        ] {
            assert_eq!(set(args), Err(error.to_owned()));
        }
    }
}
