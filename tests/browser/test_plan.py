"""A plan's page in real Chromium: hover, filter, select, sort, the address, odd plans."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from plans import CAPACITY, LIMIT, made_up_plan
from slipstream.outputs.html.plan import write_plan_page
from slipstream.results.planning import BOUND, PER_SECOND, Candidate, MachinePlan, Plan, PlanCounts
from slipstream.results.tuning import NO_FIT, OK

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
READY = "document.documentElement.dataset.ready"
PATIENCE_S = 200
STATE = "SlipstreamPlan.state"


def machine(name: str, *candidates: Candidate, best: Candidate | None = None) -> MachinePlan:
    counts = PlanCounts(len(candidates))
    return MachinePlan(
        name,
        8,
        candidates,
        best,
        (),
        (),
        counts,
        memory_capacity_bytes=CAPACITY,
        memory_limit_bytes=LIMIT,
    )


def odd_plans() -> dict[str, Plan]:
    """Plans without much to show."""
    large = Candidate(0, {"batch": 1}, NO_FIT, memory_bytes=90 * 10**9, basis=BOUND, why="large")
    plain = Candidate(0, {"batch": 1}, OK)
    faster = replace(plain, number=1, choices={"batch": 2}, step_us=2e6, work=2.0, work_per_s=1.0)
    small = [
        replace(faster, number=n, choices={"batch": n, "mesh": n % 2}, memory_bytes=n * 10**6)
        for n in range(1, 4)
    ]
    too_large = replace(small[1], status=NO_FIT, memory_bytes=90 * 10**9, work_per_s=2.0)
    machines = {
        "nothing fits": machine("8xH100", large, replace(large, number=1, choices={"batch": 2})),
        "one candidate": machine("8xH100", plain, best=plain),
        "one choice": machine("8xH100", plain, faster, best=faster),
        "no candidate": machine("8xH100"),
        "too large": machine("8xH100", small[0], too_large, best=small[0]),
        "far from the limit": machine("8xH100", *small, best=small[1]),
    }
    return {
        name: Plan("train.py:build", PER_SECOND, "samples", (one,))
        for name, one in machines.items()
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The address of a plan's page, which is written once."""
    folder = tmp_path_factory.mktemp("plans")
    plans = {"64": lambda: made_up_plan(64), "sizes": lambda: made_up_plan(64, 128, 512)}
    plans["unfinished"] = lambda: replace(
        plans["64"](), machines=(*plans["64"]().machines, machine("128xH100"))
    )
    plans |= {name: lambda plan=plan: plan for name, plan in odd_plans().items()}

    def address(name: str) -> str:
        path = folder / f"{name}.html"
        if not path.exists():
            write_plan_page(plans[name](), path)
        return path.as_uri()

    return address


def opened(page, address: str):
    page.goto(address)
    until(page, READY)
    return page


def until(page, expression: str) -> None:
    """Waits for something to be true; Playwright's own way needs `eval`, which pages forbid."""
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)


def table_numbers(page) -> list[int]:
    texts = page.locator("#plan-table tbody tr td:first-child").all_inner_texts()
    return [int(text) for text in texts]


def place_of(page, view: str, number: int) -> tuple[float, float]:
    """Where a candidate is on the screen: its dot, or its line between the last two axes."""
    expression = """([name, number]) => {
        const view = SlipstreamPlan.views.find((one) => one.constructor.name === name);
        const one = view.state.byNumber.get(number);
        const box = view.svg.getBoundingClientRect();
        if (name === "Front") return [box.left + view.x(one.memory), box.top + view.y(one)];
        const ys = view.ys.get(number);
        const [from, to] = view.axes.slice(-2).map((axis) => axis.x);
        return [box.left + (from + to) / 2, box.top + (ys.at(-2) + ys.at(-1)) / 2];
    }"""
    x, y = page.evaluate(expression, [view, number])
    return x, y


# Select: anywhere, shown everywhere, kept in the address.


