"""Reading capture files while a dummy port still writes them."""

import struct

FILE_HEADER_LEN = 24
RECORD_HEADER_LEN = 16


def packets(path):
    """The frames in a capture file so far, without an incomplete record at the end."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    if len(data) < FILE_HEADER_LEN:
        return []
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    found = []
    at = FILE_HEADER_LEN
    while at + RECORD_HEADER_LEN <= len(data):
        (length,) = struct.unpack_from(order + "I", data, at + 8)
        at += RECORD_HEADER_LEN
        if at + length > len(data):
            break
        found.append(data[at : at + length])
        at += length
    return found
