"""The fabric of LPUs: the published reach comes out of topology, routes are shortest and always the same."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agentsim.backends.lpx.fabric import Fabric, build_fabric
from agentsim.errors import SpecError
from agentsim.specs import catalog
from agentsim.specs.hardware import Chip
from agentsim.specs.sourced import Ledger, data_of

LP30 = catalog.load(Chip, "lp30")
ANNOUNCED = catalog.load(Chip, "lp30-announced")
GROQ = catalog.load(Chip, "groqchip1")
MEMORY = LP30.memory.value


def with_trays(trays):
    """Return the rack in another packaging."""
    datum = LP30.rack.trays
    other = type(datum)(basis=datum.basis, value=trays, source=datum.source, why=datum.why)
    return LP30.model_copy(update={"rack": LP30.rack.model_copy(update={"trays": other})})


def fabric(chip=LP30, racks=1):
    return build_fabric(chip, racks, Ledger())


def reach_us(racks, chips):
    """Return the latency within which a chip in the middle reaches the first `chips` chips."""
    built = fabric(racks=racks)
    one = built.chips // racks
    return built.reach_ps([rack * one for rack in range(racks)], chips) / 1e6


REACH = [(row.memory, row.latency) for row in LP30.rack.reach.value]


@pytest.mark.parametrize(("memory", "latency"), REACH, ids=[f"{m / 1e9:.0f} GB" for m, _ in REACH])
def test_the_published_reach_comes_out_of_shortest_routes(memory, latency):
    chips = round(memory / MEMORY)
    racks = max(1, chips // 256)
    assert reach_us(racks, chips) == pytest.approx(latency * 1e6, rel=0.01)


def test_the_reach_holds_at_every_chip_of_a_rack():
    built = fabric()
    assert {max(built.distances_ps(chip)) for chip in range(0, 256, 17)} == {1_150_000}


def test_the_announced_packaging_reaches_the_rack_as_fast_and_a_tray_of_half_the_memory():
    """32 trays of 8: the row of 8 GB does not hold, since a tray has 4."""
    built = fabric(ANNOUNCED)
    assert [level.size for level in built.levels] == [8, 16, 2, 1]
    assert [built.reach_ps([0], chips) for chips in (8, 16, 128, 256)] == [
        350_000,
        750_000,
        750_000,
        1_150_000,
    ]


def test_the_announced_packaging_differs_in_its_trays_alone():
    def facts(chip):
        return {path: datum for path, datum in data_of(chip) if path != ("rack", "trays")}

    ours, theirs = facts(LP30), facts(ANNOUNCED)
    assert ours.keys() == theirs.keys()
    for path, datum in ours.items():
        assert (datum.value, datum.range, datum.basis) == (
            theirs[path].value,
            theirs[path].range,
            theirs[path].basis,
        ), path


def test_of_the_published_reach_all_but_the_first_row_holds_as_announced():
    holds = {}
    for memory, latency in REACH:
        chips = round(memory / MEMORY)
        racks = max(1, chips // 256)
        built = fabric(ANNOUNCED, racks)
        centres = [rack * 256 for rack in range(racks)]
        holds[memory / 1e9] = built.reach_ps(centres, chips) == round(latency * 1e12)
    assert [memory for memory, held in holds.items() if not held] == [8]


@pytest.mark.parametrize("chip", [LP30, ANNOUNCED, GROQ], ids=["16 x 16", "32 x 8", "GroqChip1"])
def test_every_link_leads_both_ways_and_over_the_same_level(chip):
    built = fabric(chip, racks=2)
    links = {(a, b, level) for a in range(built.chips) for b, level in built.links(a)}
    assert links == {(b, a, level) for a, b, level in links}
    assert all(a != b for a, b, _ in links)


def test_a_chip_has_no_more_lanes_than_links():
    built = fabric(racks=3)
    lane = LP30.rack.lane_bandwidth.value
    used = [
        sum(built.levels[level].bytes_per_s / lane for _, level in built.links(c)) for c in range(256, 512)
    ]
    assert max(used) <= LP30.rack.links.value


def test_a_gen_1_chip_has_seven_links_in_its_node_and_four_beyond():
    built = fabric(GROQ)
    for chip in range(built.chips):
        levels = [level for _, level in built.links(chip)]
        assert (levels.count(0), levels.count(1)) == (7, 4)


def test_a_gen_1_rack_is_three_hops_wide():
    built = fabric(GROQ)
    assert max(len(built.route(0, chip)) for chip in range(1, built.chips)) == 3


def test_a_route_takes_the_far_links_first_and_is_the_shortest():
    built = fabric()
    assert [level.name for level in built.route(0, 255)] == ["rack", "group", "tray"]
    distances = built.distances_ps(5)
    for chip in range(0, 256, 11):
        route = built.route(5, chip)
        assert sum(level.hop_ps for level in route) == distances[chip]
        assert route == built.route(5, chip)


@pytest.mark.parametrize("width", fabric().widths())
def test_neighbouring_stages_are_one_hop_apart(width):
    built = fabric()
    chips = list(built.stage_chips(width))
    assert len(chips) == 256 // width
    assert len(set(chips)) == len(chips)
    for here, there in pairwise(chips):
        assert len(built.crossing(here, there, width)) == 1


def test_coordinates_name_a_chip():
    built = fabric(racks=2)
    assert all(built.chip_at(built.coordinates(chip)) == chip for chip in range(built.chips))


def test_a_chip_without_a_rack_is_refused():
    with pytest.raises(SpecError, match="no rack"):
        build_fabric(LP30.model_copy(update={"rack": None}), 1, Ledger())


def test_a_rack_whose_trays_do_not_divide_it_is_refused():
    with pytest.raises(SpecError, match="256 chips cannot be divided among 7 trays"):
        fabric(with_trays(7))


def test_without_a_way_there_is_no_route():
    level = fabric().levels[0]
    alone = Fabric((level, *(type(level)("none", 1, 0, 1.0),) * 3))
    with pytest.raises(SpecError, match="no route"):
        alone.route(0, 99)
