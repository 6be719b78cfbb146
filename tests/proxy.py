"""A TCP proxy that breaks links on demand: between the site and Postgres, Redis, MongoDB or a receiver.

    with Proxy("127.0.0.1", 6379) as proxy:
        url = proxy.through("redis://127.0.0.1:6379/0")
        ...
        proxy.blackhole()

It listens on loopback only, runs its own event loop in a thread, and every method may be called from any thread; when
one returns, what it asked for is in force. Predicates are called in the proxy's thread with the bytes of one read, from
client to server; a short request is one read.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")
Predicate = Callable[[bytes], bool]

LOOPBACK = "127.0.0.1"
CHUNK = 65_536
# Linger for no time: close() then sends RST in place of FIN.
_AT_ONCE = struct.pack("ii", 1, 0)


class _Link:
    """One client and its own connection to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.passing = asyncio.Event()
        self.passing.set()
        self.drop_answer = False
        """The next answer of the server is thrown away, and the client is cut."""

    def cut(self) -> None:
        """RST to the client; the server gets all that was sent to it, and then a plain end."""
        _reset(self.client)
        if self.server is not None:
            self.server.close()

    def reset(self) -> None:
        """RST to both."""
        _reset(self.client)
        if self.server is not None:
            _reset(self.server)


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()


class Proxy:
    """Forwards `host:port` to `target_host:target_port`. Use as a context manager."""

    host = LOOPBACK

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self.port = 0
        self.accepted = 0
        """Connections that were taken so far."""
        self.cuts = 0
        """Links that `cut_after` and `cut_on_reply_to` have cut so far."""
        self._links: set[_Link] = set()
        self._delay_s = 0.0
        self._new_pass = True
        self._cut_after: tuple[Predicate, bool] | None = None
        self._cut_on_reply_to: Predicate | None = None
        self._cuts_left = 0
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    # --- life ----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def through(self, url: str) -> str:
        """The URL with this proxy in place of its host and port."""
        parts = urlsplit(url)
        user, at, _host = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}{self.host}:{self.port}"))

    @property
    def links(self) -> int:
        """How many links are open."""
        return len(self._links)

    # --- faults --------------------------------------------------------------------------------------

    def reset(self) -> None:
        """RST to both ends of every open link. New connections work."""
        self._do(self._reset_all())

    def blackhole(self, *, new: bool = False) -> None:
        """Nothing passes any more on the open links, in either direction, and both ends stay open: no FIN, no RST.

        What is sent meanwhile is held, and passes after `heal`. New connections work; with `new` they are accepted
        and hang as well.
        """
        self._do(self._blackhole(new))

    def delay(self, seconds: float) -> None:
        """Hold every read for so long, in both directions; 0 ends it."""
        self._set(_delay_s=seconds)

    def refuse(self) -> None:
        """New connections are refused at once; open links stay."""
        self._do(self._stop_listening())

    def accept(self) -> None:
        """New connections are taken again, at the same port."""
        self._do(self._listen())

    def cut_after(self, what: int | Predicate, *, times: int = 1, forward: bool = True) -> None:
        """Cut a link once that many bytes went to the server (from now, over all links), or once a read matches.

        The read itself still reaches the server, unless `forward` is false. The client gets RST.
        """
        self._set(_cut_after=(_counter(what) if isinstance(what, int) else what, forward), _cuts_left=times)

    def cut_on_reply_to(self, matches: Predicate, *, times: int = 1) -> None:
        """Lose the answer to a request: the server gets it, the server's next bytes are dropped, the client gets RST.

        So the server has done what it was asked to do (a COMMIT), and the client does not know.
        """
        self._set(_cut_on_reply_to=matches, _cuts_left=times)

    def heal(self) -> None:
        """Take every fault back. Links that were cut stay cut; what a black hole held passes on."""
        self._set(_delay_s=0.0, _new_pass=True, _cut_after=None, _cut_on_reply_to=None, _cuts_left=0)
        self._do(self._release_all())
        self.accept()

    # --- in the loop ---------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _set(self, **values: object) -> None:
        async def apply() -> None:
            for name, value in values.items():
                setattr(self, name, value)

        self._do(apply())

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, self.host, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _reset_all(self) -> None:
        for link in self._links:
            link.passing.set()
            link.reset()

    async def _blackhole(self, new: bool) -> None:
        self._new_pass = not new
        for link in self._links:
            link.passing.clear()

    async def _release_all(self) -> None:
        for link in self._links:
            link.passing.set()

    async def _end(self) -> None:
        await self._stop_listening()
        await self._reset_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(writer)
        if not self._new_pass:
            link.passing.clear()
        self._links.add(link)
        try:
            await link.passing.wait()
            answers, link.server = await asyncio.open_connection(*self._target)
            await asyncio.gather(self._to_server(link, reader), self._to_client(link, answers))
        except OSError:
            link.reset()
        except asyncio.CancelledError:
            return  # The proxy ends. A cancelled task would be logged as a fault.
        finally:
            self._links.discard(link)
            for end in (link.client, link.server):
                if end is not None:
                    end.close()

    async def _to_server(self, link: _Link, reader: asyncio.StreamReader) -> None:
        assert link.server is not None
        while chunk := await self._read(link, reader):
            if self._answer_is_lost(chunk):
                link.drop_answer = True
            cut = self._cuts_here(chunk)
            if not cut or cut[1]:
                link.server.write(chunk)
                await link.server.drain()
            if cut:
                self.cuts += 1
                link.cut()
                return
        if link.server.can_write_eof() and not link.server.is_closing():
            link.server.write_eof()

    async def _to_client(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while chunk := await self._read(link, reader):
            if link.drop_answer:
                self.cuts += 1
                link.cut()
                return
            link.client.write(chunk)
            await link.client.drain()
        if link.client.can_write_eof() and not link.client.is_closing():
            link.client.write_eof()

    async def _read(self, link: _Link, reader: asyncio.StreamReader) -> bytes:
        """The next bytes, when they may pass; an end or a reset of the other side has to wait as well."""
        try:
            return await reader.read(CHUNK)
        finally:
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await link.passing.wait()

    def _answer_is_lost(self, chunk: bytes) -> bool:
        if self._cut_on_reply_to is None or not self._cuts_left or not self._cut_on_reply_to(chunk):
            return False
        self._cuts_left -= 1
        return True

    def _cuts_here(self, chunk: bytes) -> tuple[Predicate, bool] | None:
        if self._cut_after is None or not self._cuts_left or not self._cut_after[0](chunk):
            return None
        self._cuts_left -= 1
        return self._cut_after


def _counter(most: int) -> Predicate:
    """True once `most` bytes were seen, in all."""
    seen = 0

    def reached(chunk: bytes) -> bool:
        nonlocal seen
        seen += len(chunk)
        return seen >= most

    return reached
