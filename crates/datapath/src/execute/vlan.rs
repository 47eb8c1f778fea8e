//! Pushing and popping the outer VLAN tag (IEEE 802.1Q, 802.1ad).

use base::DropReason;
use packet::Packet;

/// The offset of a tag: behind both addresses.
const TAG_AT: usize = 12;
const TAG_LEN: usize = 4;
/// The bit that marks a tag as present in keys; on the wire it is DEI, and is written as zero.
pub(crate) const PRESENT: u16 = 0x1000;

/// Pushes a tag behind the addresses.
pub(crate) fn push(packet: &mut Packet, tpid: u16, tci: u16) -> Result<(), DropReason> {
    if packet.l3_type.is_some() || packet.len() < TAG_AT {
        return Err(DropReason::Truncated);
    }
    let tag = packet.insert(TAG_AT, TAG_LEN);
    write(tag, tpid, tci);
    packet.tags = packet.tags.saturating_add(1);
    Ok(())
}

/// Removes the outer tag. A packet without one stays unchanged.
pub(crate) fn pop(packet: &mut Packet) -> Result<(), DropReason> {
    if packet.l3_type.is_some() || !has_tag(packet.data(), TAG_AT) {
        return Ok(());
    }
    // An Ethernet type must follow the tag.
    if packet.len() < TAG_AT + TAG_LEN + 2 || !packet.remove(TAG_AT, TAG_LEN) {
        return Err(DropReason::Truncated);
    }
    packet.tags = packet.tags.saturating_sub(1);
    Ok(())
}

/// Removes the outer tag and pushes another one: the same as [`pop`] and [`push`], without moving the addresses.
pub(crate) fn replace(packet: &mut Packet, tpid: u16, tci: u16) -> Result<(), DropReason> {
    if packet.l3_type.is_none()
        && has_tag(packet.data(), TAG_AT)
        && packet.len() >= TAG_AT + TAG_LEN + 2
        && let Some(tag) = packet.data_mut().get_mut(TAG_AT..TAG_AT + TAG_LEN)
    {
        write(tag, tpid, tci);
        return Ok(());
    }
    pop(packet)?;
    push(packet, tpid, tci)
}

fn write(tag: &mut [u8], tpid: u16, tci: u16) {
    let (protocol, information) = tag.split_at_mut(2);
    protocol.copy_from_slice(&tpid.to_be_bytes());
    information.copy_from_slice(&(tci & !PRESENT).to_be_bytes());
}

/// Returns true if the Ethernet type at `at` is that of a VLAN tag.
pub(crate) fn has_tag(frame: &[u8], at: usize) -> bool {
    matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Checksum;

    #[test]
    fn push_then_pop() {
        let frame: Vec<u8> = (0..60).collect();
        let mut p = Packet::from_slice(&frame);
        p.offload.checksum = Checksum::Partial { start: 34, offset: 16 };
        push(&mut p, 0x8100, 0xb123).expect("long enough");
        push(&mut p, 0x88a8, 0x0456).expect("long enough");
        assert_eq!(p.data()[..12], frame[..12]);
        assert_eq!(p.data()[12..20], [0x88, 0xa8, 0x04, 0x56, 0x81, 0x00, 0xa1, 0x23]);
        assert_eq!(p.offload.checksum, Checksum::Partial { start: 42, offset: 16 });
        pop(&mut p).expect("tagged");
        pop(&mut p).expect("tagged");
        assert_eq!(p.data(), frame);
        pop(&mut p).expect("untagged");
        assert_eq!(p.data(), frame);
    }

    #[test]
    fn replacing_is_popping_and_pushing() {
        let start: Vec<u8> = (0..12).collect();
        let frames = [
            [&start[..], &[0x81, 0, 0x61, 0x23, 8, 0], &[7; 40]].concat(),
            [&start[..], &[0x88, 0xa8, 0x61, 0x23, 0x81, 0, 0, 1, 8, 0], &[7; 40]].concat(),
            [&start[..], &[8, 0], &[7; 40]].concat(),
            [&start[..], &[0x81, 0, 0, 1]].concat(),
            start.clone(),
            start[..11].to_vec(),
        ];
        for frame in frames {
            let [mut one, mut two] = [Packet::from_slice(&frame), Packet::from_slice(&frame)];
            for p in [&mut one, &mut two] {
                p.tags = i8::from(has_tag(&frame, TAG_AT));
                p.offload.checksum = Checksum::Partial { start: 34, offset: 16 };
            }
            let result = replace(&mut one, 0x88a8, 0x7456);
            assert_eq!(result, pop(&mut two).and_then(|()| push(&mut two, 0x88a8, 0x7456)), "{frame:x?}");
            assert_eq!((one.data(), one.tags, one.offload.checksum), (two.data(), two.tags, two.offload.checksum));
        }
    }

    #[test]
    fn a_truncated_tag_is_an_error() {
        let mut p = Packet::from_slice(&[[0; 12].as_slice(), &[0x81, 0, 0, 1]].concat());
        assert_eq!(pop(&mut p), Err(DropReason::Truncated));
        assert_eq!(push(&mut Packet::from_slice(&[0; 11]), 0x8100, 1), Err(DropReason::Truncated));
    }
}
