"""A connection of one's own for those who look at the site from outside of its work."""

from typing import Any

import psycopg
from django.db import connection

_PARAMETERS = {
    "dbname",
    "user",
    "password",
    "host",
    "port",
    "service",
    "passfile",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
}


def own_connection(*, timeout_s: float) -> psycopg.Connection[Any]:
    """Not of the pool: one that is busy with requests hides nothing. No statement takes longer than `timeout_s`."""
    given = {name: value for name, value in connection.get_connection_params().items() if name in _PARAMETERS}
    limit = f"-c statement_timeout={int(timeout_s * 1000)}"
    return psycopg.connect(**given, connect_timeout=max(2, round(timeout_s)), autocommit=True, options=limit)
