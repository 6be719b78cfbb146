"""Procrastinate on PostgreSQL, asynchronous: one job row for each job, with the client that Chronos uses."""

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from tests.bench.peers.call import DATABASE, call_async

app = App(connector=PsycopgConnector(conninfo=DATABASE))


@app.task(name="deliver")
async def deliver(number: int) -> None:
    await call_async(number)


def prepare() -> None:
    """The tables, in a database of its own."""
    with app.replace_connector(SyncPsycopgConnector(conninfo=DATABASE)) as sync, sync.open():
        sync.schema_manager.apply_schema()


def enqueue(count: int) -> None:
    with app.replace_connector(SyncPsycopgConnector(conninfo=DATABASE)) as sync, sync.open():
        deliver.batch_defer(*({"number": each} for each in range(count)))
