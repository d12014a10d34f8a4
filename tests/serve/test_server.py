"""The server: who is let in, what is answered, and what is not there."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import quote, urlencode, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outputs.perfetto import perfetto_reader
from serve.recordings import serving, write_recording
from serve.test_scene import unpacked
from slipstream.errors import Missing
from slipstream.serve.auth import Guard
from slipstream.serve.endpoints import ENDPOINTS
from slipstream.serve.server import Server
from slipstream.serve.session import ViewerSession

ODD = st.sampled_from(
    ["0", "-1", "1e14", "-1e14", "nan", "inf", "1e-300", "140", "70", "0-3", "4-0", "9-", "", "\0"]
) | st.text(max_size=5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = write_recording(tmp_path_factory.mktemp("run") / "host.xplane.pb")
    with serving(path) as made:
        yield made


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> HTTPResponse:
    """One request, with the token unless a Cookie is given."""
    known = {"Cookie": f"{server.guard.cookie}={server.guard.token}"}
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, headers={**known, **headers})
    answer = connection.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def test_the_token_of_the_address_becomes_a_cookie(server: Server) -> None:
    asked = urlsplit(server.url)
    assert (asked.hostname, asked.port) == ("127.0.0.1", server.server_port)
    answer = ask(server, f"/?{asked.query}", Cookie="")
    cookie = answer.getheader("Set-Cookie", "")
    assert (answer.status, answer.getheader("Location")) == (303, "/")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert ask(server, "/", Cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", "/api/scene", "/assets/viewer.js"]
)
@pytest.mark.parametrize("cookie", ["", "slipstream=x", "slipstream-{port}=wrong", "=;;=\xff"])
def test_nothing_without_the_token(server: Server, path: str, cookie: str) -> None:
    answer = ask(server, path, Cookie=cookie.format(port=server.server_port))
    assert answer.status == 401
    assert b"open the address that slipstream serve printed" in answer.body


def test_a_ticket_opens_once(server: Server) -> None:
    path = server.address(server.guard.ticket()).partition(str(server.server_port))[2]
    assert [ask(server, path, Cookie="").status for _ in range(2)] == [303, 401]


def test_a_token_is_random_and_long() -> None:
    tokens = {Guard("127.0.0.1", 80).token for _ in range(50)}
    assert len(tokens) == 50 and min(map(len, tokens)) >= 32


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "[::2]:1"])
def test_other_names_are_refused_even_with_the_token(server: Server, host: str) -> None:
    assert ask(server, "/", Host=host.format(port=server.server_port)).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_names_of_this_machine_are_its_own(server: Server, host: str) -> None:
    assert ask(server, "/", Host=f"{host}:{server.server_port}").status == 200


def test_open_to_others_it_goes_by_addresses_and_its_own_name() -> None:
    guard = Guard("0.0.0.0", 8000)
    assert guard.is_own_host("10.0.0.7", 8000)
    assert guard.is_own_host(socket.gethostname().lower(), 8000)
    assert not guard.is_own_host("evil.example", 8000)
    assert Guard("box.lan", 80).is_own_host("box.lan", 80)
    assert not Guard("box.lan", 80).is_own_host("10.0.0.7", 80)


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../page.py",
        "/assets/..%2fpage.py",
        "/assets//etc/passwd",
        "/assets/",
        "/../../../../etc/passwd",
        "/etc/passwd",
        "/api/",
        "/api/../api/nothing",
    ],
)
def test_nothing_is_read_from_disk_by_name(server: Server, path: str) -> None:
    assert ask(server, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_there_is_only_asking(server: Server, method: str) -> None:
    answer = ask(server, "/api/scene", method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")


def test_the_page_may_only_ask_its_server(server: Server) -> None:
    answer = ask(server, "/")
    policy = answer.getheader("Content-Security-Policy", "")
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert "unsafe" not in policy
    text = answer.body.decode()
    assets = [part.split('"')[0] for part in text.split('"assets/')[1:]]
    assert assets and "http" not in text
    kinds = {name: ask(server, f"/assets/{name}").getheader("Content-Type") for name in assets}
    assert all(
        kind == f"text/{'css' if name.endswith('.css') else 'javascript'}; charset=utf-8"
        for name, kind in kinds.items()
    )


def test_head_has_no_body(server: Server) -> None:
    answer = ask(server, "/", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.getheader("Content-Length", "0")) > 1000


def test_scene(server: Server) -> None:
    found = json.loads(ask(server, "/api/scene").body)
    assert found["facts"] == ["9 device events", "1 host, 1 device", "3 steps"]
    assert found["title"] == "host" and found["end_us"] == pytest.approx(140)
    assert [lane["name"] for lane in found["lanes"]] == [
        "Stream #14",
        "Stream #20",
        *["python"] * 3,
    ]


def test_slices_search_detail_summary(server: Server) -> None:
    window = "from_us=0&to_us=140"
    header, columns = unpacked(ask(server, f"/api/slices?{window}&pixels=500&lanes=0-1").body)
    assert header["lanes"] == [[0, 6], [1, 3]]
    found = json.loads(ask(server, f"/api/search?text=add&{window}").body)
    assert [hit["start_us"] for hit in found["hits"]] == [20, 70, 120]
    place = f"lane=0&start_us={columns['start'][1]}&depth=0"
    assert json.loads(ask(server, f"/api/detail?{place}").body)["title"] == "add.2"
    (member,) = json.loads(ask(server, f"/api/summary?{window}").body)["members"]
    assert member["by_kind"] == {"compute": 120.0, "communication": 0.0, "copy": 60.0}


def test_perfetto_gets_what_is_in_sight(server: Server) -> None:
    whole = ask(server, "/api/perfetto?from_us=0&to_us=140&member=0").body
    part = ask(server, "/api/perfetto?from_us=0&to_us=30&member=0").body
    assert len(perfetto_reader.read(whole)) > len(perfetto_reader.read(part)) > 0


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/slices?from_us=x&to_us=1&pixels=1", "from_us is 'x', expected a number"),
        ("/api/slices?from_us=5&to_us=1&pixels=1", "the window ends before it begins"),
        ("/api/summary?from_us=nan&to_us=1", "from_us is 'nan', expected a number"),
        ("/api/perfetto?from_us=0&to_us=1&member=4", "there is no profile 4 (there are 1)"),
    ],
)
def test_questions_that_make_no_sense(server: Server, path: str, said: str) -> None:
    answer = ask(server, path)
    assert answer.status == 400
    assert said in json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    "host", ["", "a b", "a:b", "127.0.0.1:" + "9" * 5000, "127.0.0.1:²", "[::1"]
)
def test_a_malformed_host_is_a_bad_request(server: Server, host: str) -> None:
    answer = ask(server, "/", Host=host)
    assert answer.status == 400 and b"the Host field is missing or malformed" in answer.body


def test_an_address_has_few_parameters(server: Server) -> None:
    assert ask(server, "/?" + "a=b&" * 60).status == 400


@pytest.mark.parametrize(
    "path",
    ["/%61ssets/viewer.js", "/api/%73cene", "/api/scene%00", "//", "/.", "//[", "//x/api/scene"],
)
def test_a_path_has_one_spelling(server: Server, path: str) -> None:
    assert ask(server, path).status == 404


def test_a_cookie_of_any_shape_is_read_once(server: Server) -> None:
    """A quoted value of 60,000 backslashes takes http.cookies 7 seconds, and this no time."""
    good = f"{server.guard.cookie}={server.guard.token}"
    assert ask(server, "/", Cookie='a="' + "\\" * 60_000 + '"').status == 401
    assert ask(server, "/", Cookie=f'a="b; {good};x').status == 200


def test_a_header_that_is_too_long(server: Server) -> None:
    assert ask(server, "/", Cookie="a" * 70_000).status == 431


def test_lanes_that_are_not_there_cost_nothing(server: Server) -> None:
    ranges = ",".join(["0-999999999"] * 4000) + ",²," + "9" * 50
    path = f"/api/slices?from_us=0&to_us=140&pixels=500&lanes={quote(ranges, safe=',')}"
    assert [lane for lane, _ in unpacked(ask(server, path).body)[0]["lanes"]] == [0, 1, 2, 3, 4]


def test_answers_are_only_for_the_reading_that_was_asked_about(server: Server) -> None:
    window = "from_us=0&to_us=140"
    assert ask(server, f"/api/summary?{window}&generation=1").status == 200
    for generation in ("0", "2", "x"):
        answer = ask(server, f"/api/summary?{window}&generation={generation}")
        assert answer.status == 409 and b"was read again" in answer.body


def test_a_failure_of_ours_is_told_to_the_page(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise IndexError("out of range")

    monkeypatch.setitem(ENDPOINTS, "/api/summary", fail)
    answer = ask(server, "/api/summary?from_us=0&to_us=140")
    assert answer.status == 500
    assert json.loads(answer.body)["error"].endswith("IndexError: out of range")


@pytest.mark.parametrize("endpoint", sorted(ENDPOINTS))
@given(values=st.lists(ODD, min_size=9, max_size=9))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_odd_questions_get_an_answer(server: Server, endpoint: str, values: list[str]) -> None:
    names = ("from_us", "to_us", "pixels", "lanes", "tops", "text", "lane", "depth", "start_us")
    query = urlencode({"member": "0", **dict(zip(names, values, strict=True))})
    answer = ask(server, f"{endpoint}?{query}")
    assert answer.status in (200, 400), answer.body


def test_a_port_that_is_taken_is_said_so(server: Server) -> None:
    with pytest.raises(Missing, match=f"cannot listen at 127.0.0.1 port {server.server_port}: "):
        Server(ViewerSession(["x"]), port=server.server_port)
