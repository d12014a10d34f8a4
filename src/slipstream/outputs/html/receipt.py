"""A receipt as a page: the verdict, the programs timed, and how to reproduce it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from slipstream.analyses.summary import StepTimes
from slipstream.outputs.formatting import time_text, verdict_title
from slipstream.outputs.html.charts import bar, legend
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Page, Section, page
from slipstream.outputs.html.sections.overview import step_parts
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    bytes_cell,
    count_cell,
    number,
    table,
    us_cell,
)
from slipstream.outputs.terminal.receipt import (
    RECORDED,
    Data,
    function_text,
    receipt_lines,
    recorded_text,
    verdict_text,
)

TIMES = (
    "wall",
    "compute",
    "communication",
    "exposed_communication",
    "copy",
    "exposed_copy",
    "idle",
    "unattributed",
)


def receipt_page(receipt: Data) -> str:
    """The page."""
    return page(receipt_content(receipt))


def receipt_content(receipt: Data) -> Page:
    """What the page has."""
    program = receipt["program"].get("name") or "A job"
    facts = [
        ", ".join(dict.fromkeys(receipt["devices"])),
        f"jax {receipt['versions']['jax']}" if receipt["versions"].get("jax") else "",
        str(receipt["repeat"].get("when") or ""),
    ]
    title = f"{verdict_title(receipt['verdict'])} · {program} · slipstream run"
    sections = list(_sections(receipt))
    heading = f"{program}: {verdict_title(receipt['verdict'])}"
    return Page(title, heading, facts, sections, styles=("report.css",))


def _sections(receipt: Data) -> Iterator[Section]:
    yield Section("verdict", "Verdict", _verdict(receipt), _capitalised(verdict_text(receipt)))
    if receipt["arms"]:
        lede = "The variants in which the step was compiled, and their step times."
        badge = str(len(receipt["arms"]))
        yield Section("programs", "Programs", _arms(receipt["arms"]), lede, badge)
    for index, other in enumerate(receipt.get("functions", ())[1:], 2):
        name, lede = str(other["program"]["name"]), _capitalised(function_text(other))
        if other["arms"]:
            badge = str(len(other["arms"]))
            yield Section(f"function{index}", name, _arms(other["arms"]), lede, badge)
    times = {name: part for name, part in receipt["overlap"].items() if part}
    if times:
        lede = _capitalised(recorded_text(receipt) or "")
        yield Section("steps", "Where the step time goes", _steps(times), lede)
    ranks = receipt.get("ranks") or {}
    if ranks.get("reported", 0) > 1:
        lede = f"How long each phase took on {ranks['reported']} of {ranks['count']} ranks."
        yield Section("ranks", "Ranks", _ranks(ranks["seconds"]), lede, str(ranks["count"]))
    above = ("verdict", RECORDED)
    rows = [(phase, text) for phase, text in receipt_lines(receipt) if phase not in above]
    if rows or receipt["notes"]:
        yield Section("phases", "Phases", _told(rows, receipt["notes"]))
    yield Section("repeat", "Reproduce", _repeat(receipt))


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _verdict(receipt: Data) -> Html:
    parts: list[Html | None] = []
    if receipt["basis"] == "predicted":
        text = "All numbers are predicted; nothing ran on a device."
        parts.append(tag("ul", tag("li", text), class_="warnings"))
    step, change = receipt["step_us"], receipt["change"]
    if step["before"] is not None and step["after"] is not None and change is not None:
        figures = [
            ("Before", time_text(step["before"]), "per step"),
            ("After", time_text(step["after"]), _shown(receipt)),
            ("Change", _percent(change["estimate"]), _interval(change)),
        ]
        parts.append(tag("dl", [_figure(*figure) for figure in figures], class_="figures"))
        parts.append(_whiskers(change))
    return join(parts)


def _shown(receipt: Data) -> str:
    """The program whose change is shown: the one chosen, or the one rejected."""
    if receipt["chosen"] not in (None, "original"):
        return str(receipt["chosen"])
    estimate = receipt["change"]["estimate"]
    told_of = (a for a in receipt["arms"] if (a.get("comparison") or {}).get("change") == estimate)
    found = next(told_of, None)
    return f"{found['name']}, not kept" if found else ""


def _figure(name: str, value: str, below: str) -> Html:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", below)), class_="figure")


def _interval(change: Data) -> str:
    if "low" not in change:
        return ""
    return f"95%: {_percent(change['low'])} … {_percent(change['high'])}"


def _percent(share: float) -> str:
    return f"{share:+.1%}".replace("-", "−")


def _whiskers(change: Data) -> Html | None:
    """The confidence interval on a line centred at zero."""
    if "low" not in change:
        return None
    low, high, middle = (float(change[key]) for key in ("low", "high", "estimate"))
    reach = max(abs(low), abs(high), abs(middle), 1e-4) * 1.15

    def at(share: float) -> float:
        return 500 * (1 + share / reach)

    kind = "fill-accent"
    shapes = [
        tag("rect", x=0, y=9.5, width=1000, height=1, class_="fill-line"),
        tag(
            "rect", x=at(low), y=7, width=max(at(high) - at(low), 1.0), height=6, class_="fill-soft"
        ),
        tag("rect", x=at(middle) - 2, y=4, width=4, height=12, class_=kind),
        tag("rect", x=499.5, y=0, width=1, height=20, class_="fill-muted"),
    ]
    drawn = tag(
        "svg",
        shapes,
        viewBox="0 0 1000 20",
        preserveAspectRatio="none",
        class_="whiskers",
        role="img",
        aria_label=f"The change and its interval: {_interval(change)}",
    )
    ends = (tag("span", _percent(-reach)), tag("span", "0"), tag("span", _percent(reach)))
    return tag("div", drawn, tag("div", ends, class_="ends"), class_="chart")


def _arms(arms: Sequence[Data]) -> Html:
    columns = [
        TableColumn("Program"),
        TableColumn("Flags", is_wide=True, is_code=True),
        number("Step"),
        number("Change"),
        number("Steps timed", wide=True),
        number("Memory", wide=True),
        TableColumn("", is_wide=True),
    ]
    return table(columns, [_arm(arm) for arm in arms], "Programs timed")


def _arm(arm: Data) -> Row:
    flags = " ".join(f"--{name}={value}" for name, value in arm["flags"].items())
    first = arm["same_program_as"]
    what = "the original" if first == "original" else first
    same = f"the same program as {what}" if first else ""
    found = arm.get("comparison")
    change = Cell("–", None)
    if found:
        kind = {"faster": "down", "slower": "up"}.get(found["verdict"])
        text = tag("span", _percent(found["change"]), class_=kind)
        change = Cell(join((text, tag("small", found["verdict"]))), found["change"])
    return [
        arm["name"],
        flags or "–",
        us_cell(arm["step_us"] or None),
        change,
        count_cell(arm["rounds"] or None),
        bytes_cell(arm["memory_bytes"]),
        arm["error"] or same,
    ]


def _ranks(seconds: Mapping[str, Data]) -> Html:
    columns = [TableColumn("Phase"), number("Median"), number("Slowest"), number("Slowest rank")]
    rows: list[Row] = [
        [
            phase,
            us_cell(found["median"] * 1e6),
            us_cell(found["slowest"] * 1e6),
            count_cell(found["rank"]),
        ]
        for phase, found in seconds.items()
    ]
    return table(columns, rows, "Phases by rank")


def _steps(parts: Mapping[str, Mapping[str, float]]) -> Html:
    times = {
        name: StepTimes(*(part.get(key) or 0.0 for key in TIMES)) for name, part in parts.items()
    }
    most = max(one.wall_us for one in times.values())
    rows = []
    for name, one in times.items():
        said = ", ".join(f"{part.name} {part.text}" for part in step_parts(one))
        rows += [
            tag("span", name, class_="name"),
            bar(step_parts(one), f"{name}: {time_text(one.wall_us)}, {said}", most),
            tag("span", time_text(one.wall_us), class_="amount"),
        ]
    shown = {part.name: part for one in times.values() for part in step_parts(one)}
    columns = [TableColumn("Of one step"), *(number(name) for name in times)]
    cells: list[Row] = [
        [key.replace("_", " "), *(us_cell(getattr(one, f"{key}_us")) for one in times.values())]
        for key in TIMES
    ]
    return join(
        (
            tag("div", rows, class_="bars sides"),
            tag("div", legend(list(shown.values())), class_="keysonly"),
            table(columns, cells, "Times of one step"),
        )
    )


def _told(rows: Sequence[tuple[str, str]], notes: Sequence[str]) -> Html:
    pairs = [(tag("dt", phase), tag("dd", text)) for phase, text in rows]
    said = tag("dl", pairs, class_="pairs") if pairs else None
    return join((said, [tag("p", note, class_="note") for note in notes]))


def _repeat(receipt: Data) -> Html:
    command = receipt["repeat"].get("command")
    parts: list[Html | None] = []
    if command:
        copy = tag("button", "Copy", type="button", class_="button", data_copy="repeat-command")
        text = command if isinstance(command, str) else shlex.join(str(word) for word in command)
        parts.append(tag("div", tag("pre", text, id="repeat-command"), copy, class_="do"))
    about = {key: receipt[key] for key in ("repeat", "versions", "devices", "program", "files")}
    shown = tag("pre", json.dumps(about, indent=1, default=str, ensure_ascii=False))
    parts.append(tag("details", tag("summary", "Versions, environment and files"), shown))
    return join(parts)
