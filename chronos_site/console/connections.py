"""A connection beside the pool: one that is busy with requests must not make a probe or the doctor wait."""

from typing import Any

import psycopg
from django.db import connection

_PARAMETERS = {"dbname", "user", "password", "host", "port", "service", "passfile"}
_PARAMETERS |= {"sslmode", "sslrootcert", "sslcert", "sslkey"}


def own_connection() -> psycopg.Connection[Any]:
    """To the default database, with two seconds for everything. Raises psycopg's errors."""
    given = {name: value for name, value in connection.get_connection_params().items() if name in _PARAMETERS}
    return psycopg.connect(**given, connect_timeout=2, autocommit=True, options="-c statement_timeout=2000")
