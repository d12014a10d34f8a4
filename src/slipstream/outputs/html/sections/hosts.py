"""The devices and processes of a run, compared."""

from __future__ import annotations

from slipstream.analyses.hosts import Hosts
from slipstream.outputs.formatting import plural, share_text
from slipstream.outputs.html.markup import join
from slipstream.outputs.html.page import Section, notes_of
from slipstream.outputs.html.tables import Row, TableColumn, number, table, us_cell


def hosts_section(result: Hosts) -> Section:
    """A row for each device."""
    columns = [
        TableColumn("Device"),
        TableColumn("Host"),
        TableColumn("Model", is_wide=True),
        number("Step"),
        number("Compute"),
        number("Exposed communication", wide=True),
        number("Idle", wide=True),
        number("Others wait for it", wide=True),
        number("Starts later by", wide=True),
        number("Clock ahead by", wide=True),
    ]
    rows: list[Row] = [
        [
            row.device,
            row.host,
            row.model,
            us_cell(row.step_us),
            us_cell(row.compute_us),
            us_cell(row.exposed_communication_us),
            us_cell(row.idle_us),
            us_cell(row.caused_us),
            us_cell(row.start_skew_us),
            us_cell(row.clock_offset_us),
        ]
        for row in result.ranked
    ]
    body = join((table(columns, rows, "Devices of the run"), notes_of(result.notes)))
    return Section("hosts", "Hosts", body, _hosts_lede(result), str(result.devices))


def _hosts_lede(result: Hosts) -> str:
    text = f"{plural(result.hosts, 'host')}, {plural(result.devices, 'device')}."
    if result.compute_spread is not None:
        text += f" The slowest computes {share_text(result.compute_spread)} longer than the median."
    if result.slow:
        of = " of {}" if result.hosts > 1 else ""
        names = ", ".join(one.row.device + of.format(one.row.host) for one in result.slow[:4])
        text += f" Slow, or with more to compute: {names}."
    return text
