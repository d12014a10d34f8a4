"""Groups of commands: their help, a command that may be left out, and URLs checked in time."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from slipstream.remote.systems import is_url

_OUTPUTS = ("out", "output", "html", "timeline")
"""names of parameters that commands write to"""


class CommandGroup(TyperGroup):
    """A group whose help lists commands by panel, each with its whole description.

    With a `default`, `GROUP ARGUMENT` means `GROUP DEFAULT ARGUMENT`.
    """

    default: str | None = None
    """a command of the group"""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_known = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        if self.default is not None and not is_known:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        found = super().resolve_command(ctx, args)
        if any("://" in word for word in args):
            _check_urls_first(found[1])
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        longest = max(len(name) for name in self.commands)
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            panel = command.rich_help_panel
            rows = panels.setdefault(panel if isinstance(panel, str) else "Commands", [])
            # Longer than any description: Typer cuts what would take a second line.
            rows.append((name.ljust(longest), command.get_short_help_str(limit=200)))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def _check_urls_first(command: Any) -> None:
    """Let a command refuse a URL that it can't write to before it works for minutes."""
    # `run` writes to a local folder first, whatever the bucket says.
    if command is None or command.name == "run" or hasattr(command, "checks_urls"):
        return
    invoke, command.checks_urls = command.invoke, True

    def checked(ctx: Any) -> Any:
        from slipstream.cli.common import fetching
        from slipstream.remote.upload import check_writable

        for name in _OUTPUTS:
            if is_url(place := ctx.params.get(name)):
                check_writable(place)
        with fetching():
            return invoke(ctx)

    command.invoke = checked
