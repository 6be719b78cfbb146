"""Taskiq on a Redis list, asynchronous: one task for each job, with the client that Chronos uses."""

import asyncio

from taskiq_redis import ListQueueBroker

from tests.bench.peers.call import REDIS, call_async

broker = ListQueueBroker(url=REDIS)


@broker.task(task_name="deliver")
async def deliver(number: int) -> None:
    await call_async(number)


def enqueue(count: int) -> None:
    asyncio.run(_enqueue(count))


async def _enqueue(count: int) -> None:
    await broker.startup()
    for each in range(count):
        await deliver.kiq(each)
    await broker.shutdown()
