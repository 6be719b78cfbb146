"""The text of an API key: `chr_`, 32 random base62 characters (190 bits), 6 characters of CRC-32.

The checksum lets a mistyped or cut key be refused without a query, and lets secret scanners know a real one.
"""

import hashlib
import re
import secrets
import string
import zlib

PREFIX = "chr_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM = 32
_CHECKSUM = 6
_SHAPE = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_RANDOM + _CHECKSUM}}}")


def generate_key() -> str:
    body = PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return body + _checksum(body)


def looks_valid(key: str) -> bool:
    """Whether shape and checksum are right. Asks no database."""
    return _SHAPE.fullmatch(key) is not None and _checksum(key[:-_CHECKSUM]) == key[-_CHECKSUM:]


def hash_key(key: str) -> str:
    """SHA-256 in hex: what is stored. A random key of 190 bits needs no salt and no slow hash."""
    return hashlib.sha256(key.encode()).hexdigest()


def shown_prefix(key: str) -> str:
    """The part by which people recognise the key."""
    return key[:12]


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(_CHECKSUM):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits
