//! TFTP requests (RFC 1350 section 4): the server answers from a port of its choice to the port of the request.

/// The opcodes of requests: read (RRQ) and write (WRQ).
const REQUESTS: [u16; 2] = [1, 2];

/// Returns true if the payload of a datagram is a read or a write request.
pub fn is_request(payload: &[u8]) -> bool {
    payload.first_chunk().is_some_and(|opcode| REQUESTS.contains(&u16::from_be_bytes(*opcode)))
}