def test_a_candidate_is_selected_in_one_view_and_marked_in_all(page, pages):
    opened(page, pages("64"))
    page.locator("#plan-table tbody tr").nth(4).click()
    chosen = table_numbers(page)[4]
    assert page.evaluate(f"{STATE}.selected") == [chosen]
    assert page.url.endswith(f"#c={chosen}")
    assert page.locator("#axes text.end.selected").text_content() == str(chosen)
    assert page.locator("#front-plot text.end.selected").text_content() == str(chosen)
    assert page.locator(f'#steps-view [data-row="{chosen}"].selected').count() == 1
    assert page.locator("#plan-table tr.selected").get_attribute("data-number") == str(chosen)
    page.keyboard.press("Escape")
    assert page.evaluate(f"{STATE}.selected") == [] and "#" not in page.url
    assert page.locator(".selected:not(.mark-key *)").count() == 0


@pytest.mark.parametrize("view", ["Front", "Axes"])
def test_hover_and_click_in_a_drawing(page, pages, view):
    opened(page, pages("64"))
    best = page.evaluate(f"{STATE}.best.number")
    page.locator("#front-plot" if view == "Front" else "#axes").scroll_into_view_if_needed()
    page.mouse.move(*place_of(page, view, best))
    assert page.locator(".tip").inner_text().startswith(f"Candidate {best}, the best")
    assert "67,800 tokens/s" in page.locator(".tip").inner_text()
    assert page.evaluate(f"{STATE}.hovered") == best
    page.mouse.click(*place_of(page, view, best))
    assert page.evaluate(f"{STATE}.selected") == [best]
    page.mouse.move(5, 5)
    assert page.locator(".tip").is_hidden()


def test_the_address_brings_back_machine_section_and_selection(page, pages):
    opened(page, pages("sizes") + "#steps&on=1&c=34,50")
    assert page.evaluate(f"[{STATE}.machine.name, {STATE}.selected]") == ["128xH100", [34, 50]]
    assert page.locator('.machine[data-machine="1"]').is_visible()
    assert page.locator('.machine[data-machine="0"]').is_hidden()
    page.locator(".side nav a", has_text="Scaling").click()
    assert page.url.endswith("#scaling&on=1&c=34,50")
    page.locator(".planbar .choice button", has_text="512xH100").click()
    assert page.url.endswith("#scaling&on=2")
    assert page.locator("#best .machine:visible").inner_text().startswith("512xH100")


def test_an_address_that_names_what_is_not_there(page, pages):
    opened(page, pages("64") + "#nowhere&on=7&c=99999,x")
    assert page.evaluate(f"[{STATE}.at, {STATE}.selected]") == [0, []]


def test_numbers_of_selected_candidates_do_not_overlap(page, pages):
    opened(page, pages("64") + "#c=34,35,131,226")
    for view in ("#axes", "#front-plot"):
        boxes = page.locator(f"{view} text.end").evaluate_all(
            "all => all.map(text => { const b = text.getBoundingClientRect();"
            " return [b.left, b.top, b.right]; })"
        )
        assert len(boxes) == 5
        for at, (left, top, right) in enumerate(boxes):
            for other_left, other_top, other_right in boxes[:at]:
                is_beside = right <= other_left or other_right <= left
                assert is_beside or abs(top - other_top) >= 13


def test_a_limit_of_memory_that_is_far(page, pages):
    """Candidates that need few bytes have the plot to themselves."""
    opened(page, pages("far from the limit"))
    assert "limit 72 GB, far beyond" in page.locator("#front-plot").text_content()
    last = page.evaluate(f"{STATE}.mostMemory()")
    assert last == pytest.approx(3.3e6)


def test_what_was_simulated_although_it_does_not_fit(page, pages):
    """Its figures are no bounds."""
    opened(page, pages("too large") + "#c=2")
    assert page.locator("#plan-table tr.selected td.n").all_inner_texts()[1] == "2"
    assert page.locator("#front-plot .cross").count() == 1
    page.locator("#front-plot").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "would be 2 samples/s" in page.locator(".tip").inner_text()


# Filter.


