"""The server against clients that send anything, send nothing, never read, or come in crowds."""

from __future__ import annotations

import http.client
import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.serve import http_server
from slipstream.serve.http_head import Head, Refused
from slipstream.serve.http_server import HttpHandler, HttpServer

PATIENCE_S = 300
RESPONSE = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Za-z -]+\r\n(?:[A-Za-z-]+: [ -~]*\r\n)+\r\n")
GOOD = b"GET /hello?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Handler(HttpHandler):
    def answer(self, head: Head) -> None:
        if head.target == "/large":
            return self.send(200, bytes(100 << 20), "application/octet-stream")
        if not head.target.startswith("/hello"):
            raise Refused(404, "not found")
        return self.send(200, b"hello", "text/plain")


@contextmanager
def listening(**settings: float) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, Handler)
    for name, value in settings.items():
        setattr(server, name, value)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def impatient() -> Iterator[HttpServer]:
    """Gives up on everybody after a moment."""
    with listening(idle_s=1, head_s=1, write_s=1) as server:
        yield server


def connected(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S)


def everything(connection: socket.socket) -> bytes:
    """What the server sends until it closes; the test's own timeout is a failure."""
    found = b""
    try:
        while piece := connection.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def talk(server: HttpServer, data: bytes, ends: bool = True) -> bytes:
    """Send bytes, and return all that comes back."""
    with connected(server) as connection:
        try:
            connection.sendall(data)
            if ends:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # It may have closed already.
        return everything(connection)


def statuses(answer: bytes) -> list[int]:
    """The statuses of well-formed responses; there is nothing else in the answer."""
    found = []
    while answer:
        matched = re.match(
            rb"HTTP/1\.1 (\d{3}) [A-Za-z -]+\r\n(?:[A-Za-z-]+: [ -~]*\r\n)+\r\n", answer
        )
        assert matched is not None, answer[:200]
        length = re.search(rb"Content-Length: (\d+)\r\n", matched[0])
        assert length is not None
        found.append(int(matched[1]))
        answer = answer[matched.end() + int(length[1]) :]
    return found


def still_serves(server: HttpServer) -> bool:
    """Whether a good request is answered; on a busy machine maybe not the first, in time."""
    return any(statuses(talk(server, GOOD)) == [200] for _ in range(20))


def mutated(seed: int, count: int) -> bytes:
    """Good requests with bytes changed, dropped, repeated or put in."""
    chance = random.Random(seed)
    data = bytearray(GOOD * chance.randint(1, 3))
    for _ in range(count):
        at = chance.randrange(len(data) + 1)
        piece = chance.choice([b"", b"\r\n", b"\x00", b"\xff", b" ", b":", b"%00", b"../", b"HEAD ",
                               bytes([chance.randrange(256)]), data[at : at + 20] * 3])  # fmt: skip
        data[at : at + chance.choice([0, 1, 5])] = piece
    return bytes(data)


ANYTHING = st.binary(max_size=300) | st.builds(mutated, st.integers(0, 1 << 30), st.integers(1, 6))


@given(ANYTHING)
def test_any_bytes_get_a_status_or_the_end_of_the_connection(
    impatient: HttpServer, data: bytes
) -> None:
    assert set(statuses(talk(impatient, data))) <= {200, 400, 404, 405, 408, 413, 431, 505}
    assert still_serves(impatient)


@pytest.mark.parametrize("seed", range(5))
def test_whoever_stays_is_sent_away(impatient: HttpServer, seed: int) -> None:
    """Without an end of the client's side: `talk` returns only once the server has closed."""
    statuses(talk(impatient, mutated(seed, 3), ends=False))
    assert still_serves(impatient)


def test_who_says_nothing_is_not_waited_for(impatient: HttpServer) -> None:
    assert talk(impatient, b"", ends=False) == b""
    # Nothing, if it took this test a second to send.
    assert statuses(talk(impatient, b"GET /hello", ends=False)) in ([408], [])
    assert statuses(talk(impatient, GOOD, ends=False)) in ([200], [])
    assert still_serves(impatient)


def test_a_byte_now_and_then_does_not_keep_a_connection(impatient: HttpServer) -> None:
    with connected(impatient) as connection:
        connection.sendall(b"GET /hello HTTP/1.1\r\nX: ")
        stop = threading.Event()

        def dribble() -> None:
            while not stop.wait(0.02):
                try:
                    connection.send(b"a")
                except OSError:
                    return

        thread = threading.Thread(target=dribble)
        thread.start()
        assert statuses(everything(connection)) in ([408], [])
        stop.set()
        thread.join()


def test_a_response_that_nobody_reads_is_given_up(impatient: HttpServer) -> None:
    with connected(impatient) as connection:
        connection.sendall(GOOD.replace(b"/hello", b"/large"))
        # The server's side of the connection is over although most was never read.
        free = impatient._free
        for _ in range(http_server.MAX_CONNECTIONS):
            assert free.acquire(timeout=PATIENCE_S)
        for _ in range(http_server.MAX_CONNECTIONS):
            free.release()
        assert len(everything(connection)) < 100 << 20


def test_several_requests_on_one_connection() -> None:
    with listening() as server:
        assert statuses(talk(server, GOOD * 3)) == [200, 200, 200]
        asked = GOOD.replace(b"/hello", b"/nothing") + GOOD.replace(b"GET", b"POST") + GOOD
        assert statuses(talk(server, asked)) == [404, 405]


def test_a_refusal_reaches_who_still_sends() -> None:
    with listening() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
        connection.request("POST", "/hello", body=bytes(200_000))
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (405, b"only GET and HEAD are answered here\n")
        connection.close()


def test_ranges_and_expectations_are_not_understood() -> None:
    with listening() as server:
        for field in (b"Range: bytes=0-0", b"Range: bytes=-1,9-2", b"Expect: 100-continue"):
            answer = talk(server, GOOD.replace(b"\r\n\r\n", b"\r\n" + field + b"\r\n\r\n"))
            assert statuses(answer) == [200] and answer.endswith(b"hello")


def test_a_crowd_is_turned_away_and_others_are_served_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 5)
    with listening() as server:
        with ExitStack() as stack:
            held = [stack.enter_context(connected(server)) for _ in range(5)]
            for connection in held:
                connection.sendall(GOOD)
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
            assert talk(server, GOOD).startswith(b"HTTP/1.1 503 ")
        while talk(server, GOOD).startswith(b"HTTP/1.1 503 "):
            pass
        assert statuses(talk(server, GOOD)) == [200]
