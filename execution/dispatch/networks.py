"""Which addresses deliveries may reach: the public Internet, and what an operator lists by exact network.

The tables follow the IANA special-purpose address registries (IPv4 and IPv6, as of 2025); `ipaddress.is_global` is no
guard, since it is True for 6to4, NAT64, site-local, multicast and more. What is in no table is judged as well: IPv6
outside 2000::/3 is not allocated, and therefore refused.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_REACHABLE_V4 = tuple(
    map(
        IPv4Network,
        (
            "192.0.0.9/32",  # Port Control Protocol anycast
            "192.0.0.10/32",  # TURN anycast
        ),
    )
)
"""Inside the refused networks, yet called globally reachable by the registry."""

_REFUSED_V4 = tuple(
    (IPv4Network(network), name)
    for network, name in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared address space"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud platform's agent"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)

_REACHABLE_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001:1::1/128",  # Port Control Protocol anycast
            "2001:1::2/128",  # TURN anycast
            "2001:1::3/128",  # DNS-SD registration anycast
            "2001:3::/32",  # multicast tunnelling relays
            "2001:4:112::/48",  # AS112
            "2001:20::/28",  # ORCHIDv2
            "2001:30::/28",  # drone identifiers
        ),
    )
)

_REFUSED_V6 = tuple(
    (IPv6Network(network), name)
    for network, name in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard-only"),
        ("100:0:0:1::/64", "dummy prefix"),
        ("2001::/32", "Teredo"),
        ("2001:2::/48", "benchmarking"),
        ("2001:10::/28", "ORCHID"),
        ("2001:db8::/32", "documentation"),
        ("2001::/23", "protocol assignments"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "unique local"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_EXACT_CIDR = re.compile(r"[0-9a-fA-F:.]+/[0-9]{1,3}")


def why_refused(address: Address, allow: Sequence[Network] = ()) -> str | None:
    """What kind of address it is, where no delivery may go there; None where one may.

    An IPv6 form that carries an IPv4 address needs an IPv6 entry of its own in `allow`: what an operator says of an
    IPv4 network says nothing of the tunnels and translators that lead to such addresses.
    """
    if any(address in network for network in allow):
        return None
    return _why_v4(address) if isinstance(address, IPv4Address) else _why_v6(address)


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks of an allow-list. Raises ValueError, in one sentence, for what is not an exact CIDR."""
    return tuple(_parse_network(text) for text in texts)


@lru_cache(maxsize=256)
def _parse_network(text: str) -> Network:
    if _EXACT_CIDR.fullmatch(text):
        try:
            return ip_network(text)
        except ValueError:
            pass
    raise ValueError(
        f"{text!r} is not an exact network: write address and prefix length without host bits, such as 10.1.0.0/16."
    )


def _why_v4(address: IPv4Address) -> str | None:
    if any(address in network for network in _REACHABLE_V4):
        return None
    return next((name for network, name in _REFUSED_V4 if address in network), None)


def _why_v6(address: IPv6Address) -> str | None:
    if address.scope_id is not None:
        return "with a zone"
    if address in _NAT64:
        # The well-known prefix is as public as the IPv4 address behind the translator.
        inner = _why_v4(IPv4Address(int(address) & 0xFFFF_FFFF))
        return None if inner is None else f"NAT64, {inner}"
    if any(address in network for network in _REACHABLE_V6):
        return None
    found = next((name for network, name in _REFUSED_V6 if address in network), None)
    return found if found or address in _GLOBAL_UNICAST else "not allocated"
