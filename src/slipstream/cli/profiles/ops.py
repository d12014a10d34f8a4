"""`slipstream ops`: device time by instruction, or by another grouping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    FlatOption,
    JsonOption,
    PathArgument,
    RunOption,
    TopOption,
    WholeOption,
    open_profile,
    show,
    show_json,
    with_tables,
)
from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput

if TYPE_CHECKING:
    from slipstream.analyses.op_groups import ScopeTotal

DEFAULT_TOP = 20
TREES = ("scope", "loop")
"""groupings with levels"""


@with_tables
def ops(
    path: PathArgument,
    by: Annotated[
        str,
        typer.Option(
            metavar="GROUPING",
            help="Group by instruction, category, phase, scope, loop, source or kernel.",
        ),
    ] = "instruction",
    depth: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With --by scope or loop: a tree with totals, N levels deep.",
        ),
    ] = None,
    flat: FlatOption = False,
    top: TopOption = None,
    whole: WholeOption = False,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show device time by instruction, scope, phase or source line.

    The longest come first. Equal ops of unrolled layers are one line: the same computation on the
    same shapes, in the same phase, line and scope but for the layer's number. Times are per step;
    with --all, for the whole recording. Shares are of all device time.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.ops import GROUPINGS, has_scopes, in_loops
    from slipstream.analyses.ops import ops as analyse
    from slipstream.outputs.json import ops_json

    if by not in GROUPINGS:
        raise BadInput(no_such("grouping", by, GROUPINGS))
    if depth is not None and by not in TREES:
        raise BadInput(
            f"--depth is for scopes, not for --by {by}; type: --by scope --depth {depth}"
        )
    profile = open_profile(path, run, dumps)
    result = analyse(profile, by=by, whole=whole)
    why = ""
    if by == "scope" and not json and not has_scopes(result):
        result, why = analyse(profile, by="loop", whole=whole), "no op has a name scope"
    tree: tuple[ScopeTotal, ...] = ()
    if by in TREES and (json or depth is not None):
        from slipstream.outputs.terminal.table_options import is_filtered

        found = analyse(profile, whole=whole)
        # A filter finds scopes that are deeper, too.
        deep = None if is_filtered() else depth
        is_loop = result.by == "loop"
        tree = (in_loops(profile, found) if is_loop else found).tree(deep, flat or is_loop)
    if json:
        return show_json(ops_json(result, top, tree))
    if depth is not None:
        from slipstream.outputs.terminal.ops import render_scope_tree

        return show(lambda width: render_scope_tree(result, tree, width, top, why))
    from slipstream.outputs.terminal.ops import render_ops

    show(lambda width: render_ops(result, width, top or DEFAULT_TOP, flat, why))
