//! Random frames of every protocol that the parser knows, valid and damaged.

use base::rng::Rng;

/// A random frame; in two of five cases bytes are changed, cut off or added.
pub fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut f = whole(rng);
    match rng.below(10) {
        0 | 1 => damage(rng, &mut f),
        2 => f.truncate(1 + rng.below(f.len() as u64) as usize),
        3 => {
            damage(rng, &mut f);
            f.truncate(1 + rng.below(f.len() as u64) as usize);
        }
        4 => {
            let most = pick(rng, &[30, 30, 30, 400]);
            let n = rng.below(most) as usize;
            f.extend(std::iter::repeat_n(0, n));
        }
        _ => {}
    }
    f
}

/// Changes up to four bytes, mostly in the headers.
fn damage(rng: &mut Rng, f: &mut [u8]) {
    for _ in 0..=rng.below(4) {
        let span = if rng.below(3) == 0 { f.len() } else { f.len().min(64) };
        let at = rng.below(span as u64) as usize;
        if let Some(b) = f.get_mut(at) {
            *b = match rng.below(3) {
                0 => *b ^ (1 << rng.below(8)),
                1 => rng.next_u64() as u8,
                _ => b.wrapping_add(1),
            };
        }
    }
}

fn bytes(rng: &mut Rng, n: usize) -> Vec<u8> {
    (0..n).map(|_| rng.next_u64() as u8).collect()
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// A right frame.
pub fn whole(rng: &mut Rng) -> Vec<u8> {
    let mut f = bytes(rng, 12);
    for _ in 0..pick(rng, &[0, 0, 0, 0, 1, 1, 2, 3]) {
        f.extend(pick(rng, &[[0x81, 0], [0x88, 0xa8]]));
        f.extend(bytes(rng, 2));
    }
    let (kind, payload) = network(rng);
    match rng.below(12) {
        // SNAP, or a header similar to it.
        0 => {
            f.extend(((payload.len() + 8) as u16 % 0x600).to_be_bytes());
            f.extend(pick(rng, &[[0xaa, 0xaa, 3, 0, 0, 0], [0xaa, 0xaa, 3, 0, 0, 1], [0x42, 0x42, 3, 0, 0, 0]]));
            f.extend(kind.to_be_bytes());
        }
        _ => f.extend(kind.to_be_bytes()),
    }
    f.extend(payload);
    f
}

/// An Ethernet type and its payload.
fn network(rng: &mut Rng) -> (u16, Vec<u8>) {
    match rng.below(15) {
        0..=4 => (0x0800, ipv4(rng)),
        5..=9 => (0x86dd, ipv6(rng)),
        10 => (pick(rng, &[0x0806, 0x8035]), arp(rng)),
        11 => (pick(rng, &[0x8847, 0x8848]), mpls(rng)),
        12 => (0x894f, nsh(rng)),
        13 => (0x88e7, pbb(rng)),
        _ => {
            let kind = rng.next_u64() as u16;
            let n = rng.below(60) as usize;
            (kind, bytes(rng, n))
        }
    }
}

fn arp(rng: &mut Rng) -> Vec<u8> {
    let mut p = vec![0, 1, 8, 0, 6, 4, 0, 1 + rng.below(4) as u8];
    if rng.below(8) == 0 {
        p[6] = 1;
    }
    p.extend(bytes(rng, 20));
    p
}

fn mpls(rng: &mut Rng) -> Vec<u8> {
    let n = 1 + rng.below(5);
    let mut p = Vec::new();
    for i in 0..n {
        let bottom = u32::from(i + 1 == n) << 8;
        p.extend((rng.next_u64() as u32 & !0x100 | bottom).to_be_bytes());
    }
    p.extend(ipv4(rng));
    p
}

/// A service instance tag, followed by all or a part of a frame.
fn pbb(rng: &mut Rng) -> Vec<u8> {
    let n = 4 + rng.below(40) as usize;
    bytes(rng, n)
}

fn nsh(rng: &mut Rng) -> Vec<u8> {
    let mdtype = pick(rng, &[1, 1, 2, 3]);
    let words = if mdtype == 1 { 6 } else { 2 + rng.below(4) as u16 };
    let first = (rng.next_u64() as u16 & 0x3fc0) | words;
    let mut p = first.to_be_bytes().to_vec();
    p.extend([mdtype, 1 + rng.below(4) as u8]);
    p.extend(bytes(rng, usize::from(words) * 4 - 4));
    p.extend(bytes(rng, 20));
    p
}

fn ipv4(rng: &mut Rng) -> Vec<u8> {
    let proto = pick(rng, &[1, 2, 6, 6, 17, 17, 132, 47, 58]);
    let options = if rng.below(6) == 0 { rng.below(11) as usize * 4 } else { 0 };
    let payload = transport(rng, proto);
    let fragment: u16 = match rng.below(12) {
        0 => 0x2000,
        1 => rng.next_u64() as u16 & 0x3fff,
        2 => 0x4000,
        3 => 0x8000,
        _ => 0,
    };
    let mut p = vec![0x45 + (options / 4) as u8, rng.next_u64() as u8];
    p.extend(((20 + options + payload.len()) as u16).to_be_bytes());
    p.extend(bytes(rng, 2));
    p.extend(fragment.to_be_bytes());
    p.extend([rng.next_u64() as u8, proto, 0, 0]);
    p.extend(bytes(rng, 8 + options));
    p.extend(payload);
    p
}

fn ipv6(rng: &mut Rng) -> Vec<u8> {
    let proto = pick(rng, &[6, 6, 17, 17, 58, 58, 58, 132, 59, 1, 2]);
    let mut payload = transport(rng, proto);
    let mut next = proto;
    for _ in 0..pick(rng, &[0, 0, 0, 1, 1, 2, 4]) {
        let kind = pick(rng, &[0, 43, 60, 44, 51]);
        let mut header = vec![next];
        match kind {
            44 => {
                header.push(0);
                let fragment = match rng.below(4) {
                    0 => 0u16,
                    1 => 1,
                    2 => rng.below(8) as u16,
                    _ => rng.next_u64() as u16,
                };
                header.extend(fragment.to_be_bytes());
                header.extend(bytes(rng, 4));
            }
            51 => {
                let words = 1 + rng.below(5) as u8;
                header.push(words);
                header.extend(bytes(rng, (usize::from(words) + 2) * 4 - 2));
            }
            _ => {
                let units = rng.below(3) as u8;
                header.push(units);
                header.extend(bytes(rng, (usize::from(units) + 1) * 8 - 2));
            }
        }
        header.extend(payload);
        payload = header;
        next = kind;
    }
    let mut p = (0x6000_0000 | rng.next_u64() as u32 & 0x0fff_ffff).to_be_bytes().to_vec();
    p.extend((payload.len() as u16).to_be_bytes());
    p.extend([next, rng.next_u64() as u8]);
    p.extend(bytes(rng, 32));
    p.extend(payload);
    p
}

fn transport(rng: &mut Rng, proto: u8) -> Vec<u8> {
    let tail = rng.below(30) as usize;
    match proto {
        58 => icmpv6(rng),
        6 => {
            let mut p = bytes(rng, 20 + tail);
            p[12] = p[12] & 0xf | (5 + rng.below(tail as u64 / 4 + 2) as u8) << 4;
            p
        }
        132 => bytes(rng, 12 + tail),
        1 | 2 | 17 => bytes(rng, 8 + tail),
        _ => bytes(rng, tail),
    }
}

fn icmpv6(rng: &mut Rng) -> Vec<u8> {
    if rng.below(4) == 0 {
        return bytes(rng, 8);
    }
    let mut p = vec![pick(rng, &[135, 136, 135, 136, 133, 128]), u8::from(rng.below(8) == 0), 0, 0];
    p.extend(bytes(rng, 20));
    for _ in 0..rng.below(4) {
        let units = pick(rng, &[1, 1, 1, 2, 0]);
        p.extend([pick(rng, &[1, 2, 1, 2, 14]), units]);
        let n = if rng.below(10) == 0 { rng.below(12) as usize } else { (usize::from(units) * 8).saturating_sub(2) };
        if rng.below(10) == 0 {
            p.extend(vec![0; n]);
        } else {
            p.extend(bytes(rng, n));
        }
    }
    p
}

/// The frames in a capture file (libpcap format, Ethernet).
pub fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for n in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1] {
        out.extend(n.to_le_bytes());
    }
    for f in frames {
        for n in [0, 0, f.len() as u32, f.len() as u32] {
            out.extend(n.to_le_bytes());
        }
        out.extend(f);
    }
    out
}
