"""`python -m tests.bench.sink PORT [SILENT_PORT]`: the receiver of the benchmarks, as fast as Python can be one.

It answers 200 to every request, without looking at more of it than where it ends, and counts. What comes to the
second port is never answered. `GET /_told` answers the count, the moments of the first and the last arrival
(seconds of CLOCK_MONOTONIC, which all processes of a machine share) and how late each request with X-Scheduled-For
came, `GET /_count` the count alone; `GET /_forget` starts anew.
"""

import asyncio
import json
import sys
import time
from datetime import datetime
from typing import cast

import uvloop

from tests.requests_in import split_requests

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"


class Told:
    """What the sink has seen since it was last asked to forget."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.count = 0
        self.first = 0.0
        self.last = 0.0
        self.late_ms: list[float] = []

    def note(self, count: int) -> None:
        self.last = time.monotonic()
        if not self.count:
            self.first = self.last
        self.count += count

    def as_json(self) -> bytes:
        told = {"count": self.count, "first": self.first, "last": self.last, "late_ms": self.late_ms}
        return json.dumps(told).encode()


class Sink(asyncio.Protocol):
    def __init__(self, told: Told) -> None:
        self._told = told
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        heads, self._rest = split_requests(self._rest + data)
        count = 0
        for head in heads:
            if head.startswith(b"GET /_"):
                self._tell(head)
            else:
                count += 1
                self._note_lateness(head)
        if count:
            self._told.note(count)
            self._transport.write(ANSWER * count)

    def _note_lateness(self, head: bytes) -> None:
        found = head.find(b"cheduled-")
        if found < 0:
            return
        text = head[head.index(b":", found) + 1 :].split(b"\r", 1)[0].strip().decode()
        self._told.late_ms.append((time.time() - datetime.fromisoformat(text).timestamp()) * 1000)

    def _tell(self, head: bytes) -> None:
        body = json.dumps({"count": self._told.count}).encode() if b"_count" in head else self._told.as_json()
        if head.startswith(b"GET /_forget"):
            self._told.forget()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


class Silence(asyncio.Protocol):
    """Takes everything and never answers."""


async def serve(port: int, silent_port: int | None) -> None:
    told = Told()
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Sink(told), "127.0.0.1", port, backlog=4096)
    if silent_port is not None:
        await loop.create_server(Silence, "127.0.0.1", silent_port, backlog=4096)
    print("sink ready", flush=True)  # noqa: T201 - read by who started it
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
