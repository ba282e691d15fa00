"""Gives the files of an embedded store another format number, with right checksums: what an older version finds after a
newer one. docs/JOURNAL_FORMAT.md has the layout; the checksums are those of libxxhash, which the binary uses too."""

import ctypes
import re
import struct

SECTOR_BYTES = 512
MARK_BYTES = 16  # at the end of a sector: epoch, batch, checksum
HEADER = struct.Struct("<4s3I4Q")  # magic, payload bytes, epoch, batch, sequence, offset, previous, checksum
HEADER_BYTES = HEADER.size
META_MAGIC = b"ONCEKEY"
STORE_FORMAT = 2  # as the binary writes it

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
_xxhash.XXH3_64bits_withSeed.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)


def xxh3(data, seed=0):
    return _xxhash.XXH3_64bits_withSeed(bytes(data), len(data), seed)


def set_meta_format(folder, number):
    meta = folder / "meta"
    content = meta.read_bytes()[:-8]
    content = META_MAGIC + struct.pack("<I", number) + content[len(META_MAGIC) + 4:]
    meta.write_bytes(content + struct.pack("<Q", xxh3(content)))


def set_log_format(folder, number):
    """In the first batch of every segment."""
    salt, = struct.unpack_from("<Q", (folder / "meta").read_bytes(), len(META_MAGIC) + 4)
    for segment in sorted(folder.glob("log/*.segment")):
        with open(segment, "r+b") as file:
            content = bytearray(file.read())
            magic, payload_bytes, *_ = HEADER.unpack_from(content)
            if magic[:3] != b"OKJ":
                continue  # never used
            content[:4] = b"OKJ%d" % number
            payload = b"".join(content[at:at + SECTOR_BYTES - MARK_BYTES] for at in range(0, len(content), SECTOR_BYTES))
            header = bytes(content[:HEADER_BYTES - 8]) + bytes(8)
            checksum = xxh3(payload[HEADER_BYTES:HEADER_BYTES + payload_bytes], xxh3(header, salt))
            struct.pack_into("<Q", content, HEADER_BYTES - 8, checksum)
            place = int(re.match(r"\d+", segment.name)[0]) << 40
            seed = salt ^ (place * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
            struct.pack_into("<Q", content, SECTOR_BYTES - 8, xxh3(content[:SECTOR_BYTES - 8], seed))
            file.seek(0)
            file.write(content[:SECTOR_BYTES])


def set_text_format(path, number):
    """Of a file whose first line is "oncekey NAME NUMBER". A checksum in its last line is made anew."""
    text = re.sub(rb"\A(oncekey \w+) \d+\n", rb"\1 %d\n" % number, path.read_bytes())
    if found := re.search(rb"^end [0-9a-f]{16}\n\Z", text, re.MULTILINE):
        text = text[:found.start()] + b"end %016x\n" % xxh3(text[:found.start()])
    path.write_bytes(text)
