"""The viewer's HTTP server: a page, its assets, and an API for one session.

    GET /?token=…        stores the token in a cookie and redirects to /
    GET /                the page                     /assets/NAME     scripts, styles: a fixed list
    GET /api/scene       lanes, times                 /api/slices      what lanes show in a window
    GET /api/search      hits                         /api/detail      one slice
    GET /api/summary     time by kind and op          /api/perfetto    a window as a Perfetto trace
    GET /api/structure   lanes above the streams
    GET /api/events      server-sent events: progress, errors and new data

No request names a file on disk, and every request needs the token.
"""

from __future__ import annotations

import json
import socket
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from slipstream.errors import Missing, SlipstreamError
from slipstream.serve import page
from slipstream.serve.auth import ANYWHERE, LOOPBACK, Guard
from slipstream.serve.http_head import Head, Refused
from slipstream.serve.http_server import HttpHandler, HttpServer
from slipstream.serve.session import SessionState, ViewerSession

if TYPE_CHECKING:
    from slipstream.serve.endpoints import Endpoint

PING_S = 10.0
READ_S = 600.0
"""how long a request waits for the first reading"""
MAX_PARAMETERS = 50


class Server(HttpServer):
    """Serves one session until it is closed."""

    def __init__(self, session: ViewerSession, host: str = "127.0.0.1", port: int = 0) -> None:
        self.session = session
        try:
            super().__init__(host, port, _Handler)
        except OSError as error:
            raise Missing(
                f"cannot listen at {host} port {port}: {error.strerror or error}; choose another: "
                "slipstream serve PATH --port 0"
            ) from None
        self.guard = Guard(host, self.server_port)

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return self.address(self.guard.token)

    def address(self, token: str) -> str:
        """The address with a token, or with a ticket."""
        host = self.guard.host
        name = host if host not in ANYWHERE else socket.gethostname()
        shown = f"[{name}]" if ":" in name else name
        return f"http://{shown}:{self.server_port}/?token={token}"

    @property
    def is_loopback(self) -> bool:
        return self.guard.host in LOOPBACK

    @cached_property
    def assets(self) -> dict[str, tuple[str, str]]:
        return page.assets()

    def start(self) -> threading.Thread:
        """Serve in a thread of its own."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        self.session.close()
        self.shutdown()
        self.server_close()


class _Handler(HttpHandler):
    server: Server
    fields = {
        "Server": "slipstream",
        "Content-Security-Policy": page.POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }

    def answer(self, head: Head) -> None:
        guard = self.server.guard
        if not guard.is_own_host(head.host, head.port):
            raise Refused(421, "the Host field does not name this server")
        path, parameters = _parsed(head.target)
        if path == "/" and guard.accepts(parameters.get("token", "")):
            fields = {"Location": "/", "Set-Cookie": guard.set_cookie()}
            return self.send(303, b"", "text/plain", fields)
        if not guard.accepts_cookies(head.fields.get("cookie", "")):
            raise Refused(401, "open the address that slipstream serve printed: it has a token")
        return self._route(path, parameters)

    def _route(self, path: str, parameters: dict[str, str]) -> None:
        if path == "/":
            return self.send(200, page.viewer_page().encode(), "text/html; charset=utf-8")
        if path.startswith("/assets/"):
            found = self.server.assets.get(path.removeprefix("/assets/"))
            if found is not None:
                return self.send(200, found[1].encode(), f"{found[0]}; charset=utf-8")
        if path == "/api/events":
            return self._events()
        # Imported late, so that the address is printed and the page sent first.
        from slipstream.serve.endpoints import ENDPOINTS

        endpoint = ENDPOINTS.get(path)
        if endpoint is None:
            raise Refused(404, "not found")
        return self._answer(endpoint, parameters)

    def _answer(self, endpoint: Endpoint, parameters: dict[str, str]) -> None:
        try:
            scene = self.server.session.scene(READ_S)
            if parameters.get("generation", str(scene.generation)) != str(scene.generation):
                # Lanes and times of another reading would be shown as if they were of this one.
                return self._send_json(409, {"error": "the recording was read again; reload"})
            found = endpoint(scene, parameters)
        except SlipstreamError as error:
            return self._send_json(400, {"error": str(error)})
        except Exception as error:
            # The page shows it, and other requests go on; else the connection would just close.
            why = f"{type(error).__name__}: {error}"
            return self._send_json(500, {"error": f"slipstream could not answer this: {why}"})
        if isinstance(found, bytes):
            return self.send(200, found, "application/octet-stream")
        return self._send_json(200, found)

    def _events(self) -> None:
        """Send every change of state until the page or the server is closed."""
        self.keeps_open = False
        self.send_head(200, "text/event-stream; charset=utf-8", {})
        seen: SessionState | None = None
        while not self.is_head:
            state = self.server.session.wait(seen or SessionState(-1), PING_S)
            text = (
                ": ping\n\n" if state == seen else f"data: {_json(_state_json(state)).decode()}\n\n"
            )
            self.write(text.encode())
            if state.is_over:
                return
            seen = state

    def _send_json(self, status: int, data: Any) -> None:
        self.send(status, _json(data), "application/json; charset=utf-8")


def _parsed(target: str) -> tuple[str, dict[str, str]]:
    """Path and parameters of a request's target. The path stays as it was sent: none needs `%`."""
    path, _, query = target.partition("?")
    try:
        found = parse_qs(query, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise Refused(400, f"an address has at most {MAX_PARAMETERS} parameters") from None
    return path, {name: values[0] for name, values in found.items()}


def _state_json(state: SessionState) -> dict[str, Any]:
    return {
        "generation": state.generation,
        "done_bytes": state.done_bytes,
        "total_bytes": state.total_bytes,
        "error": state.error,
        "read_at": state.read_at,
        "is_over": state.is_over,
    }


def _json(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
