"""The viewer's HTTP server: a page, its assets, and an API for one session.

    GET /?token=…        stores the token in a cookie and redirects to /
    GET /                the page                     /assets/NAME     scripts, styles: a fixed list
    GET /api/scene       lanes, times                 /api/slices      what lanes show in a window
    GET /api/search      hits                         /api/detail      one slice
    GET /api/summary     time by kind and op          /api/perfetto    a window as a Perfetto trace
    GET /api/events      server-sent events: progress, errors and new data

No request names a file on disk, and every request needs the token.
"""

from __future__ import annotations

import json
import socket
import threading
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from slipstream.errors import Missing, SlipstreamError
from slipstream.serve import page
from slipstream.serve.auth import LOOPBACK, Guard
from slipstream.serve.session import SessionState, ViewerSession

if TYPE_CHECKING:
    from slipstream.serve.endpoints import Endpoint

PING_S = 10.0
_SECURITY = {
    "Content-Security-Policy": page.POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """Serves one session until it is closed."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, session: ViewerSession, host: str = "127.0.0.1", port: int = 0) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.session = session
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise Missing(
                f"cannot listen at {host} port {port}: {error.strerror or error}; choose another: "
                "slipstream serve PATH --port 0"
            ) from None
        self.guard = Guard(host, self.server_port)

    def server_bind(self) -> None:
        # The base class would look up the host name, which may take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return self.address(self.guard.token)

    def address(self, token: str) -> str:
        """The address with a token, or with a ticket."""
        host = self.guard.host
        name = host if host not in ("0.0.0.0", "::", "") else socket.gethostname()
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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser may close the connection in the middle of a response."""
        import sys

        if not isinstance(sys.exception() if hasattr(sys, "exception") else None, OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection, kept open for several requests."""

    protocol_version = "HTTP/1.1"
    server_version = "slipstream"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Server

    def do_GET(self) -> None:
        guard = self.server.guard
        if not guard.is_own_host(self.headers.get("Host", "")):
            return self._refuse(421, "the Host header does not name this server")
        asked = urlsplit(self.path)
        parameters = {key: values[0] for key, values in parse_qs(asked.query).items()}
        if asked.path == "/" and guard.accepts(parameters.get("token", "")):
            return self._send(
                303, b"", "text/plain", {"Location": "/", "Set-Cookie": guard.set_cookie()}
            )
        if not guard.accepts_cookies(self.headers.get("Cookie", "")):
            return self._refuse(
                401, "open the address that slipstream serve printed: it contains a token"
            )
        return self._route(asked.path, parameters)

    do_HEAD = do_GET

    def _route(self, path: str, parameters: dict[str, str]) -> None:
        if path == "/":
            return self._send(200, page.viewer_page().encode(), "text/html")
        if path.startswith("/assets/"):
            found = self.server.assets.get(path.removeprefix("/assets/"))
            if found is not None:
                return self._send(200, found[1].encode(), found[0])
        if path == "/api/events":
            return self._events()
        # Imported late, so that the address is printed and the page sent first.
        from slipstream.serve.endpoints import ENDPOINTS

        endpoint = ENDPOINTS.get(path)
        if endpoint is not None:
            return self._answer(endpoint, parameters)
        return self._refuse(404, "not found")

    def _answer(self, endpoint: Endpoint, parameters: dict[str, str]) -> None:
        session = self.server.session
        try:
            found = endpoint(session, parameters)
        except SlipstreamError as error:
            return self._send(400, _json({"error": str(error)}), "application/json")
        if isinstance(found, bytes):
            return self._send(200, found, "application/octet-stream")
        return self._send(200, _json(found), "application/json")

    def _events(self) -> None:
        """Send every change of state until the page or the server is closed."""
        self.close_connection = True
        self._head(200, "text/event-stream", {"Connection": "close"})
        seen: SessionState | None = None
        while True:
            state = self.server.session.wait(seen or SessionState(-1), PING_S)
            text = (
                ": ping\n\n" if state == seen else f"data: {_json(_state_json(state)).decode()}\n\n"
            )
            try:
                self.wfile.write(text.encode())
                self.wfile.flush()
            except OSError:
                return
            if state.is_over:
                return
            seen = state

    # ---- sending ------------------------------------------------------------------------------

    def _refuse(self, code: int, why: str) -> None:
        self._send(code, f"{why}\n".encode(), "text/plain")

    def _send(
        self, code: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self._head(code, kind, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, code: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(code)
        text = kind.startswith("text/") or kind == "application/json"
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if text else kind)
        for name, value in {**_SECURITY, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged."""


def _state_json(state: SessionState) -> dict[str, Any]:
    return {
        "generation": state.generation,
        "done_bytes": state.done_bytes,
        "total_bytes": state.total_bytes,
        "error": state.error,
        "is_over": state.is_over,
    }


def _json(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
