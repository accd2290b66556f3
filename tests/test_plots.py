"""Pictures in plain text: darker and higher is more, nothing is wider than the terminal, gaps are gaps."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agentsim.terminal.plots import (
    NOTHING,
    SHADES,
    Side,
    bars,
    by_factors,
    heat_map,
    key_of,
    line_plot,
    thinned,
)

ROWS = 12


def drawn(picture, width=80, colour=None):
    """Return the lines of a picture on a terminal."""
    console = Console(width=width, color_system=colour, force_terminal=colour is not None, highlight=False)
    with console.capture() as captured:
        console.print(picture)
    return captured.get().rstrip("\n").split("\n")


def side(title, count, numbers=True):
    return Side(title, [str(n) for n in range(count)], [float(n) for n in range(count)] if numbers else None)


def whole(value):
    return f"{value:.0f}"


def darkness(line):
    """Return the shades of a line of a heat map, lightest 0."""
    return [SHADES.index(c) for c in line if c in SHADES.strip()]


def heights(lines):
    """Return for each column of a line plot the row of its highest dot, from the bottom; None where empty."""
    canvas = [line[line.index(mark) + 1 :] for line in lines for mark in "┤│" if mark in line]
    columns = max(map(len, canvas))
    found = []
    for column in range(columns):
        rows = [ROWS - i for i, line in enumerate(canvas) if column < len(line) and line[column] != " "]
        found.append(max(rows, default=None))
    return found


def test_a_cell_is_the_darker_the_more_it_is():
    lines = drawn(heat_map([[0.0, 10.0, 20.0, 30.0, 40.0]], side("a", 1), side("b", 5), whole, 80))
    assert darkness(lines[1]) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [word for word in lines[1].split() if word.isdecimal()] == ["0", "0", "10", "20", "30", "40"]


def test_a_wide_span_is_shaded_by_factors():
    cells = [[1.0, 10.0, 100.0, 1000.0, 10_000.0]]
    assert darkness(drawn(heat_map(cells, side("a", 1), side("b", 5), whole, 80))[1]) == [
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]
    assert key_of(cells, whole) == "lightest 1, darkest 10000, shades by factors"


@pytest.mark.parametrize("count", [3, 20, 60])
def test_a_cell_without_result_is_told_apart(count):
    cells = [[None, *map(float, range(1, count))]]
    lines = drawn(heat_map(cells, side("a", 1), side("b", count), whole, 80))
    assert NOTHING in "".join(lines)
    assert f"{NOTHING} no result" in key_of(cells, whole)


def test_a_map_without_any_result_is_no_error():
    assert drawn(heat_map([[None, None]], side("a", 1), side("b", 2), whole, 80))
    assert key_of([[None]], whole) == ""


@given(st.integers(1, 90), st.integers(1, 300), st.sampled_from([80, 120, 200]))
def test_no_map_is_wider_than_the_terminal(down, across, width):
    cells = [[float(row * column) for column in range(across)] for row in range(down)]
    lines = drawn(heat_map(cells, side("a", down), side("b", across), whole, width), width * 2)
    assert max(len(line.rstrip()) for line in lines) <= width
    assert len(lines) <= 42
    assert f"40 of {down} rows" in lines[-1] if down > 40 else "rows" not in lines[-1] or across > 60


def test_colours_add_to_the_shades_and_do_not_replace_them():
    plain = heat_map([[0.0, 40.0]], side("a", 1), side("b", 2), whole, 80)
    coloured = "".join(drawn(plain, colour="truecolor"))
    assert "\x1b[" in coloured
    assert SHADES[-1] in coloured
    assert SHADES[-1] in "".join(drawn(plain))


@given(st.integers(1, 500), st.integers(2, 100))
def test_what_is_left_out_is_left_out_evenly_and_the_ends_stay(count, room):
    shown = thinned(count, room)
    assert (shown[0], shown[-1], len(shown)) == (0, count - 1, min(count, room))
    gaps = {after - before for before, after in pairwise(shown)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_a_line_is_the_higher_the_more_it_is():
    found = heights(drawn(line_plot([float(n) for n in range(10)], side("a", 10), whole, 80)))
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, ROWS)


def test_a_line_that_does_not_move_is_level():
    assert set(heights(drawn(line_plot([5.0] * 6, side("a", 6), whole, 80)))) == {ROWS}


def test_a_line_breaks_where_there_is_no_result():
    values = [1.0, 1.0, 1.0, None, 1.0, 1.0, 1.0]
    found = heights(drawn(line_plot(values, side("a", 7), whole, 80)))
    assert None in found[len(found) // 3 : 2 * len(found) // 3]
    assert None not in found[: len(found) // 4]


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40), st.sampled_from([80, 120, 300]))
def test_no_line_is_wider_than_the_terminal(values, width):
    lines = drawn(line_plot(values, side("a", len(values)), whole, width), width * 2)
    assert max(len(line.rstrip()) for line in lines) <= width
    assert len(lines) == ROWS + 2


@pytest.mark.parametrize(
    ("numbers", "log"), [([1, 2, 4, 8], True), ([1, 2, 3, 4], False), ([0, 1, 10], False), ([1, 9], False)]
)
def test_numbers_that_grow_by_factors_are_drawn_so(numbers, log):
    assert by_factors(numbers) is log


def test_bars_are_as_long_as_their_values():
    lines = drawn(bars([10.0, 20.0, None], side("a", 3, numbers=False), whole, 80))
    lengths = [line.count("█") for line in lines]
    assert lengths[1] == 2 * lengths[0]
    assert (lengths[2], NOTHING in lines[2]) == (0, True)
