"""The embedded stack: PostgreSQL, Valkey and a MongoDB-compatible server from wheels, and the processes of the site."""
