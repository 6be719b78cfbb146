"""Settings that are unsafe, or that leave a part out."""

from collections.abc import Iterator
from ipaddress import ip_network

from django.conf import settings

from chronos_site.console.checks.finding import Finding

LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}
WIDE_BITS = 8
"""A network with fewer fixed bits than this is half the Internet, or all of it."""
SHORTEST_SECRET = 32


def check_settings() -> Iterator[Finding]:
    found = list(_faults())
    yield from found
    if not any(finding.level == "fail" for finding in found):
        yield Finding("settings", "ok", "Nothing in the settings is unsafe.")


def _faults() -> Iterator[Finding]:
    if settings.DEBUG:
        yield Finding(
            "DJANGO_DEBUG",
            "fail",
            "It is on: error pages show settings and payloads to whoever causes an error, and memory grows.",
            "Remove DJANGO_DEBUG from the environment of every process.",
        )
    yield from _secret_key()
    yield from _hosts()
    yield from _egress()
    if not settings.SESSION_COOKIE_SECURE:
        yield Finding(
            "DJANGO_SETTINGS_MODULE",
            "warn",
            "Session cookies travel over plain HTTP as well: these are not the settings of production.",
            "Behind TLS, set DJANGO_SETTINGS_MODULE=chronos_site.settings.production. On one machine it may stay.",
        )
    if settings.MONGO_URL is None:
        yield Finding("MONGO_URL", "warn", "It is not set: no attempt is logged.", "Set it to keep attempts.")
    if "objects" not in settings.STORAGES:
        yield Finding("STORAGE_URL", "warn", "It is not set: bulk jobs and exports are refused.", "Set it (README).")


def _secret_key() -> Iterator[Finding]:
    key = settings.SECRET_KEY
    if key.startswith("django-insecure") or len(key) < SHORTEST_SECRET or len(set(key)) < 8:
        yield Finding(
            "DJANGO_SECRET_KEY",
            "fail",
            "It is short or made by a template: who guesses it signs in as anybody.",
            "Make one: python -c 'import secrets; print(secrets.token_urlsafe(48))'. Everybody has to log in again.",
        )


def _hosts() -> Iterator[Finding]:
    if "*" in settings.ALLOWED_HOSTS:
        yield Finding(
            "ALLOWED_HOSTS",
            "fail",
            "It takes any host name, so links in answers can be made to point anywhere.",
            "Name the hosts of the site, with commas between them.",
        )
    elif set(settings.ALLOWED_HOSTS) <= LOOPBACK:
        yield Finding(
            "ALLOWED_HOSTS",
            "warn",
            "It holds loopback only: from other machines the API answers 400.",
            "Name the hosts of the site. On one machine it may stay.",
        )


def _egress() -> Iterator[Finding]:
    networks = [ip_network(text, strict=False) for text in settings.CHRONOS_EGRESS_ALLOW]
    wide = [str(network) for network in networks if network.prefixlen < WIDE_BITS]
    if wide:
        yield Finding(
            "CHRONOS_EGRESS_ALLOW",
            "fail",
            f"{', '.join(wide)} opens nearly everything: any tenant can reach internal services and cloud metadata.",
            "Name the exact networks that deliveries must reach, or none: public addresses are allowed without it.",
        )
        return
    near = [str(network) for network in networks if network.is_loopback or network.is_link_local]
    if near:
        yield Finding(
            "CHRONOS_EGRESS_ALLOW",
            "warn",
            f"{', '.join(near)} lets any tenant call this machine itself.",
            "Fine for trying things out. On a site with tenants, remove it.",
        )
