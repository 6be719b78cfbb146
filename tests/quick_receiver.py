"""A receiver for thousands of requests a second: a process of its own that answers 200 and writes down who came when.

    with QuickReceiver(folder) as receiver: ...; receiver.arrivals("/b")

It reads HTTP/1.1 as the engine writes it (one request after the other on a connection, Content-Length), nothing more.
A path `/slow/N/…` is answered after N seconds.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import uvloop

from chronos_site.stack.site import ROOT
from tests.requests_in import split_requests


class QuickReceiver:
    def __init__(self, folder: Path) -> None:
        self._log = folder / "arrivals.log"
        self._port = folder / "port"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__, str(self._log), str(self._port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)
        deadline = time.monotonic() + 10
        while not self._port.exists() or not self._port.read_text():
            assert time.monotonic() < deadline, "the receiver did not start"
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port.read_text()}{path}"

    def arrivals(self, path: str) -> list[float]:
        """When requests to `path` came, Unix seconds, in order."""
        lines = self._log.read_text().splitlines(keepends=True)
        found = [line.split() for line in lines if line.endswith("\n")]
        return [float(at) for at, where in found if where == path]


class _Connection(asyncio.Protocol):
    def __init__(self, log: list[str]) -> None:
        self._log = log
        self._seen = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is none by type.

    def data_received(self, data: bytes) -> None:
        heads, self._seen = split_requests(self._seen + data)
        for head in heads:
            path = head.split(b" ", 2)[1].decode()
            self._log.append(f"{time.time():.6f} {path}\n")
            if path.startswith("/slow/"):
                self._loop.call_later(float(path.split("/")[2]), self._answer)
            else:
                self._answer()

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def _serve(log: Path, port: Path) -> None:
    """Until the standard input ends: whoever started this is gone then."""
    lines: list[str] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(lines), "127.0.0.1", 0, backlog=4096)
    port.write_text(str(server.sockets[0].getsockname()[1]))
    ended = loop.run_in_executor(None, sys.stdin.read)
    with log.open("a", encoding="utf-8") as out:
        while not ended.done():
            await asyncio.sleep(0.1)
            batch, lines[:] = lines[:], []
            out.writelines(batch)
            out.flush()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), Path(sys.argv[2])))
