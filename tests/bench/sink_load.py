"""`python -m tests.bench.sink_load URL COUNT`: as many requests as the sink can take, ten in each write.

How fast the sink is, and so whether it can be what limits another figure.
"""

import asyncio
import sys
from urllib.parse import urlsplit

import uvloop

from tests.bench.sink import ANSWER

CONNECTIONS, AT_ONCE = 16, 10


async def load(url: str, count: int) -> None:
    """Raises EOFError where the sink hangs up."""
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 7\r\n\r\n"
    burst = (head.encode() + b'{"n":1}') * AT_ONCE

    async def caller() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for _ in range(count // CONNECTIONS // AT_ONCE):
            writer.write(burst)
            await reader.readexactly(len(ANSWER) * AT_ONCE)
        writer.close()

    await asyncio.gather(*(caller() for _ in range(CONNECTIONS)))


if __name__ == "__main__":
    uvloop.run(load(sys.argv[1], int(sys.argv[2])))
