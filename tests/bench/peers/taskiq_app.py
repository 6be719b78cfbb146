"""Taskiq on a Redis list, asynchronous: one task for each job, with the client that Chronos uses."""

import asyncio

from taskiq_redis import ListQueueBroker

from tests.bench.peers.call import REDIS, build_client, call_async

broker = ListQueueBroker(url=REDIS)
_clients: list[object] = []


@broker.task(task_name="deliver")
async def deliver(number: int) -> None:
    if not _clients:
        _clients.append(build_client())
    await call_async(_clients[0], number)  # type: ignore[arg-type]


def enqueue(count: int) -> None:
    asyncio.run(_enqueue(count))


async def _enqueue(count: int) -> None:
    await broker.startup()
    for each in range(count):
        await deliver.kiq(each)
    await broker.shutdown()
