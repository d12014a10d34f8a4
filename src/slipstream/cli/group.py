"""Groups of commands: how their help lists them, and a command that may be left out."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


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
