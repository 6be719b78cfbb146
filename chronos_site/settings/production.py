"""Production: the base, plus what only a site behind TLS may switch on."""

from . import env
from .base import *  # noqa: F403

DEBUG = False
ALLOWED_HOSTS = env.items("ALLOWED_HOSTS")
SECURE_SSL_REDIRECT = env.flag("SECURE_SSL_REDIRECT", default=True)
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env.flag("TRUST_X_FORWARDED_PROTO") else None
SECURE_HSTS_SECONDS = env.integer("SECURE_HSTS_SECONDS", 31_536_000, low=0, high=63_072_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
