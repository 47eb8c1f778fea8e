//! An OpenFlow connection to the management socket of a bridge, for requests and their replies.
//!
//! It speaks OpenFlow 1.0 with Nicira's flow format and table numbers, as `ovs-ofctl` does by default.

use std::io;
use std::path::Path;
use std::time::Duration;

use openflow::error::ErrorNumber;
use openflow::message::{Form, decode, encode_with};
use openflow::multipart::{Reassembly, StatsReply, StatsRequest};
use openflow::stream::{Framer, StreamError};
use openflow::switch::{ErrorReport, Hello, ReportedError};
use openflow::{DecodeError, FlowMod, Message, OfpError, Options, Version, Versions, Xid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Time for a request and its reply. The switch may be busy with another client's request.
const REPLY_MAX: Duration = Duration::from_secs(30);
/// Limit on the total size of a reply.
const REPLY_BYTES_MAX: usize = 1 << 30;
/// NXT_SET_FLOW_FORMAT: Nicira's.
const NXM: u32 = 2;

/// Why a bridge does not receive its flows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlowError {
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The switch closed the connection.
    #[error("connection closed by peer")]
    Closed,
    /// The switch does not reply.
    #[error("no reply within {} seconds", REPLY_MAX.as_secs())]
    Silent,
    /// The bridge refuses OpenFlow 1.0.
    #[error("the bridge does not speak OpenFlow 1.0 (see Bridge column \"protocols\")")]
    Version,
    /// The bytes are no OpenFlow messages.
    #[error("{0}")]
    Stream(#[from] StreamError),
    /// A message has an error.
    #[error("malformed message ({0})")]
    Malformed(#[from] DecodeError),
    /// A reply has an error.
    #[error("bad reply ({0})")]
    Reply(#[from] OfpError),
    /// The switch refused a request.
    #[error("the switch refused a request ({0})")]
    Refused(String),
}

impl FlowError {
    /// Returns true if the switch refused a flow for which it has no room.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Refused(name) if name.starts_with("OFPFMFC_") && name.ends_with("_FULL"))
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    framer: Framer,
    last_xid: Xid,
    options: Options,
}

impl Connection {
    /// Connects to a management socket.
    pub(crate) async fn open(path: &Path) -> Result<Self, FlowError> {
        let stream = UnixStream::connect(path).await?;
        let mut connection = Self { stream, framer: Framer::default(), last_xid: 0, options: Options::default() };
        in_time(connection.negotiate()).await?;
        Ok(connection)
    }

    async fn negotiate(&mut self) -> Result<(), FlowError> {
        let versions = Versions::of(&[Version::V10]);
        self.send(&Message::Hello(Hello { versions })).await?;
        let message = self.receive().await?;
        match decode(&message) {
            Ok((_, _, Message::Hello(theirs))) if versions.negotiate(theirs.versions).is_some() => {}
            Ok((_, _, Message::Hello(_) | Message::Error(_))) => return Err(FlowError::Version),
            Ok(_) => return Err(OfpError::BrcBadType.into()),
            Err(error) => return Err(error.into()),
        }
        self.send(&Message::SetFlowFormat(NXM)).await?;
        self.send(&Message::FlowModTableId(true)).await?;
        self.options.flow_mod_table_id = true;
        Ok(())
    }

    /// Changes flows, in this order. The error is the first that the switch reports; it makes the other changes.
    pub(crate) async fn change(&mut self, mods: impl IntoIterator<Item = FlowMod>) -> Result<(), FlowError> {
        let mut bytes = Vec::new();
        for flow_mod in mods {
            bytes.extend(self.encode(&Message::FlowMod(Form::Nicira, Box::new(flow_mod))));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        bytes.extend(self.encode(&Message::BarrierRequest));
        in_time(async {
            self.write(&bytes).await?;
            let mut outcome = Ok(());
            loop {
                match self.reply().await? {
                    (xid, Message::BarrierReply) if xid == self.last_xid => return outcome,
                    (_, Message::Error(report)) => outcome = outcome.and(Err(refused(&report))),
                    _ => {}
                }
            }
        })
        .await
    }

    /// Requests statistics, and returns the whole reply.
    pub(crate) async fn statistics(&mut self, body: StatsRequest) -> Result<StatsReply, FlowError> {
        in_time(async {
            self.send(&Message::StatsRequest { more: false, body }).await?;
            let mut reassembly = Reassembly::new(REPLY_BYTES_MAX);
            loop {
                let message = self.receive().await?;
                match self.decoded(&message).await? {
                    (xid, Message::StatsReply { more, body }) if xid == self.last_xid => {
                        if let Some(whole) = reassembly.push(body, more, message.len())? {
                            return Ok(whole);
                        }
                    }
                    (xid, Message::Error(report)) if xid == self.last_xid => return Err(refused(&report)),
                    _ => {}
                }
            }
        })
        .await
    }

    fn encode(&mut self, message: &Message) -> Vec<u8> {
        self.last_xid = self.last_xid.wrapping_add(1);
        encode_with(Version::V10, self.last_xid, message, self.options)
    }

    async fn send(&mut self, message: &Message) -> Result<(), FlowError> {
        let bytes = self.encode(message);
        self.write(&bytes).await
    }

    /// Writes, and reads what arrives meanwhile: a switch whose replies fill the socket reads no more requests.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), FlowError> {
        let (mut reader, mut writer) = self.stream.split();
        let mut chunk = vec![0; 16 << 10];
        let mut left = bytes;
        while !left.is_empty() {
            tokio::select! {
                written = writer.write(left) => left = left.get(written?..).unwrap_or_default(),
                read = reader.read(&mut chunk) => match read? {
                    0 => return Err(FlowError::Closed),
                    n => self.framer.push(chunk.get(..n).unwrap_or_default()),
                },
            }
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<Vec<u8>, FlowError> {
        let mut chunk = vec![0; 16 << 10];
        loop {
            if let Some(message) = self.framer.next_message()? {
                return Ok(message.to_vec());
            }
            match self.stream.read(&mut chunk).await? {
                0 => return Err(FlowError::Closed),
                n => self.framer.push(chunk.get(..n).unwrap_or_default()),
            }
        }
    }

    /// The next message, but for probes, which are answered.
    async fn reply(&mut self) -> Result<(Xid, Message), FlowError> {
        let message = self.receive().await?;
        self.decoded(&message).await
    }

    async fn decoded(&mut self, message: &[u8]) -> Result<(Xid, Message), FlowError> {
        let (version, xid, message) = decode(message)?;
        if let Message::EchoRequest(data) = &message {
            let reply = openflow::encode(version, xid, &Message::EchoReply(data.clone()));
            self.write(&reply).await?;
        }
        Ok((xid, message))
    }
}

async fn in_time<T>(exchange: impl Future<Output = Result<T, FlowError>>) -> Result<T, FlowError> {
    tokio::time::timeout(REPLY_MAX, exchange).await.unwrap_or(Err(FlowError::Silent))
}

fn refused(report: &ErrorReport) -> FlowError {
    FlowError::Refused(match report.error {
        ReportedError::Known(error) => error.name().to_owned(),
        ReportedError::Unknown(ErrorNumber { vendor, ty, code }) => {
            format!("error of vendor {vendor:#x}, type {ty}, code {code}")
        }
    })
}
