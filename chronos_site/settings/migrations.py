"""For `makemigrations --check`: the base without a database, so that nothing waits for one."""

from .base import *  # noqa: F403

DATABASES = {"default": {"ENGINE": "django.db.backends.dummy"}}
