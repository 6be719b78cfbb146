"""Huey on Redis: one task for each job."""

from huey import RedisHuey

from tests.bench.peers.call import REDIS, call

huey = RedisHuey("bench", url=REDIS, results=False)


@huey.task()
def deliver(number: int) -> None:
    call(number)


def enqueue(count: int) -> None:
    for each in range(count):
        deliver(each)
