"""`slipstream serve`: profiles of any size in the browser."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import DumpsOption, LoadBar, RunOption, echo, show_json

if TYPE_CHECKING:
    from slipstream.serve.server import Server


def serve(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="One or more of what JAX's profiler wrote (a folder, or .xplane.pb), Nsight "
            "Systems .sqlite or .nsys-rep, nsys-jax .zip.",
        ),
    ],
    host: Annotated[
        str, typer.Option(metavar="NAME", help="Where to listen; others can reach what isn't this.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Which port; 0 takes a free one.")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
    align: Annotated[
        bool,
        typer.Option("--align/--no-align", help="Begin the first steps of all PATHs together."),
    ] = True,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the address as JSON, as docs/json.md describes it."),
    ] = False,
) -> None:
    """Shows whole recordings in the browser: every event, at any zoom.

    Several PATHs stand below each other. A recording that changes, or a new run in a folder, is
    read again and shown in place. Only this machine can connect, and only with the token in the
    address, unless --host says otherwise. Ctrl-C ends it.
    """
    # The first path is being read already; the browser starts while that goes on.
    from slipstream.serve.server import Server
    from slipstream.serve.session import ViewerSession

    bar = LoadBar()
    session = ViewerSession(paths, run, dumps, align, bar.update)
    server = Server(session, host, port)
    server.start()
    with suppress(KeyboardInterrupt):
        _announce(server, open_, json)
        with bar:
            session.first_read()
        session.warm_up()
        session.watch()
    server.close()


def _announce(server: Server, open_: bool, json: bool) -> None:
    if json:
        told = {"url": server.url, "host": server.guard.host, "port": server.server_port}
        show_json({**told, "paths": list(server.session.paths)})
    else:
        echo(server.url)
        if not server.is_loopback:
            echo("Others can reach this address; whoever has the token can see the recording.")
    if open_:
        import threading
        import webbrowser

        address = server.address(server.guard.ticket())
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
