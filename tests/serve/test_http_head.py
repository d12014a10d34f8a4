"""Heads of requests: what is understood, and with which status the rest is refused."""

from __future__ import annotations

import re
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.serve.http_head import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    Head,
    HeadReader,
    Refused,
    parse_head,
    parse_host,
)

STATUSES = {400, 405, 413, 431, 505}
GOOD = b"GET /api/scene?a=%00&b=c HTTP/1.1\r\nHost: localhost:80"


def test_a_request() -> None:
    head = parse_head(b"GET /a?b=c HTTP/1.1\r\nHost: LocalHost:8000\r\nCookie: a=1\r\ncookie:b=2 ")
    assert head == Head(
        "GET", "/a?b=c", 1, {"host": "LocalHost:8000", "cookie": "a=1; b=2"}, "localhost", 8000
    )
    assert head.keeps_open
    assert not parse_head(GOOD + b"\r\nConnection: Close").keeps_open
    assert not parse_head(GOOD.replace(b"1.1", b"1.0")).keeps_open


@pytest.mark.parametrize(
    ("status", "head"),
    [
        (400, b""),
        (400, b"GET"),
        (400, b"GET / HTTP/1.1"),
        (400, b"GET  / HTTP/1.1\r\nHost: a"),
        (400, b"GET /a b HTTP/1.1\r\nHost: a"),
        (400, b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a"),
        (400, b"GET http://a/ HTTP/1.1\r\nHost: a"),
        (400, b"GET * HTTP/1.1\r\nHost: a"),
        (400, b"GET / HTTP/11\r\nHost: a"),
        (400, b"GET / http/1.1\r\nHost: a"),
        (400, b"GET /\nHost: a HTTP/1.1\r\nHost: a"),
        (405, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5"),
        (405, b"get / HTTP/1.1\r\nHost: a"),
        (505, b"GET / HTTP/2.0\r\nHost: a"),
        (505, b"GET / HTTP/0.9\r\nHost: a"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: a"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nno colon"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nName : value"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\n folded"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\n: empty"),
        (400, b"GET / HTTP/1.1\r\nHost: a\nX: smuggled"),
        (413, b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5"),
        (413, b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1"),
        (413, b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked"),
        (431, b"GET / HTTP/1.1\r\nHost: a" + b"\r\nX: 1" * MAX_FIELDS),
    ],
)
def test_what_is_not_a_request_is_refused(status: int, head: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_head(head)
    assert refused.value.status == status


@pytest.mark.parametrize(
    "host",
    ["", "a b", "a:b", "a:", ":80", "a:65536", "a:" + "9" * 5000, "a:²", "a:-1", "a,b", "[::1",
     "[]", "::1", "user@a", "a/b", "a" * 254, "[::1]80", "é"],
)  # fmt: skip
def test_a_malformed_host_is_refused(host: str) -> None:
    with pytest.raises(Refused, match="the Host field is missing or malformed") as refused:
        parse_host(host)
    assert refused.value.status == 400


@given(st.binary(max_size=200) | st.text("GET /HTP1.0:\r\nHost a\t", max_size=200).map(str.encode))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        head = parse_head(data)
    except Refused as refused:
        assert refused.status in STATUSES
    else:
        assert re.fullmatch(r"[ -~]+", head.target) and head.host and 0 <= head.port < 65536


@given(st.data())
def test_heads_arrive_in_any_pieces(data: st.DataObject) -> None:
    heads = [GOOD, b"HEAD / HTTP/1.1\r\nHost: b", GOOD + b"\r\nX: y"]
    sent = b"".join(head + b"\r\n\r\n" for head in heads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    client, server = socket.socketpair()
    with client, server:
        reader = HeadReader(server, 60, 60)
        found = []

        def read() -> None:
            while (head := reader.read()) is not None:
                found.append(head)

        thread = threading.Thread(target=read)
        thread.start()
        for first, last in zip([0, *cuts], [*cuts, len(sent)], strict=True):
            client.sendall(sent[first:last])
        client.shutdown(socket.SHUT_WR)
        thread.join()
    assert found == heads


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"a" * MAX_HEAD_BYTES, 431),
        (b"GET /" + b"a" * MAX_HEAD_BYTES, 431),
        (b"\r\n" * MAX_HEAD_BYTES, None),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET /\x00 HTTP/1.1\r\n", 400),
        (b"GET / HTTP/1.1\r\n", 408),
    ],
)
def test_a_head_that_does_not_end(sent: bytes, status: int | None) -> None:
    client, server = socket.socketpair()
    with client, server:
        sender = threading.Thread(target=client.sendall, args=(sent[: MAX_HEAD_BYTES + 1],))
        sender.start()
        reader = HeadReader(server, 60, 0.2 if status == 408 else 60)
        if status is None:
            assert reader.read() == b""
        else:
            with pytest.raises(Refused) as refused:
                reader.read()
            assert refused.value.status == status
        sender.join()