def test_values_filter_every_view(page, pages):
    opened(page, pages("64"))
    everything = page.evaluate(f"{STATE}.visible.length")
    page.get_by_role("button", name="8 −27%").click()
    kept = page.evaluate(f"{STATE}.visible.length")
    assert 0 < kept < everything
    assert page.locator("#plan-count").inner_text() == f"{kept} of {everything}"
    assert f"{kept} of {everything}: tensor 8" in page.locator(".planbar").inner_text()
    column = page.locator('#plan-table th[data-column^="choice-"]').all_inner_texts()
    at = column.index("tensor") + 2
    values = page.locator(f"#plan-table tbody td:nth-child({at})").all_inner_texts()
    assert set(values) == {"8"}
    # The other axes show how well their values can do with this one.
    dots = f"{STATE}.visible.find(one => one.fits && {STATE}.value(one, 4) === 'dots')"
    best = page.evaluate(f"{dots}.rate / {STATE}.best.rate - 1")
    text = f"{100 * best:.0f}%".replace("-", "−")
    boxes = "all => all.map(box => box.textContent).filter(text => text.startsWith('dots'))"
    assert page.locator("#axes .value").evaluate_all(boxes) == [f"dots{text}"]
    page.get_by_role("button", name="Clear filters").click()
    assert page.evaluate(f"{STATE}.visible.length") == everything


def test_a_range_is_dragged_on_an_axis(page, pages):
    opened(page, pages("64"))
    page.locator("#axes").scroll_into_view_if_needed()
    box = page.locator("#axes .brush").last.bounding_box()
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] * 0.3, steps=4)
    page.mouse.up()
    assert page.evaluate(
        f"{STATE}.visible.length > 0 && {STATE}.visible.every(one => one.fits"
        f" && one.rate >= {STATE}.filters.get('rate').low)"
    )
    page.mouse.click(middle, box["y"] + box["height"] - 12)
    assert page.evaluate(f"{STATE}.filters.size") == 0


def test_ranges_by_keys(page, pages):
    opened(page, pages("64"))
    slider = page.get_by_role("slider", name="Least tokens/s")
    slider.focus()
    for _ in range(10):
        page.keyboard.press("ArrowUp")
    low = page.evaluate(f"{STATE}.filters.get('rate').low")
    assert page.evaluate(f"{STATE}.visible.every(one => one.fits && one.rate >= {low})")
    assert float(slider.get_attribute("aria-valuenow")) == pytest.approx(low)
    for _ in range(10):
        page.keyboard.press("ArrowDown")
    assert page.evaluate(f"{STATE}.filters.size") == 0
    page.get_by_role("slider", name="Most memory").press("ArrowDown")
    high = page.evaluate(f"{STATE}.filters.get('memory').high")
    assert page.evaluate(f"{STATE}.visible.every(one => one.memory <= {high})")


def test_only_those_that_fit(page, pages):
    opened(page, pages("64"))
    assert page.locator("#axes .line.failed").count() == 1
    page.get_by_role("button", name="Only those that fit").click()
    assert page.locator("#axes .line.failed").count() == 0
    assert page.locator("#front-plot .cross:not(.mark-key *)").count() == 0


def test_two_choices(page, pages):
    opened(page, pages("64"))
    page.locator("#matrix-down").select_option(label="remat")
    page.locator("#matrix-across").select_option(label="tensor")
    assert page.locator("#matrix tbody th").all_inner_texts() == ["full", "dots", "none"]
    best = page.evaluate(f"{STATE}.best.number")
    cell = page.locator("#matrix button", has_text="best")
    assert cell.get_attribute("data-number") == str(best)
    cell.click()
    assert page.evaluate(f"{STATE}.selected") == [best]
    # The same choice twice: the two change places.
    page.locator("#matrix-down").select_option(label="tensor")
    assert page.locator("#matrix-across").input_value() == "4"


# The table and the steps.


