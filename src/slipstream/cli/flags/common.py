"""What the commands of `flags` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from slipstream.flags.catalogue.catalogue import Catalogue

JaxlibOption = Annotated[
    str | None,
    typer.Option(
        "--jaxlib", metavar="VERSION", help="jaxlib release.  [default: the installed one]"
    ),
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="GPU the job runs on, e.g. H100.")
]


def catalogue_for(jaxlib: str | None) -> Catalogue:
    """The flags of a release; by default, of the installed jaxlib."""
    if jaxlib is None:
        from slipstream.flags.catalogue.catalogue import installed_catalogue

        return installed_catalogue()
    from slipstream.flags.catalogue.history import catalogue_of

    return catalogue_of(jaxlib)
