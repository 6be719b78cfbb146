"""RQ: one job of the queue for each of ours, without results."""

import redis
from rq import Queue

from tests.bench.peers.call import REDIS, call


def enqueue(count: int) -> None:
    connection = redis.Redis.from_url(REDIS)
    queue = Queue("bench", connection=connection)
    with connection.pipeline() as pipe:
        for each in range(count):
            queue.enqueue(call, each, result_ttl=0, pipeline=pipe)
        pipe.execute()
