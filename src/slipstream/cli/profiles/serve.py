"""`slipstream serve`: explore profiles in the browser."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import DumpsOption, ProgressBar, RunOption, echo, show_json

if TYPE_CHECKING:
    from slipstream.serve.server import Server


def serve(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Profiles: folders or .xplane.pb written by JAX's profiler, Nsight Systems "
            ".sqlite or .nsys-rep, nsys-jax .zip.",
        ),
    ],
    host: Annotated[
        str, typer.Option(metavar="NAME", help="Address to listen on; the default is local only.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0 picks a free one."),
    ] = 0,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
    align: Annotated[
        bool,
        typer.Option(
            "--align/--no-align", help="Align profiles by the start of their first steps."
        ),
    ] = True,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the address as JSON (docs/json.md).")
    ] = False,
) -> None:
    """Explore profiles of any size in the browser, event by event.

    Several profiles are shown one below another. When a recording changes, or a new run appears
    in a folder, the page reloads it. Only this machine can connect, and only with the token in
    the address, unless --host says otherwise. Press Ctrl-C to stop.
    """
    # The first profile is already being read; the browser starts meanwhile.
    from slipstream.serve.server import Server
    from slipstream.serve.session import ViewerSession

    bar = ProgressBar()
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
        about = {"url": server.url, "host": server.guard.host, "port": server.server_port}
        show_json({**about, "paths": list(server.session.paths)})
    else:
        echo(server.url)
        if not server.is_loopback:
            echo(
                "This address is reachable from other machines; anyone with the token can connect."
            )
    if open_:
        import threading
        import webbrowser

        address = server.address(server.guard.ticket())
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
