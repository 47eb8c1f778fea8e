//! Listeners and connections to switches: one task for each, on one thread. Connections are not re-established; the
//! program ends when no connections and listeners are left, or on request.

use crate::learning::Controller;
use crate::options::Options;
use base::Clock;
use openflow::message::{Message, decode, encode};
use openflow::print::{Style, print};
use openflow::stream::Framer;
use openflow::switch::{ErrorReport, Hello, ReportedError};
use openflow::{OfpError, Version, Versions};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stream::{DSCP, Listener, Method, Stream};
use tls::Tls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Idle time after which a switch is probed, and after which an unanswered probe ends the connection.
const PROBE: Duration = Duration::from_secs(60);
/// Maximum time to establish a connection, including TLS.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Maximum time to negotiate a version.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Transaction id of the controller's first message.
const HELLO_XID: u32 = 1;

/// State shared by all connections.
struct ControllerState {
    options: Options,
    tls: Arc<Tls>,
    clock: Clock,
}

/// Runs the controller until it ends.
pub(crate) fn serve(options: Options, log: &Arc<vlog::Log>) -> Result<(), String> {
    let mut started = daemon::start(&options.command_line, options.daemon.clone(), log).map_err(|e| e.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let sockets: Vec<String> =
        options.methods.iter().filter_map(|m| m.strip_prefix("punix:")).map(str::to_owned).collect();
    let end = runtime.block_on(async move {
        let commands = unixctl::Commands::new(cli::version_text(log.program()).trim_end());
        daemon::control::register(&commands, log, started.shutdown(), Vec::new);
        let tasks = start(options).await?;
        let control = started.bind_control(commands.clone()).map_err(|e| e.to_string())?;
        let control = control.map(|server| tokio::spawn(server.run()));
        started.ready();
        let end = tokio::select! {
            () = all(tasks) => Ok(()),
            end = started.terminated(&commands) => end.map(|_| ()).map_err(|e| e.to_string()),
        };
        if let Some(control) = control {
            control.abort();
            // The result of a cancelled task does not matter.
            let _ = control.await;
        }
        end
    });
    for socket in sockets {
        // The socket does not exist if it could not be created.
        let _ = std::fs::remove_file(socket);
    }
    end
}

async fn all(mut tasks: JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

/// Opens all connections and listeners of the command line. Fails if none of them can be opened.
async fn start(options: Options) -> Result<JoinSet<()>, String> {
    let tls = Tls::new(options.tls.clone());
    let shared = Arc::new(ControllerState { options, tls, clock: Clock::real() });
    let (mut tasks, mut attempts) = (JoinSet::new(), JoinSet::new());
    for name in shared.options.methods.clone() {
        let shared = Arc::clone(&shared);
        if Method::of(&name).is_some_and(|(method, _)| method.is_passive()) {
            match stream::listen(&name, DSCP, &shared.tls) {
                Ok(listener) => drop(tasks.spawn(accept(listener, name, shared))),
                Err(e) => tracing::error!(target: "controller", "{name}: listen: {}", reason(&e)),
            }
            continue;
        }
        attempts.spawn(async move {
            let connecting = stream::connect(&name, DSCP, &shared.tls, |_| ());
            let connected = tokio::time::timeout(CONNECT_MAX, connecting).await;
            let connected = connected.unwrap_or_else(|_| Err(io::Error::from_raw_os_error(110))); // ETIMEDOUT
            (name, connected)
        });
    }
    // Wait for all attempts, to find out whether any succeeded.
    while let Some(Ok((name, connected))) = attempts.join_next().await {
        match connected {
            Ok(stream) => {
                let shared = Arc::clone(&shared);
                tasks.spawn(async move { control(&shared, &name, stream).await });
            }
            Err(e) => tracing::error!(target: "controller", "{name}: connect: {}", reason(&e)),
        }
    }
    if tasks.is_empty() { Err("no active or passive switch connections".into()) } else { Ok(tasks) }
}

/// The operating system's error text, without the number.
fn reason(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Takes connections for ever.
async fn accept(listener: Listener, name: String, shared: Arc<ControllerState>) {
    let mut children = JoinSet::new();
    loop {
        let incoming = match listener.accept().await {
            Ok(incoming) => incoming,
            Err(e) => {
                tracing::warn!(target: "controller", "{name}: accept: {}", reason(&e));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while children.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        children.spawn(async move {
            let mut name = incoming.to_string();
            if name == "unix" {
                name = format!("unix#{}", base::serial::next_unix_connection());
            }
            // TLS errors are already logged.
            if let Ok(Ok(stream)) = tokio::time::timeout(HELLO_MAX, incoming.into_stream()).await {
                control(&shared, &name, stream).await;
            }
        });
    }
}

/// Controls one switch until the connection ends.
async fn control(shared: &ControllerState, name: &str, stream: Box<dyn Stream>) {
    let mut connection = Connection { name, stream, framer: Framer::default() };
    let ended = match tokio::time::timeout(HELLO_MAX, connection.negotiate(shared.options.versions)).await {
        Ok(Ok(version)) => {
            tracing::debug!(target: "rconn", "{name}: connected");
            connection.run(shared, version).await
        }
        Ok(Err(e)) => Err(e),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    match ended {
        Ok(()) => tracing::debug!(target: "rconn", "{name}: connection closed by peer"),
        Err(e) => tracing::warn!(target: "rconn", "{name}: connection dropped ({})", reason(&e)),
    }
}

struct Connection<'a> {
    name: &'a str,
    stream: Box<dyn Stream>,
    framer: Framer,
}

impl Connection<'_> {
    /// The next message; `None` if the connection has ended.
    async fn recv(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = vec![0; 16 << 10];
        loop {
            if let Some(message) = self.framer.next_message().map_err(io::Error::other)? {
                let message = message.to_vec();
                self.log("received", &message);
                return Ok(Some(message));
            }
            match self.stream.read(&mut chunk).await? {
                0 => return Ok(None),
                n => self.framer.push(chunk.get(..n).unwrap_or_default()),
            }
        }
    }

    /// Sends whole messages. While a switch does not read, nothing is read from it either, so output does not
    /// accumulate.
    async fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        let mut sent = Framer::default();
        if tracing::enabled!(target: "vconn", tracing::Level::DEBUG) {
            sent.push(messages);
            while let Ok(Some(message)) = sent.next_message() {
                self.log("sent (Success)", message);
            }
        }
        self.stream.write_all(messages).await?;
        self.stream.flush().await
    }

    fn log(&self, what: &str, message: &[u8]) {
        if tracing::enabled!(target: "vconn", tracing::Level::DEBUG) {
            tracing::debug!(target: "vconn", "{}: {what}: {}", self.name, print(message, Style::plain(1)).trim_end());
        }
    }

    /// Agrees on a version.
    async fn negotiate(&mut self, ours: Versions) -> io::Result<Version> {
        let newest = ours.newest().unwrap_or(Version::V10);
        self.send(&encode(newest, HELLO_XID, &Message::Hello(Hello { versions: ours }))).await?;
        let message = self.recv().await?.ok_or(io::ErrorKind::ConnectionReset)?;
        let protocol_error = || io::Error::from_raw_os_error(71); // EPROTO
        let Ok((_, _, Message::Hello(theirs))) = decode(&message) else {
            let text = print(&message, Style::plain(1));
            tracing::warn!(
                target: "vconn",
                "{}: received message while expecting hello: {}",
                self.name,
                text.trim_end()
            );
            return Err(protocol_error());
        };
        if let Some(version) = ours.negotiate(theirs.versions) {
            let (ours, theirs) = (ours.describe(), theirs.versions.describe());
            tracing::debug!(
                target: "vconn",
                "{}: negotiated OpenFlow version 0x{:02x} (we support {ours}, peer supports {theirs})",
                self.name,
                version.wire()
            );
            return Ok(version);
        }
        let known = theirs.versions.newest().unwrap_or(Version::V10);
        let (ours, theirs) = (ours.describe(), theirs.versions.describe());
        let text = format!("We support {ours}, you support {theirs}, no common versions.");
        tracing::warn!(
            target: "vconn",
            "{}: version negotiation failed (we support {ours}, peer supports {theirs})",
            self.name
        );
        let error = ReportedError::Known(OfpError::HfcIncompatible);
        let report = Message::Error(ErrorReport { error, data: text.into_bytes() });
        self.send(&encode(known, 0, &report)).await?;
        Err(protocol_error())
    }

    async fn run(&mut self, shared: &ControllerState, version: Version) -> io::Result<()> {
        let mut controller = Controller::new(&shared.options.policy, version, HELLO_XID);
        if let Err(e) = controller.begin(&shared.options.flows) {
            tracing::info!(target: "learning_switch", "{}: {e}", self.name);
        }
        let mut probed = false;
        loop {
            self.send(&controller.take_output()).await?;
            let message = match tokio::time::timeout(PROBE, self.recv()).await {
                Ok(message) => message?,
                Err(_) if probed => return Err(io::ErrorKind::TimedOut.into()),
                Err(_) => {
                    probed = true;
                    controller.send(&Message::EchoRequest(Vec::new()));
                    continue;
                }
            };
            probed = false;
            let Some(message) = message else { return Ok(()) };
            if let Err(e) = controller.receive(&message, shared.clock.now()) {
                tracing::debug!(target: "learning_switch", "{}: {e}", self.name);
            }
        }
    }
}