def test_the_table_sorts_and_searches(page, pages):
    opened(page, pages("64"))
    head = page.locator("#plan-table th button", has_text="Memory")
    head.click()
    head.click()
    memory = page.locator("#plan-table th[data-column=memory]")
    assert memory.get_attribute("aria-sort") == "ascending"
    least = page.evaluate(f"Math.min(...{STATE}.candidates.map(one => one.memory ?? Infinity))")
    first = table_numbers(page)[0]
    assert page.evaluate(f"{STATE}.byNumber.get({first}).memory") == least
    page.keyboard.press("/")
    page.keyboard.type("crash data=1")
    shown = page.locator("#plan-table tbody tr")
    assert shown.count() > 0
    assert all("crash" in text for text in shown.all_inner_texts())
    page.locator("#plan-search").fill("")
    page.locator("#plan-status").select_option("invalid")
    assert page.locator("#plan-count").inner_text() == "36 of 576"


def test_steps_are_compared_by_the_same_work(page, pages):
    opened(page, pages("64"))
    assert page.locator("#steps-view .step-row").count() == 3
    wide = (
        "bars => bars.map(bar => { const last = bar.lastElementChild;"
        " return +last.getAttribute('x') + +last.getAttribute('width'); })"
    )
    ends = page.locator("#steps-view .bar").evaluate_all(wide)
    rates = page.evaluate(f"{STATE}.candidates.slice(0, 3).map(one => one.rate)")
    # The bar of half the throughput is twice as long.
    assert [end / max(ends) for end in ends] == pytest.approx([rates[2] / r for r in rates], 1e-3)
    page.get_by_role("button", name="Time of one step").click()
    times = page.evaluate(f"{STATE}.candidates.slice(0, 3).map(one => one.us)")
    ends = page.locator("#steps-view .bar").evaluate_all(wide)
    assert [end / max(ends) for end in ends] == pytest.approx([t / max(times) for t in times], 1e-3)


def test_keys_in_the_plot_of_memory(page, pages):
    opened(page, pages("64"))
    page.locator("#front-plot").focus()
    page.keyboard.press("ArrowRight")
    best = page.evaluate(f"{STATE}.best.number")
    assert page.locator(".tip").inner_text().startswith(f"Candidate {best}, the best")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate(f"{STATE}.selected.length === 1 && {STATE}.selected[0] !== {best}")


# Every size, every colour, odd plans.


def test_on_a_phone(phone, pages):
    opened(phone, pages("sizes") + "#c=34")
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    phone.locator("#plan-table tbody tr").first.tap()
    assert phone.evaluate(f"{STATE}.selected.length") == 2


def test_axes_fit_on_paper(page, pages):
    opened(page, pages("64"))
    wide = "document.querySelector('#axes .stage').getBoundingClientRect().width"
    assert page.evaluate(wide) > 800
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(wide) < 690
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(wide) > 800


@pytest.mark.parametrize("theme", ["page", "dark"])
def test_texts_can_be_read(request, pages, theme):
    page = opened(request.getfixturevalue(theme), pages("sizes") + "#c=34")
    assert page.evaluate(CONTRAST) == []
    page.get_by_role("button", name="8 −").first.click()
    assert page.evaluate(CONTRAST) == []


def test_a_machine_on_which_nothing_was_tried(page, pages):
    opened(page, pages("unfinished") + "#c=34")
    page.locator(".planbar .choice button", has_text="128xH100").click()
    assert page.locator("#axes").inner_text() == "No combination was tried on this machine."
    assert page.locator("#front-plot svg, #steps-view .step-row, #plan-table tbody tr").count() == 0
    page.locator(".planbar .choice button", has_text="64xH100").click()
    assert page.locator("#axes .value").count() > 10


@pytest.mark.parametrize("name", list(odd_plans()))
def test_plans_without_much_to_show(page, pages, name):
    opened(page, pages(name))
    text = page.locator("main").inner_text()
    assert "undefined" not in text and "NaN" not in text and "Infinity" not in text
    ticks = page.locator("#axes .tick").all_inner_texts()
    assert not any(text.startswith("-") for text in ticks)
    assert page.evaluate(CONTRAST) == []
