"""Open a trace at ui.perfetto.dev, as Perfetto's own `open_trace_in_ui` does.

The page fetches the file from this machine, from the one port that its security policy allows
(github.com/google/perfetto, tools/open_trace_in_ui). The trace goes to the local browser only.
"""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

from slipstream.errors import Missing

PAGE = "https://ui.perfetto.dev"
PORT = 9001
TIMEOUT_S = 120.0


def link(path: Path) -> str:
    """The address that opens the trace while `serve_trace` serves it."""
    return f"{PAGE}/#!/?url=http://127.0.0.1:{PORT}/{quote(path.name)}"


def serve_trace(path: Path, say: Callable[[str], None], timeout_s: float = TIMEOUT_S) -> None:
    """Open the page in a browser, and serve it one file until it has fetched that."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != f"/{quote(path.name)}":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", PAGE)
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            with path.open("rb") as file:
                while piece := file.read(1 << 20):
                    self.wfile.write(piece)
            server.is_fetched = True

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

    try:
        server = _Server(("127.0.0.1", PORT), Handler)
    except OSError as error:
        raise Missing(
            f"cannot use port {PORT}, the only one that {PAGE} may read from: "
            f"{error.strerror}; open {path} there yourself"
        ) from None
    with server:
        say(f"opening {link(path)}")
        webbrowser.open(link(path))
        server.timeout = 1
        deadline = time.monotonic() + timeout_s
        while not server.is_fetched:
            if time.monotonic() > deadline:
                raise Missing(f"no browser fetched the trace; open {path} at {PAGE} yourself")
            server.handle_request()


class _Server(HTTPServer):
    allow_reuse_address = True
    is_fetched = False
