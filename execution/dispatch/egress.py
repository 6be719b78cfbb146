"""The egress guard: may this URL be called, and at which address. It stands between people's URLs and the network.

`judge` is called by the gate before every send, with a resolver; `judge_syntax` when a URL is saved. Neither raises:
what cannot be read is refused, and so is what two readers could read differently. Every address that a name resolves
to must be allowed, and the send connects to the one judged (`Verdict.address`), never to what a second look-up says.
`Verdict.url` is what is to be sent; the HTTP client's own reader has agreed on its host and port.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

import idna
from pyreqwest.http import Url

from execution.dispatch.networks import Address, Network, parse_networks, why_refused

__all__ = ["Network", "Verdict", "judge", "judge_syntax", "parse_networks"]

LONGEST_URL = 8000
LONGEST_NAME = 253
LONGEST_LABEL = 63
DEFAULT_PORTS = {"http": 80, "https": 443}

# re.ASCII with re.IGNORECASE: without it the long s (U+017F) would match "s".
_URL = re.compile(r"(https?)://([^/?#]+)([^?#]*)(\?[^#]*)?(?:#.*)?", re.ASCII | re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_JOINERS = "\u200c\u200d"

NO_ADDRESS = "the host has no address"
"""The reason of a name that resolves to nothing: no refusal of the target, and perhaps another answer later."""


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: str = ""
    """Why not: a clause for a person, without addresses that a name resolved to. Empty where allowed."""
    address: str | None = None
    """The address to connect to; None where refused, or where no name was resolved."""
    host: str = ""
    """As the Host header and SNI name it: lower-case ASCII, without a trailing dot, IPv6 in brackets."""
    port: int = 0
    scheme: str = ""
    url: str = ""
    """The URL to send: ASCII, normalised, without fragment."""


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """Carries the reason."""


def judge(url: str, resolve: Callable[[str], Sequence[str]], *, allow: Sequence[Network] = ()) -> Verdict:
    """May `url` be called? Never raises.

    `resolve` is asked for names only, with the ASCII host, and answers its addresses; what it raises, and an empty
    answer, refuse the URL. `allow` lets through networks that are refused otherwise; the rule for ports stays.
    """
    read = _read(url)
    if not read.allowed or read.address is not None:
        return _judge_literal(read, allow)
    try:
        answers = [_answered(text) for text in resolve(read.host)]
    except Exception:  # A resolver may fail in any way; all of them leave nothing to judge.
        return _refusal("the host could not be resolved")
    if not answers:
        return _refusal(NO_ADDRESS)
    if any(address is None or why_refused(address, allow) for address in answers):
        return _refusal("the host resolves to an address that may not be called")
    return replace(read, address=str(answers[0]))


def judge_syntax(url: str, *, allow: Sequence[Network] = ()) -> Verdict:
    """The part of `judge` that needs no resolver: syntax, scheme, port and literal addresses. Never raises.

    Where the host is a name, an allowed verdict has no `address` and promises nothing about where the name leads.
    """
    return _judge_literal(_read(url), allow)


def _refusal(reason: str) -> Verdict:
    return Verdict(False, reason)


def _judge_literal(read: Verdict, allow: Sequence[Network]) -> Verdict:
    if not read.allowed or read.address is None:
        return read
    kind = why_refused(ip_address(read.address), allow)
    return read if kind is None else _refusal(f"{read.address} is not a public address ({kind})")


def _answered(text: object) -> Address | None:
    """One of the resolver's answers; None for anything but the plain text of an address (a zone is not plain)."""
    try:
        return ip_address(text) if isinstance(text, str) and "%" not in text else None
    except ValueError:
        return None


def _read(url: object) -> Verdict:
    """What `url` says; allowed if it can be read in one way only. `address` is set where the host is a literal."""
    return _read_text(url) if isinstance(url, str) else _refusal("a URL is a text")


@lru_cache(maxsize=1024)
def _read_text(url: str) -> Verdict:
    try:
        return _parse(url)
    except _Refused as refused:
        return _refusal(str(refused))


def _parse(url: str) -> Verdict:
    _check_characters(url)
    match = _URL.fullmatch(url)
    if match is None:
        raise _Refused("only http:// and https:// with a host can be called")
    scheme = match[1].lower()
    host, port = _split_authority(match[2], scheme)
    if host.startswith("["):
        address: Address | None = _ipv6(host)
        host = f"[{address}]"
    else:
        name = _ascii_name(host)
        address = _ipv4(name, host)
        host = name if address is None else str(address)
    sent = _as_the_client_reads(f"{scheme}://{host}:{port}{match[3] or '/'}{match[4] or ''}", host, address, port)
    return Verdict(
        True,
        address=None if address is None else str(address),
        host=sent.host_str or "",
        port=port,
        scheme=scheme,
        url=str(sent),
    )


