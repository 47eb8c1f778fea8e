//! The common header and the chunks of an SCTP packet (RFC 9260, section 3).

/// Types of chunks (RFC 9260, section 3.2; RFC 8260, section 2.1).
pub(super) const DATA: u8 = 0;
pub(super) const INIT: u8 = 1;
pub(super) const INIT_ACK: u8 = 2;
pub(super) const HEARTBEAT: u8 = 4;
pub(super) const ABORT: u8 = 6;
pub(super) const SHUTDOWN: u8 = 7;
pub(super) const SHUTDOWN_ACK: u8 = 8;
pub(super) const COOKIE_ECHO: u8 = 10;
pub(super) const COOKIE_ACK: u8 = 11;
pub(super) const SHUTDOWN_COMPLETE: u8 = 14;
pub(super) const I_DATA: u8 = 64;

/// The flag of ABORT and SHUTDOWN COMPLETE with the reflected tag (RFC 9260, section 8.5.1).
const FLAG_T: u8 = 1;

const COMMON_HEADER: usize = 12;
const CHUNK_HEADER: usize = 4;

/// The length of INIT and INIT ACK without parameters.
const INIT_LEN: usize = 20;

/// The verification tag and the chunks of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) tag: u32,
    chunks: &'a [u8],
}

/// A chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    /// Its type.
    pub(super) kind: u8,
    /// Whether it has the T bit.
    pub(super) is_reflected: bool,
    /// The initiate tag of INIT and INIT ACK, 0 for others.
    pub(super) initiate_tag: u32,
}

/// The packet or a chunk is cut off, or violates the rules of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

impl<'a> Packet<'a> {
    /// Reads the common header. Returns `None` if there is not also the header of one chunk.
    #[inline]
    pub(super) fn read(l4: &'a [u8]) -> Option<Self> {
        let header: &[u8; COMMON_HEADER + CHUNK_HEADER] = l4.first_chunk()?;
        let tag = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        Some(Self { tag, chunks: &l4[COMMON_HEADER..] })
    }

    /// Returns true if user data is first in the packet: control chunks come before it (RFC 9260, section 6.10).
    #[inline]
    pub(super) fn begins_with_data(&self) -> bool {
        is_data(self.chunks[0]) && self.first_len().is_some()
    }

    /// The control chunks, and the first chunk of user data, behind which there are no others.
    pub(super) fn chunks(&self) -> Chunks<'a> {
        Chunks { rest: self.chunks, is_first: true }
    }

    fn first_len(&self) -> Option<usize> {
        chunk_len(self.chunks)
    }
}

/// The length of the first chunk of `bytes`, with its header and without padding, if it is complete.
#[inline]
fn chunk_len(bytes: &[u8]) -> Option<usize> {
    let header: &[u8; CHUNK_HEADER] = bytes.first_chunk()?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    (CHUNK_HEADER..=bytes.len()).contains(&len).then_some(len)
}

#[inline]
fn is_data(kind: u8) -> bool {
    kind == DATA || kind == I_DATA
}

/// Iterates over chunks. Each step takes at least 4 bytes of the packet.
#[derive(Clone, Debug)]
pub(super) struct Chunks<'a> {
    rest: &'a [u8],
    is_first: bool,
}

impl Iterator for Chunks<'_> {
    type Item = Result<Chunk, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < CHUNK_HEADER {
            return None;
        }
        let bytes = std::mem::take(&mut self.rest);
        let Some(len) = chunk_len(bytes) else { return Some(Err(Malformed)) };
        let kind = bytes[0];
        if !is_data(kind) {
            self.rest = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        let is_alone = std::mem::take(&mut self.is_first) && self.rest.is_empty();
        Some(read_chunk(&bytes[..len], is_alone))
    }
}

/// Reads a complete chunk. Some chunks have to be alone in their packet (RFC 9260, section 6.10).
fn read_chunk(bytes: &[u8], is_alone: bool) -> Result<Chunk, Malformed> {
    let kind = bytes[0];
    if matches!(kind, INIT | INIT_ACK | SHUTDOWN_COMPLETE) && !is_alone {
        return Err(Malformed);
    }
    let is_reflected = matches!(kind, ABORT | SHUTDOWN_COMPLETE) && bytes[1] & FLAG_T != 0;
    let mut initiate_tag = 0;
    if matches!(kind, INIT | INIT_ACK) {
        let fixed: &[u8; INIT_LEN] = bytes.first_chunk().ok_or(Malformed)?;
        initiate_tag = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        // RFC 9260, section 3.3.2.
        if initiate_tag == 0 {
            return Err(Malformed);
        }
    }
    Ok(Chunk { kind, is_reflected, initiate_tag })
}
