"""The limit: the client that Chronos uses, 200 calls at once, no queue and nothing stored."""

import asyncio
import itertools
import sys

import uvloop

from tests.bench.peers.call import call_async

AT_ONCE = 200


async def deliver(count: int) -> None:
    numbers = itertools.count()

    async def caller() -> None:
        while (number := next(numbers)) < count:
            await call_async(number)

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    uvloop.run(deliver(int(sys.argv[1])))
