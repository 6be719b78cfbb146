"""The only reader of `os.environ`. A value that is missing or cannot be read stops the process with one sentence."""

import os
import re
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from chronos_site.infra.kafka import parse_bootstrap
from chronos_site.infra.references import NAMESPACE
from chronos_site.infra.storage_url import backend_of
from execution.dispatch.networks import parse_networks

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


def text(name: str, default: str | None = None) -> str:
    """The variable as text. Raises ImproperlyConfigured where it is unset and has no default."""
    value = os.environ.get(name, default)
    if value is None:
        raise ImproperlyConfigured(f"{name} is not set. Set it in the environment (README, section Settings).")
    return value


def optional(name: str) -> str | None:
    """The variable as text, or None where it is unset or empty."""
    return os.environ.get(name) or None


def absolute_path(name: str) -> str | None:
    """A file's path that means the same in every process, or None where it is unset or empty."""
    value = optional(name)
    if value is not None and not value.startswith("/"):
        raise ImproperlyConfigured(f"{name}={value!r} is not an absolute path. Begin it with /.")
    return value


def flag(name: str, default: bool = False) -> bool:
    raw = os.environ.get(name)
    if raw is None or raw == "":
        return default
    if raw.lower() in _TRUE:
        return True
    if raw.lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}={raw!r} is neither true nor false. Use 1 or 0.")


def number(name: str, default: float, *, low: float, high: float) -> float:
    """A number in [low, high]."""
    raw = os.environ.get(name)
    if raw is None or raw == "":
        return default
    try:
        value = float(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r} is not a number.") from None
    if not low <= value <= high:
        raise ImproperlyConfigured(f"{name}={raw} is outside {low:g} to {high:g}.")
    return value


def integer(name: str, default: int, *, low: int, high: int) -> int:
    value = number(name, default, low=low, high=high)
    if value != int(value):
        raise ImproperlyConfigured(f"{name}={value} is not a whole number.")
    return int(value)


def items(name: str, default: str = "") -> list[str]:
    """A comma-separated list, blanks removed."""
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def choice(name: str, default: str, *among: str) -> str:
    """One of the words in `among`."""
    value = os.environ.get(name) or default
    if value not in among:
        raise ImproperlyConfigured(f"{name}={value!r} is not one of {', '.join(among)}.")
    return value


def refuse(why: str) -> NoReturn:
    """For values that do not go together."""
    raise ImproperlyConfigured(why)


def secret_variables() -> dict[str, str]:
    """The variables that secrets are looked up in where the environment is their store."""
    return {name: value for name, value in os.environ.items() if name.startswith("CHRONOS_SECRET_")}


def kubernetes_url() -> str:
    """The API of the cluster that this process runs in; Kubernetes sets both variables in every pod."""
    host, port = text("KUBERNETES_SERVICE_HOST"), integer("KUBERNETES_SERVICE_PORT", 443, low=1, high=65_535)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def traces_endpoint() -> str | None:
    """The URL that OpenTelemetry's variables name for traces, or None where they name none or switch traces off."""
    if flag("OTEL_SDK_DISABLED") or optional("OTEL_TRACES_EXPORTER") == "none":
        return None
    name, base = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", optional("OTEL_EXPORTER_OTLP_ENDPOINT")
    given = optional(name)
    if given is None and base is not None:
        name, given = "OTEL_EXPORTER_OTLP_ENDPOINT", f"{base.rstrip('/')}/v1/traces"
    if given is None:
        return None
    parts = urlsplit(given)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        # Not repeated: a URL may hold a password.
        refuse(f"{name} is no URL. It must look like http://collector:4318.")
    for protocol in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        choice(protocol, "http/protobuf", "http/protobuf")
    return given


def networks(name: str) -> list[str]:
    """A comma-separated list of exact networks in CIDR form, each checked."""
    found = items(name)
    try:
        parse_networks(found)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None
    return found