def _check_characters(url: str) -> None:
    if len(url) > LONGEST_URL:
        raise _Refused(f"a URL has at most {LONGEST_URL} characters")
    if "\\" in url:
        raise _Refused("a URL has no backslash")
    if url.isascii() and url.isprintable() and " " not in url:
        return
    for character in url:
        # Cc control, Cs lone surrogate, Z* white space of every kind.
        if unicodedata.category(character) in {"Cc", "Cs", "Zs", "Zl", "Zp"}:
            raise _Refused("a URL has no white space and no control characters")


def _split_authority(authority: str, scheme: str) -> tuple[str, int]:
    if "@" in authority:
        raise _Refused("a URL with a user name or password cannot be called")
    if "%" in authority:
        raise _Refused("a host name has no percent sign, an address no zone")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise _Refused("the host or port cannot be read")
    port = DEFAULT_PORTS[scheme] if match[2] is None else int(match[2])
    if port not in (80, 443) and not 1024 <= port <= 65535:
        raise _Refused("the port must be 80, 443 or 1024 to 65535")
    return match[1], port


def _ipv6(host: str) -> IPv6Address:
    try:
        return IPv6Address(host[1:-1])
    except ValueError:
        raise _Refused("the host is not an IPv6 address") from None


def _ascii_name(host: str) -> str:
    """The host in lower-case ASCII, without the trailing dot of an absolute name. IDNA 2008 over UTS 46 mapping."""
    if len(host) > LONGEST_NAME + 1:
        raise _Refused(f"a host name has at most {LONGEST_NAME} characters")
    name = host.lower() if host.isascii() else _mapped(host)
    name = name.removesuffix(".")
    labels = [_ascii_label(label) for label in name.split(".")]
    name = ".".join(labels)
    if len(name) > LONGEST_NAME:
        raise _Refused(f"a host name has at most {LONGEST_NAME} characters")
    return name


def _mapped(host: str) -> str:
    if any(unicodedata.category(character) == "Cf" and character not in _JOINERS for character in host):
        raise _Refused("a host name has no invisible characters")
    try:
        return idna.uts46_remap(host)
    except UnicodeError:  # IDNAError is one
        raise _Refused("the host is not an international name") from None


def _ascii_label(label: str) -> str:
    if not label:
        raise _Refused("a host name has no empty label")
    try:
        if not label.isascii():
            label = idna.alabel(label).decode("ascii")
        elif label.startswith("xn--"):
            idna.ulabel(label)
    except UnicodeError:
        raise _Refused("the host is not an international name") from None
    if len(label) > LONGEST_LABEL:
        raise _Refused(f"a label of a host name has at most {LONGEST_LABEL} characters")
    if not _LABEL.fullmatch(label):
        raise _Refused("a host name has letters, digits and inner hyphens")
    return label


def _ipv4(name: str, written: str) -> IPv4Address | None:
    """The IPv4 address that a name ending in a number means; None for other names.

    Short, integer and hex forms mean one address to all who read them. Refused are those that do not: leading zeros
    (octal or decimal), numbers that do not fit, an address with a trailing dot, digits beyond ASCII.
    """
    parts = name.split(".")
    if not _NUMERIC.fullmatch(parts[-1]):
        return None
    if written.endswith(".") or not written.isascii():
        raise _Refused("this form of an address is read in different ways")
    numbers = [_number(part) for part in parts]
    *heads, last = numbers
    if len(numbers) > 4 or any(head > 255 for head in heads) or last >= 256 ** (5 - len(numbers)):
        raise _Refused("the host ends in a number and is not an IPv4 address")
    value = last
    for position, head in enumerate(heads):
        value += head << (24 - 8 * position)
    return IPv4Address(value)


def _number(part: str) -> int:
    if re.fullmatch(r"0x[0-9a-f]+", part):
        return int(part, 16)
    if not re.fullmatch(r"[0-9]+", part):
        raise _Refused("the host ends in a number and is not an IPv4 address")
    value = int(part)
    if part != str(value) and (re.search("[89]", part) or int(part, 8) != value):
        raise _Refused("this form of an address is read in different ways")
    return value


def _as_the_client_reads(url: str, host: str, address: Address | None, port: int) -> Url:
    """The client's own reading of `url`, refused where it would call anything but `host` and `port`."""
    try:
        sent = Url(url)
        read = sent.host_str or ""
        same = read == host if address is None else ip_address(read.strip("[]")) == address
    except ValueError:
        raise _Refused("the URL cannot be read") from None
    if not same or sent.port_or_known_default != port:
        raise _Refused("the URL is read in different ways")
    return sent


def origin_of(url: object) -> str:
    """`scheme://host:port` of a target in the guard's own reading; empty where it cannot be read. Never raises.

    What is held, limited or broken by destination is held under this name, however the URL was written.
    """
    read = _read(url)
    return f"{read.scheme}://{read.host}:{read.port}" if read.allowed else ""


def destination_of(url: object) -> str:
    """`host:port` of a target, as `origin_of` reads it."""
    return origin_of(url).partition("://")[2]
