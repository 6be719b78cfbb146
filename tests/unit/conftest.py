"""Unit tests: pure code, no servers. Hypothesis without a deadline: a busy machine is not a fault."""

from hypothesis import settings

settings.register_profile("chronos", deadline=None)
settings.load_profile("chronos")
