//! Names in certificates (RFC 5280 section 4.1), as far as they matter here: whether a certificate is a CA's, and its owner's
//! name. `rustls` and `webpki` read certificates to verify them, and ignore these names.

/// The object identifier of common names (RFC 4519 section 2.3), 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Tags of strings in which ASCII bytes stand for themselves: UTF8String, PrintableString, TeletexString, IA5String.
const PLAIN_STRINGS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

/// The contents of the issuer's name of a certificate.
pub(crate) fn issuer(certificate: &[u8]) -> Option<&[u8]> {
    Some(element(from_issuer(certificate)?)?.1)
}

/// The first common name of a certificate's subject, if it is text.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, _, validity_and_subject) = element(from_issuer(certificate)?)?;
    let (_, _, subject) = element(validity_and_subject)?;
    let (_, mut sets, _) = element(subject)?;
    while !sets.is_empty() {
        let (_, mut attributes, rest) = element(sets)?;
        sets = rest;
        while !attributes.is_empty() {
            let (_, attribute, rest) = element(attributes)?;
            attributes = rest;
            let (_, kind, value) = element(attribute)?;
            if kind == COMMON_NAME {
                let (tag, text, _) = element(value)?;
                let text = std::str::from_utf8(text).ok().filter(|_| PLAIN_STRINGS.contains(&tag))?;
                return Some(text.to_owned()).filter(|text| !text.is_empty() && !text.contains('\0'));
            }
        }
    }
    None
}

/// A certificate's fields from its issuer on: after version, serial number and algorithm.
fn from_issuer(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    if let (0xa0, _, rest) = element(fields)? {
        fields = rest;
    }
    for _ in 0..2 {
        fields = element(fields)?.2;
    }
    Some(fields)
}

/// The tag and contents of a DER element at the front of `bytes`, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        _ => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().try_fold(0usize, |n, byte| n.checked_mul(256)?.checked_add((*byte).into()))?, rest)
        }
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = contents.len();
        let head =
            if length < 0x80 { vec![tag, length as u8] } else { vec![tag, 0x82, (length >> 8) as u8, length as u8] };
        [head, contents.to_vec()].concat()
    }

    /// A name with one attribute a set: the last byte of its type, the string's tag, and the string.
    fn name(attributes: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let set = |(kind, tag, text): &(u8, u8, &[u8])| {
            der(0x31, &der(0x30, &[der(0x06, &[0x55, 0x04, *kind]), der(*tag, text)].concat()))
        };
        der(0x30, &attributes.iter().flat_map(set).collect::<Vec<_>>())
    }

    fn certificate(version: bool, subject: &[u8]) -> Vec<u8> {
        let version = if version { der(0xa0, &der(0x02, &[2])) } else { Vec::new() };
        let (serial, algorithm, validity) = (der(0x02, &[1]), der(0x30, &[]), der(0x30, &[]));
        let fields = [version, serial, algorithm, name(&[(3, 0x0c, b"ca")]), validity, subject.to_vec()].concat();
        der(0x30, &[der(0x30, &fields), der(0x30, &[]), der(0x03, &[0])].concat())
    }

    #[test]
    fn owners_are_called_by_their_first_common_name() {
        let called = |attributes: &[(u8, u8, &[u8])]| common_name(&certificate(true, &name(attributes)));
        assert_eq!(called(&[(3, 0x0c, b"one")]).as_deref(), Some("one"));
        assert_eq!(called(&[(10, 0x0c, b"o"), (3, 0x13, b"one"), (3, 0x0c, b"two")]).as_deref(), Some("one"));
        assert_eq!(called(&[(3, 0x0c, &[b'x'; 300])]), Some("x".repeat(300)));
        // Binary data is no name, nor a string that C programs would cut at a zero byte.
        for none in [&b""[..], b"admin\0.evil", b"\xff"] {
            assert_eq!(called(&[(3, 0x0c, none), (3, 0x0c, b"two")]), None);
        }
        assert_eq!(called(&[(3, 0x1e, b"\0a\0b")]), None);
        assert_eq!(called(&[(10, 0x0c, b"o")]), None);
        assert_eq!(called(&[]), None);
        assert_eq!(common_name(&certificate(false, &name(&[(3, 0x16, b"old")]))).as_deref(), Some("old"));
    }

    #[test]
    fn truncated_handshakes_have_no_server_name() {
        let subject = name(&[(3, 0x0c, b"one")]);
        let whole = certificate(true, &subject);
        assert_eq!(issuer(&whole).map(<[u8]>::to_vec), Some(name(&[(3, 0x0c, b"ca")])[2..].to_vec()));
        for end in 0..whole.len() {
            assert_eq!((common_name(&whole[..end]), issuer(&whole[..end])), (None, None), "{end}");
        }
        for at in 0..whole.len() {
            for byte in [0x00, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                // Any result will do.
                let _ = (common_name(&changed), issuer(&changed));
            }
        }
    }
}
