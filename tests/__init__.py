"""Tests against real servers: PostgreSQL, Valkey and a MongoDB-compatible server, started by `tests.embedded`."""
