"""Procrastinate on PostgreSQL, asynchronous: one job row for each job, with the client that Chronos uses."""

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from tests.bench.peers.call import DATABASE, build_client, call_async

app = App(connector=PsycopgConnector(conninfo=DATABASE))
_clients: list[object] = []


@app.task(name="deliver")
async def deliver(number: int) -> None:
    if not _clients:
        _clients.append(build_client())
    await call_async(_clients[0], number)  # type: ignore[arg-type]


def prepare() -> None:
    """The tables, in a database of its own."""
    with app.replace_connector(SyncPsycopgConnector(conninfo=DATABASE)) as sync, sync.open():
        sync.schema_manager.apply_schema()


def enqueue(count: int) -> None:
    with app.replace_connector(SyncPsycopgConnector(conninfo=DATABASE)) as sync, sync.open():
        deliver.batch_defer(*({"number": each} for each in range(count)))
