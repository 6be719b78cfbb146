"""The proxy that the tests of faults stand on does what it says."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.processes import wait_until
from tests.proxy import Proxy


class Echo:
    """A server that answers every read with `>` and the same bytes, and remembers what came."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.ended: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            link, _ = self._listener.accept()
            if self._listener.fileno() == -1 or self.port == 0:
                link.close()
                self._listener.close()
                return
            self._threads.append(threading.Thread(target=self._serve, args=(link,)))
            self._threads[-1].start()

    def _serve(self, link: socket.socket) -> None:
        with link:
            try:
                while chunk := link.recv(65_536):
                    self.received.append(chunk)
                    link.sendall(b">" + chunk)
                self.ended.append("end")
            except OSError as error:
                self.ended.append(type(error).__name__)

    def close(self) -> None:
        port, self.port = self.port, 0
        socket.create_connection(("127.0.0.1", port)).close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as running:
        yield running


@contextmanager
def client(proxy: Proxy, timeout_s: float = 5.0) -> Iterator[socket.socket]:
    with socket.create_connection((proxy.host, proxy.port), timeout=timeout_s) as link:
        yield link


def ask(link: socket.socket, text: bytes) -> bytes:
    link.sendall(text)
    return link.recv(100)


def answers(link: socket.socket, within_s: float = 0.3) -> bool:
    link.settimeout(within_s)
    try:
        return bool(link.recv(100))
    except TimeoutError:
        return False
    finally:
        link.settimeout(5)


def read_all(link: socket.socket) -> None:
    while link.recv(100):
        pass


def test_it_passes_bytes_and_ends_in_both_directions(echo: Echo, proxy: Proxy) -> None:
    with client(proxy) as link:
        assert ask(link, b"one") == b">one"
        link.shutdown(socket.SHUT_WR)
        assert link.recv(100) == b""
    wait_until(lambda: echo.ended == ["end"] and proxy.links == 0)


def test_reset_is_an_rst_to_both_ends_and_new_connections_work(echo: Echo, proxy: Proxy) -> None:
    with client(proxy) as link:
        ask(link, b"one")
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            link.recv(100)
        wait_until(lambda: echo.ended == ["ConnectionResetError"])
    with client(proxy) as link:
        assert ask(link, b"two") == b">two"


def test_a_black_hole_is_silent_keeps_both_ends_open_and_lets_new_connections_through(echo: Echo, proxy: Proxy) -> None:
    with client(proxy) as old:
        ask(old, b"old")
        proxy.blackhole()
        old.sendall(b"lost")
        assert not answers(old)
        with client(proxy) as new:
            assert ask(new, b"new") == b">new"
        assert b"lost" not in echo.received
        proxy.heal()
        assert old.recv(100) == b">lost"


def test_an_end_does_not_pass_a_black_hole_either(echo: Echo, proxy: Proxy) -> None:
    with client(proxy) as link:
        ask(link, b"one")
        proxy.blackhole()
    time.sleep(0.3)  # Time in which an end would have passed.
    assert (echo.ended, proxy.links) == ([], 1)
    proxy.heal()
    wait_until(lambda: echo.ended and proxy.links == 0)


def test_a_black_hole_for_new_connections_takes_them_and_never_answers(echo: Echo, proxy: Proxy) -> None:
    proxy.blackhole(new=True)
    with client(proxy) as link:
        link.sendall(b"one")
        assert not answers(link)
        assert echo.received == []
        proxy.heal()
        assert link.recv(100) == b">one"


def test_delay_holds_each_way(proxy: Proxy) -> None:
    with client(proxy) as link:
        ask(link, b"one")
        proxy.delay(0.2)
        began = time.monotonic()
        ask(link, b"two")
        assert 0.4 <= time.monotonic() - began < 2


def test_refuse_turns_new_connections_away_until_accept_at_the_same_port(proxy: Proxy) -> None:
    port = proxy.port
    with client(proxy) as old:
        ask(old, b"one")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError), client(proxy):
            pass
        assert ask(old, b"two") == b">two"
    proxy.accept()
    with client(proxy) as link:
        assert ask(link, b"three") == b">three"
    assert proxy.port == port


def test_cut_after_so_many_bytes_lets_those_arrive_and_resets_the_client(echo: Echo, proxy: Proxy) -> None:
    proxy.cut_after(6)
    with client(proxy) as link:
        assert ask(link, b"one") == b">one"
        link.sendall(b"two")
        with pytest.raises(ConnectionResetError):
            read_all(link)
    wait_until(lambda: echo.received == [b"one", b"two"])
    with client(proxy) as link:
        assert ask(link, b"later") == b">later", "it cuts once"
    assert proxy.cuts == 1


def test_cut_after_can_keep_the_matching_bytes_from_the_server(echo: Echo, proxy: Proxy) -> None:
    proxy.cut_after(lambda chunk: b"COMMIT" in chunk, forward=False)
    with client(proxy) as link:
        ask(link, b"BEGIN")
        with pytest.raises(ConnectionResetError):
            ask(link, b"COMMIT")
    wait_until(lambda: echo.ended)
    assert echo.received == [b"BEGIN"]


def test_the_answer_to_a_request_can_be_lost_after_the_server_did_it(echo: Echo, proxy: Proxy) -> None:
    proxy.cut_on_reply_to(lambda chunk: b"COMMIT" in chunk)
    with client(proxy) as link:
        assert ask(link, b"BEGIN") == b">BEGIN"
        with pytest.raises(ConnectionResetError):
            ask(link, b"COMMIT")
    assert echo.received == [b"BEGIN", b"COMMIT"]
    assert proxy.cuts == 1


def test_a_server_that_is_away_ends_the_client_s_link(echo: Echo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    with Proxy("127.0.0.1", free) as proxy, pytest.raises(ConnectionResetError), client(proxy) as link:
        link.recv(100)


def test_it_rewrites_urls(proxy: Proxy) -> None:
    assert proxy.through("redis://:pw@127.0.0.1:6379/3") == f"redis://:pw@127.0.0.1:{proxy.port}/3"
    assert proxy.through("http://localhost:80/a?b=1") == f"http://127.0.0.1:{proxy.port}/a?b=1"