def bootstrap(name: str) -> str | None:
    """A Kafka cluster as `host:port,host:port`, checked; None where it is unset or empty."""
    raw = optional(name)
    return None if raw is None else _bootstrap(name, raw)


def bootstraps(name: str) -> list[str]:
    """Kafka clusters, with semicolons between them, each checked."""
    return [_bootstrap(name, part) for part in (optional(name) or "").split(";") if part.strip()]


def _bootstrap(name: str, raw: str) -> str:
    try:
        return parse_bootstrap(raw)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None


def postgres(name: str, pool: dict[str, object]) -> dict[str, object]:
    """Django's DATABASES entry for a postgres:// URL, with psycopg's pool in place of persistent connections."""
    parts = urlsplit(text(name))
    if parts.scheme not in {"postgres", "postgresql"} or not parts.hostname or not parts.path.strip("/"):
        raise ImproperlyConfigured(f"{name} must look like postgresql://user:password@host:5432/database.")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname,
        "PORT": parts.port or 5432,
        "CONN_MAX_AGE": 0,
        # After a restart of Postgres the pool would sleep 1, 2, 4 s between the stale connections it finds; without the
        # check each of them costs one 503, at once, and a request may be sent again.
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": {
            "pool": pool,
            "application_name": "chronos",
            "connect_timeout": 5,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            # Keepalives do not cover data that was sent and never acknowledged.
            "tcp_user_timeout": 15_000,
            "options": "-c statement_timeout=20000 -c idle_in_transaction_session_timeout=30000",
        },
    }


def redis_url(name: str) -> str:
    raw = text(name)
    if urlsplit(raw).scheme not in {"redis", "rediss"}:
        raise ImproperlyConfigured(f"{name} must look like redis://:password@host:6379/0.")
    return raw


@dataclass(frozen=True, slots=True)
class MailServer:
    """`host` empty: there is none."""

    host: str
    port: int
    user: str = field(repr=False)
    password: str = field(repr=False)
    starttls: bool
    tls: bool


def email(name: str) -> MailServer:
    """A mail server by an smtp:// (plain), smtp+tls:// (STARTTLS) or smtps:// (TLS) URL."""
    raw = optional(name)
    kinds = {"smtp": (25, False, False), "smtp+tls": (587, True, False), "smtps": (465, False, True)}
    parts = urlsplit(raw or "smtp:")
    try:
        given, kind = parts.port, kinds.get(parts.scheme)
    except ValueError:
        given, kind = None, None
    if kind is None or (raw is not None and not parts.hostname):
        # Not repeated: it may hold a password.
        refuse(f"{name} is no URL of a mail server. It must look like smtp+tls://user:password@mail.example.com:587.")
    port, starttls, tls = kind
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return MailServer(parts.hostname or "", given or port, user, password, starttls, tls)


def http_url(name: str, default: str) -> str:
    value = text(name, default) or default
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        refuse(f"{name} is no URL. It must look like {default}.")
    return value


def secret_namespaces(name: str) -> list[str]:
    """A comma-separated list of namespaces of secrets."""
    found = items(name)
    for namespace in found:
        if not re.fullmatch(NAMESPACE, namespace):
            refuse(f"{name}: {namespace!r} is no namespace of secrets: lower case letters, digits and inner hyphens.")
    return found


def storage(name: str) -> dict[str, dict[str, object]]:
    """The entry of Django's STORAGES for a file:// or s3:// URL, as `objects`; empty where it is unset or empty."""
    raw = optional(name)
    if raw is None:
        return {}
    try:
        found = backend_of(raw, access_key=optional("STORAGE_ACCESS_KEY"), secret_key=optional("STORAGE_SECRET_KEY"))
    except ValueError as error:
        # The URL is not repeated: somebody may have written a key into it.
        raise ImproperlyConfigured(f"{name}: {error}.") from None
    return {"objects": found}


def everything() -> dict[str, str]:
    """A copy of the whole environment, for the child processes of the embedded stack."""
    return dict(os.environ)
