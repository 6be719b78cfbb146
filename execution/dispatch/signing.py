"""Signatures of deliveries after Standard Webhooks. Pure: the time and the keys are arguments.

`webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, one for each key, separated by
spaces: while a secret is rotated the receiver may know the old one, the new one, or both.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """The key in a secret of the form `whsec_` + base64. Raises ValueError; the text ends a sentence."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"a signing secret begins with {PREFIX}")
    encoded = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (ValueError, binascii.Error):
        raise ValueError(f"after {PREFIX} a signing secret is base64") from None
    if not key:
        raise ValueError(f"a signing secret has a key after {PREFIX}")
    return key


def signature_headers(*, message_id: str, timestamp_s: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """The three headers; `timestamp_s` is that of the attempt, in Unix seconds. A receiver refuses old ones."""
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }
