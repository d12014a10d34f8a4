"""Hands a trace to ui.perfetto.dev, as Perfetto's own `open_trace_in_ui` does.

The page fetches the file from this machine, at the one port that its security policy allows
(github.com/google/perfetto, tools/open_trace_in_ui): the trace goes from here to the browser here.
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
PATIENCE_S = 120.0


def link(path: Path) -> str:
    """What opens the trace, while `hand_over` serves it."""
    return f"{PAGE}/#!/?url=http://127.0.0.1:{PORT}/{quote(path.name)}"


def hand_over(path: Path, say: Callable[[str], None], patience_s: float = PATIENCE_S) -> None:
    """Serves one file to the page until that has it, and opens the page in a browser."""

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
            """A command says what it did, not what it was asked."""

    try:
        server = _Server(("127.0.0.1", PORT), Handler)
    except OSError as error:
        raise Missing(
            f"port {PORT}, the only one that {PAGE} may read from, can't be used: "
            f"{error.strerror}; open {path} there by hand"
        ) from None
    with server:
        say(f"opening {link(path)}")
        webbrowser.open(link(path))
        server.timeout = 1
        until = time.monotonic() + patience_s
        while not server.is_fetched:
            if time.monotonic() > until:
                raise Missing(f"no browser asked for the trace; open {path} at {PAGE} by hand")
            server.handle_request()


class _Server(HTTPServer):
    allow_reuse_address = True
    is_fetched = False
