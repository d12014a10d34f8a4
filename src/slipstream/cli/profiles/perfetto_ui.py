"""Open a trace at ui.perfetto.dev, as Perfetto's own `open_trace_in_ui` does.

The page fetches the file from this machine, from the one port that its security policy allows
(github.com/google/perfetto, tools/open_trace_in_ui). The trace goes to the local browser only.
"""

from __future__ import annotations

import secrets
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from slipstream.errors import Missing
from slipstream.serve.auth import Guard
from slipstream.serve.http_head import Head, Refused
from slipstream.serve.http_server import PIECE_BYTES, HttpHandler, HttpServer

PAGE = "https://ui.perfetto.dev"
PORT = 9001
TIMEOUT_S = 120.0


def serve_trace(path: Path, say: Callable[[str], None], timeout_s: float = TIMEOUT_S) -> None:
    """Open the page in a browser, and serve it one file until it has fetched that."""
    try:
        server = _Server(path)
    except OSError as error:
        raise Missing(
            f"cannot use port {PORT}, the only one that {PAGE} may read from: "
            f"{error.strerror}; open {path} there yourself"
        ) from None
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        say(f"opening {server.link}")
        webbrowser.open(server.link)
        is_fetched = server.is_fetched.wait(timeout_s)
        server.shutdown()
        thread.join()
    if not is_fetched:
        raise Missing(f"no browser fetched the trace; open {path} at {PAGE} yourself")


class _Server(HttpServer):
    """Serves one file, under a name that nobody else can guess."""

    def __init__(self, path: Path) -> None:
        super().__init__("127.0.0.1", PORT, _Handler)
        self.path = path
        self.target = f"/{secrets.token_urlsafe(16)}/{quote(path.name)}"
        self.guard = Guard("127.0.0.1", self.server_port)
        self.is_fetched = threading.Event()

    @property
    def link(self) -> str:
        """The address that opens the trace while it is served."""
        return f"{PAGE}/#!/?url=http://127.0.0.1:{self.server_port}{self.target}"


class _Handler(HttpHandler):
    server: _Server
    fields = {
        "Access-Control-Allow-Origin": PAGE,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }

    def answer(self, head: Head) -> None:
        if not self.server.guard.is_own_host(head.host, head.port):
            raise Refused(421, "the Host field does not name this server")
        if head.target != self.server.target:
            raise Refused(404, "not found")
        self.keeps_open = False
        with self.server.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            self.send_head(200, "application/octet-stream", {"Content-Length": str(size)})
            while not self.is_head and (piece := file.read(min(PIECE_BYTES, size))):
                self.write(piece)
                size -= len(piece)
        if not self.is_head and size == 0:
            self.server.is_fetched.set()
