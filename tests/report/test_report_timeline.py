"""The drawings: well-formed, small, true to their numbers, and unshaken by values that are not finite."""

import base64
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcherml.forensics.capsule import MemoryFacts
from watcherml.report import palette
from watcherml.report.memory import picture
from watcherml.report.timeline import HEIGHT, WIDTH, Series, data_uri, line_chart, memory_bar

NAN, INF = float("nan"), float("inf")
GIB = 2**30
SVG = "{http://www.w3.org/2000/svg}"


def rectangles(svg, key):
    colour = palette.memory_colour(key)
    return [
        (float(one.get("x")), float(one.get("width")))
        for one in ElementTree.fromstring(svg).iter(f"{SVG}rect")
        if one.get("fill") == colour
    ]


def limit_at(svg):
    return float(re.search(r'd="M([0-9.]+) 0V', svg).group(1))


def drawn(make, shortfall=None, **facts):
    return picture(make.capsule(facts=MemoryFacts(**facts), found=make.diagnosis(shortfall=shortfall)))


def test_bar_is_to_scale_and_red_begins_at_the_limit(make):
    svg = memory_bar(picture(make.capsule()))
    used, requested, missing = (90.6, 16.0, 10.6)
    scale = WIDTH / (used + requested)
    assert rectangles(svg, "allocated") == [pytest.approx((0, used * scale), abs=0.2)]
    assert rectangles(svg, "requested") == [pytest.approx((used * scale, (requested - missing) * scale), abs=0.2)]
    assert rectangles(svg, "shortfall") == [pytest.approx((limit_at(svg), missing * scale), abs=0.2)]
    assert limit_at(svg) == pytest.approx(96 * scale, abs=0.2)


