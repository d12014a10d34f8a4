"""The links over time, and the questions of Megascale's guide, as an HTML page."""

from __future__ import annotations

import os

from slipstream.analyses.network.network import Network
from slipstream.outputs.formatting import plural, time_text
from slipstream.outputs.html.page import Page, page
from slipstream.outputs.html.sections.megascale import megascale_section
from slipstream.outputs.html.sections.network import network_section
from slipstream.writing import atomic_write


def network_page(found: Network, name: str) -> str:
    """The whole page."""
    return page(network_content(found, name))


def network_content(found: Network, name: str) -> Page:
    """What the page has."""
    heading = "Megascale" if found.guide else "Network"
    facts = [
        found.machine,
        plural(found.steps, "step") if found.steps else "",
        time_text(found.step_us) if found.steps else "",
    ]
    sections = [megascale_section(found)] if found.guide else []
    return Page(
        title=f"{heading} · {name} · slipstream",
        heading=f"{heading}: {name}" if name else heading,
        facts=[fact for fact in facts if fact],
        sections=[*sections, network_section(found)],
    )


def write_network(found: Network, name: str, path: str | os.PathLike[str]) -> None:
    """Write the page."""
    text = network_page(found, name).encode("utf-8", "replace")  # names of files may be any bytes
    with atomic_write(path) as temporary:
        temporary.write_bytes(text)
