"""Dramatiq on Redis: one actor message for each job."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.peers.call import REDIS, call

broker = RedisBroker(url=REDIS)
dramatiq.set_broker(broker)


@dramatiq.actor
def deliver(number: int) -> None:
    call(number)


def enqueue(count: int) -> None:
    for each in range(count):
        deliver.send(each)