def test_bar_shows_reserved_and_other_use(make):
    found = picture(make.capsule(facts=make.cuda_memory(), found=make.diagnosis(shortfall=4 * GIB)))
    assert [(part.key, part.bytes // GIB) for part in found.parts] == [
        ("allocated", 17), ("reserved_unallocated", 3), ("other", 3), ("free", 1),
    ]  # fmt: skip
    svg = memory_bar(found)
    assert rectangles(svg, "other")[0][1] == pytest.approx(3 / 28 * WIDTH, abs=0.2)
    assert "4.00 GiB were missing" in ElementTree.fromstring(svg).find(f"{SVG}title").text


def test_rounded_figures_make_no_other_use(make):
    found = drawn(make, capacity_bytes=8 * GIB, free_bytes=GIB, allocated_bytes=7 * GIB - 9_000_000)
    assert [part.key for part in found.parts] == ["allocated", "free"]


def test_reserved_total_gives_the_unallocated_part(make):
    found = drawn(make, capacity_bytes=8 * GIB, allocated_bytes=4 * GIB, reserved_bytes=6 * GIB)
    assert [(part.key, part.bytes // GIB) for part in found.parts] == [("allocated", 4), ("reserved_unallocated", 2)]
    assert "in use" not in [part.key for part in found.parts]


def test_a_cap_below_the_card_is_the_limit(make):
    found = drawn(
        make, shortfall=GIB // 2, capacity_bytes=79 * GIB, allowed_bytes=16 * GIB, allocated_bytes=15 * GIB,
        reserved_unallocated_bytes=GIB // 2, free_bytes=60 * GIB, requested_bytes=GIB,
    )  # fmt: skip
    assert (found.limit_bytes, found.capped) == (16 * GIB, True)
    assert found.parts[-1].bytes == GIB // 2
    assert "of the allowed 16.00 GiB" in found.sentence


@pytest.mark.parametrize(
    "facts",
    [
        {"capacity_bytes": 8 * GIB, "requested_bytes": 10**15, "free_bytes": 0, "allocated_bytes": 8 * GIB},
        {"capacity_bytes": 8 * GIB, "requested_bytes": 11 * GIB, "free_bytes": 0, "allocated_bytes": 17 * GIB},
        {"capacity_bytes": 8 * GIB, "requested_bytes": 1, "free_bytes": 0},
        {"capacity_bytes": 8 * GIB},
        {"capacity_bytes": 1, "requested_bytes": 2**53 - 1, "free_bytes": 1},
        {"capacity_bytes": 8 * GIB, "free_bytes": 9 * GIB, "allocated_bytes": 8 * GIB, "requested_bytes": GIB},
    ],
)
def test_figures_that_do_not_add_up_still_draw(make, facts):
    found = drawn(make, shortfall=3, **facts)
    svg = memory_bar(found)
    for one in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        assert float(one.get("x")) >= 0
        assert float(one.get("x")) + float(one.get("width")) <= WIDTH + 0.2
    assert found.sentence.endswith(".")


@pytest.mark.parametrize("facts", [{}, {"capacity_bytes": 0}, {"requested_bytes": 5, "free_bytes": 1}])
def test_without_a_limit_there_is_no_bar(make, facts):
    assert drawn(make, **facts) is None


def paths(chart):
    return [one.get("d") for one in ElementTree.fromstring(chart.svg).iter(f"{SVG}path")]


def test_line_goes_from_corner_to_corner():
    chart = line_chart([Series([(0, 1.0), (10, 3.0)])])
    assert (chart.x_low, chart.x_high, chart.y_low, chart.y_high, chart.unusual) == (0, 10, 1.0, 3.0, 0)
    assert paths(chart)[1] == f"M4.0 {HEIGHT - 6:.1f}L{WIDTH - 4:.1f} 6.0"


def test_values_that_are_not_finite_break_the_line_and_are_marked():
    chart = line_chart([Series([(0, 1.0), (1, 2.0), (2, NAN), (3, 2.0), (4, INF), (5, -INF), (6, None), (7, 1.0)])])
    assert chart.unusual == 3
    drawn = paths(chart)
    assert sum("L" in path for path in drawn) == 1  # the first two points; the others stand alone
    assert sum(path.endswith("h0") for path in drawn) == 2
    assert sorted(re.search(r" (\d+)v12", path).group(1) for path in drawn if "v12" in path) == ["0", "188", "188"]
    assert "nan" not in chart.svg.lower().replace("nan_", "")
    assert "inf" not in chart.svg


@pytest.mark.parametrize(
    "points", [[(0, NAN)], [(0, None)], [(0, 5.0)], [(1, 1e308), (2, -1e308)], [(1, 2.0), (1, 2.0)], [(-1e300, 0.0)]]
)
def test_extreme_series_draw_inside_the_frame(points):
    chart = line_chart([Series(points)])
    for path in paths(chart):
        numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", path)]
        assert all(-1 <= number <= WIDTH + 1 for number in numbers)


@pytest.mark.parametrize("points", [[], [(NAN, 1.0)], [(INF, 1.0)]])
def test_no_place_no_chart(points):
    assert line_chart([Series(points)]) is None


def test_a_long_series_is_small_and_keeps_its_spike():
    points = [(step, 1.0 + (step % 7) / 100) for step in range(200_000)]
    points[123_457] = (123_457, 50.0)
    chart = line_chart([Series(points)])
    assert len(chart.svg) < 60_000
    assert chart.y_high == 50.0
    assert " 6.0L" in paths(chart)[1]  # the top of the frame is reached


def test_a_budget_widens_the_axis_and_is_dashed():
    chart = line_chart([Series([(0, 1.0), (1, 2.0)])], level=8.0, title='<script> & "x"')
    assert chart.y_high == 8.0
    assert "stroke-dasharray" in chart.svg
    assert ElementTree.fromstring(chart.svg).find(f"{SVG}title").text == '<script> & "x"'


@given(st.lists(st.tuples(st.floats(), st.none() | st.floats()), max_size=40), st.none() | st.floats())
def test_any_points_give_well_formed_svg(points, level):
    chart = line_chart([Series(points), Series(points, "warn")], level=level)
    if chart is not None:
        ElementTree.fromstring(chart.svg)
        assert not re.search(r"\b(nan|inf)\b", chart.svg)


def test_data_uri_holds_the_svg():
    uri = data_uri("<svg>é</svg>")
    assert uri.startswith("data:image/svg+xml;base64,")
    assert base64.b64decode(uri.partition(",")[2]).decode() == "<svg>é</svg>"
