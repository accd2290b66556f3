"""Static schedules: their laws on shapes of all kinds, timelines asserted whole, nothing left to chance."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsim.backends.base import Drafter, EngineParts
from agentsim.backends.lpx import programs
from agentsim.backends.lpx.chip import build_lpu
from agentsim.backends.lpx.fabric import Fabric, Level, Span, build_fabric
from agentsim.backends.lpx.laws import check_schedule
from agentsim.backends.lpx.programs import (
    Stage,
    entry_schedule,
    exit_schedule,
    feed_forward_schedule,
    layer_schedule,
)
from agentsim.backends.lpx.report import schedule_report, schedule_trace
from agentsim.backends.lpx.schedule import START, Options, Ready, Slice, Timeline, Work
from agentsim.backends.lpx.shapes import layers_of
from agentsim.errors import InvariantViolation
from agentsim.specs import catalog
from agentsim.specs.deployment import Deployment
from agentsim.specs.hardware import Chip
from agentsim.specs.model import AttentionGroup, Experts, Model, Shape
from agentsim.specs.sourced import Ledger

LP30 = catalog.load(Chip, "lp30")
LPU = build_lpu(LP30, "fp8", Ledger())
FABRIC = build_fabric(LP30, 1, Ledger())
TRAY, GROUP = FABRIC.levels[:2]
OPTIONS = [Options(), Options(False), Options(True, 2_700_000), Options(False, 2_700_000)]
VECTOR = 320.0


def parts_of(name, **engine):
    deployment = catalog.load(Deployment, name)
    main = deployment.engines["main"].model_copy(update=engine)
    choice = deployment.speculation
    drafter = (
        Drafter(catalog.load(Model, choice.drafter), choice.draft_tokens, choice.text) if choice else None
    )
    chip = catalog.load(Chip, main.hardware)
    return EngineParts(catalog.load(Model, deployment.model), chip, main, drafter, Ledger(), "")


def timeline(chips=4, options=OPTIONS[0]):
    return Timeline(VECTOR, 1, chips, options)


# one operation after another


def test_a_product_sends_each_result_the_moment_it_is_computed():
    """Two results of 50 ps, each on its way for 6.4 ns and 350 ns, the second behind the first."""
    time = timeline()
    results = time.contract([Ready(0)], Slice(2, 1), Work(100, 40, 10), "product")
    assert [r.time for r in results] == [60, 110]
    gathered = time.gather([Span(TRAY, 4)], results, "gather")
    assert [(r.time, r.blocks) for r in gathered] == [(60, 1), (110, 1), (356_460, 3), (362_860, 3)]
    schedule = time.finish(gathered)
    check_schedule(schedule)
    assert schedule.parts_ps == {
        "compute": 60, "sram": 0, "first_bit": 350_000, "serialisation": 12_800, "idle": 0, "overhead": 0,
    }  # fmt: skip


def test_without_overlap_a_tensor_is_sent_when_it_is_whole():
    time = timeline(options=Options(overlap=False))
    results = time.contract([Ready(0)], Slice(2, 1), Work(100, 40, 10), "product")
    assert [r.time for r in results] == [110, 110]
    gathered = time.gather([Span(TRAY, 4)], results, "gather")
    assert max(r.time for r in gathered) == 110 + 2 * 6400 + 350_000


def test_a_start_up_delays_a_transfer_once():
    time = timeline(options=Options(True, 1000))
    gathered = time.gather([Span(TRAY, 4)], [Ready(0), Ready(0)], "gather")
    assert [r.time for r in gathered] == [1000, 1000, 357_400, 363_800]
    assert time.finish(gathered).parts_ps["overhead"] == 1000


def test_a_product_works_on_what_has_arrived():
    """Half of the operands come late: the other half is multiplied before."""
    time = timeline()
    late = time.contract([Ready(0), Ready(1000)], Slice(1, 1), Work(100, 0, 0), "product")
    assert [(e.start, e.end) for e in time.events] == [(0, 50), (1000, 1050)]
    assert late[0].time == 1050


def test_a_product_that_reads_more_than_it_multiplies_waits_for_sram():
    schedule = timeline()
    done = schedule.contract([Ready(0)], Slice(1, 1), Work(10, 400, 0), "product")
    assert schedule.finish(done).parts_ps["sram"] == 400


def test_a_slice_crosses_the_far_links_once_and_is_copied_near():
    time = timeline(chips=8)
    gathered = time.gather([Span(GROUP, 2), Span(TRAY, 4)], [Ready(0)], "gather")
    assert sum(r.blocks for r in gathered) == 8
    sent = {e.unit: (e.vectors, e.ports) for e in time.events}
    assert sent == {"group links": (1, 1), "tray links": (1, 3)}
    assert [e.unit for e in time.events].count("tray links") == 2  # its own slice and its twin's
    check_schedule(time.finish(gathered))


def test_an_exchange_of_all_with_all_gives_each_its_part():
    time = timeline(chips=8)
    parts = time.exchange([Span(GROUP, 2), Span(TRAY, 4)], [Ready(0)], Slice(3, 1), "exchange")
    assert sum(r.blocks for r in parts) == 8 * 3
    check_schedule(time.finish(parts))


def test_what_one_chip_holds_reaches_all_over_every_level():
    time = timeline(chips=8)
    row = time.spread([Span(GROUP, 2), Span(TRAY, 4)], [Ready(0, blocks=2)], "spread")
    assert max(r.time for r in row) == 400_000 + 2 * 12_800 + 350_000 + 2 * 6400
    schedule = time.finish(row)
    assert schedule.received_vectors == 2 * 7
    check_schedule(schedule)


# the laws


GATHERS = st.lists(st.tuples(st.sampled_from([2, 3, 4, 8, 16]), st.sampled_from([TRAY, GROUP])), max_size=3)


@given(
    sizes=GATHERS,
    own=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 9)), min_size=1, max_size=12),
    options=st.sampled_from(OPTIONS),
)
def test_every_slice_reaches_every_chip_once(sizes, own, options):
    levels = [replace(level, name=f"level {i}") for i, (_, level) in enumerate(sizes)]
    spans = [Span(level, size) for level, (size, _) in zip(levels, sizes, strict=True)]
    chips = 1
    for span in spans:
        chips *= span.size
    time = Timeline(VECTOR, 1, chips, options)
    gathered = time.gather(spans, [Ready(at, vectors=v) for at, v in own], "gather")
    schedule = time.finish(gathered)
    check_schedule(schedule)
    assert sum(r.blocks * r.vectors for r in gathered) == chips * sum(v for _, v in own)


HEADS = st.sampled_from([(8, 8), (8, 2), (32, 4), (64, 1)])


@st.composite
def shapes(draw):
    heads, kv_heads = draw(HEADS)
    hidden, width = draw(st.sampled_from([64, 960, 5376])), draw(st.sampled_from([64, 128]))
    kind = draw(st.sampled_from(["full", "window", "mla"]))
    extra = {"window_tokens": 128} if kind == "window" else {}
    if kind == "mla":
        extra = {"kv_rank": 512, "rope_dim": 64, "query_rank": 256, "value_dim": 128}
    group = AttentionGroup(kind=kind, layers=2, heads=heads, kv_heads=kv_heads, head_dim=width, **extra)
    experts = Experts(count=16, active=2, shared=draw(st.integers(0, 1)), ffn=512, layers=1)
    return Shape(
        layers=2, hidden=hidden, ffn=draw(st.sampled_from([320, 4096])), dense_layers=1, vocab=1000,
        attention=(group,), experts=experts,
    )  # fmt: skip


@given(
    shape=shapes(),
    width=st.sampled_from(FABRIC.widths()),
    rows=st.sampled_from([1, 3, 8, 100]),
    context=st.sampled_from([0.0, 1.0, 5000.0, 131072.0]),
    copied=st.booleans(),
    lend=st.booleans(),
    options=st.sampled_from(OPTIONS),
)
@settings(max_examples=150)
def test_the_laws_hold_for_layers_of_every_kind(shape, width, rows, context, copied, lend, options):
    beside = FABRIC.lenders(width)
    stage = Stage(LPU, FABRIC.spans(width), width, 1.0, 1.0, beside[-1] if lend and beside else None, options)
    for layer in layers_of(shape, copied, width):
        for onward in ((), (GROUP,)):
            check_schedule(layer_schedule(stage, layer, rows, context, min(context, 128.0), onward))
    check_schedule(exit_schedule(stage, shape.hidden, shape.vocab, rows))
    for tied in (True, False):
        check_schedule(entry_schedule(stage, shape.hidden, rows, (GROUP, TRAY), (GROUP,), tied))


def layer_time(width=16, rows=1, context=10_000.0, options=OPTIONS[0], kind=0):
    shape = catalog.load(Model, "gemma-4-31b").shape.value
    stage = Stage(LPU, FABRIC.spans(width), width, 1.0, 1.0, None, options)
    layer = layers_of(shape, True, width)[kind]
    return layer_schedule(stage, layer, rows, context, min(context, 1024.0)).makespan_ps


def test_more_tokens_and_more_context_never_take_less():
    times = [layer_time(rows=rows) for rows in (1, 2, 4, 8, 64, 512)]
    assert times == sorted(times)
    times = [layer_time(context=context, kind=5) for context in (0.0, 1e3, 1e4, 1e5, 2e5)]
    assert times == sorted(set(times))


@pytest.mark.parametrize("width", [4, 16, 64, 256])
def test_overlap_and_no_start_up_are_never_slower(width):
    plain, whole, start, both = (layer_time(width=width, options=options) for options in OPTIONS)
    assert plain <= whole <= both
    assert plain < start <= both


def test_a_layer_takes_at_least_its_hops_and_its_bytes():
    """Four exchanges of one hop each, and the weights of a sliding layer over 16 chips."""
    weights = 5376 * (2 * 8192 + 2 * 4096) + 3 * 5376 * 21504
    assert layer_time() > 4 * 350_000 + weights / 16 / 150e12 * 1e12


def broken(index=1, **changes):
    """Return a lawful schedule with one event changed."""
    time = timeline()
    results = time.contract([Ready(0)], Slice(2, 1), Work(100, 40, 10), "product")
    good = time.finish(time.gather([Span(TRAY, 4)], results, "gather"))
    events = list(good.events)
    events[index] = events[index]._replace(**changes)
    return good._replace(events=tuple(events))


BREACHES = {
    "matrix is used twice": broken(start=10, sram_ps=0),
    "sram is used twice": broken(0, sram_ps=60),
    "without operands": broken(needs=Ready(99_999)),
    "product before it is made": broken(0, lag_ps=10_000),
    "gather before it is made": broken(operands=(Ready(0, 3),)),
    "never used": broken()._replace(results=()),
    "received": broken(2, ports=1, senders=1, vectors=1),
    "after the schedule": broken(-1, end=10**9),
    "after it is complete": broken(-1, lag_ps=10**9),
    "do not sum": broken()._replace(parts_ps={"compute": 1}),
    "a part is negative": broken()._replace(parts_ps={"compute": broken().makespan_ps + 1, "idle": -1}),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_of_a_law_is_told(breach):
    with pytest.raises(InvariantViolation, match=breach):
        check_schedule(BREACHES[breach])


def test_the_schedule_that_is_broken_was_lawful():
    check_schedule(broken())


def lawful_layer():
    shape = catalog.load(Model, "gemma-4-31b").shape.value
    stage = Stage(LPU, FABRIC.spans(16), 16, 1.0, 1.0, FABRIC.lenders(16)[-1])
    for rows in (1, 8):
        for layer in set(layers_of(shape, False, 16)):
            check_schedule(layer_schedule(stage, layer, rows, 10_000.0, 1024.0))


def forgets_inner(stage, time, hidden, shape, state):
    INNER(stage, time, hidden, shape, state)
    return state


def takes_part_of_inner(stage, time, hidden, shape, state):
    return INNER(stage, time, hidden, shape, state)[:-1]


def takes_inner_early(stage, time, hidden, shape, state):
    """As if no link had any latency."""
    gathered = INNER(stage, time, hidden, shape, state)
    return [r if r.part == "compute" else r._replace(time=r.time - TRAY.hop_ps) for r in gathered]


INNER = programs._feed_forward


@pytest.mark.parametrize(
    ("wrong", "breach"),
    [
        (forgets_inner, "inner is made at .* never used"),
        (takes_part_of_inner, "inner is made at .* never used"),
        (takes_inner_early, "down uses inner before it is made"),
    ],
)
def test_a_product_that_ignores_an_exchange_is_caught(monkeypatch, wrong, breach):
    lawful_layer()
    monkeypatch.setattr(programs, "_feed_forward", wrong)
    with pytest.raises(InvariantViolation, match=breach):
        lawful_layer()


@pytest.mark.parametrize("width", [4, 16])
def test_each_chip_receives_the_bytes_of_each_tensor_that_it_lacks(width):
    """One row of a sliding layer of Gemma 4 31B; every chip's slice is padded to whole vectors."""
    shape = catalog.load(Model, "gemma-4-31b").shape.value
    layer = layers_of(shape, True, width)[0]
    schedule = layer_schedule(Stage(LPU, FABRIC.spans(width), width, 1.0, 1.0), layer, 1, 1e4, 1024.0)
    received = {}
    for event in schedule.events:
        if event.vectors:
            received[event.label] = received.get(event.label, 0) + event.ports * event.vectors * VECTOR
    sizes = {"attention": 32 * 256, "output": 2 * 5376, "inner": 21_504, "down": 2 * 5376}
    assert received == {
        label: (width - 1) * math.ceil(size / width / VECTOR) * VECTOR for label, size in sizes.items()
    }


# the conflict law on all chips, not on the one that stands for them


def test_on_all_chips_of_a_stage_no_link_carries_two_things_at_once():
    """Every port of every chip is laid out, and every slice followed along the routes of the fabric."""
    near, far = Level("tray", 4, 350_000, 50e9), Level("group", 2, 400_000, 25e9)
    none = Level("none", 1, 0, 1.0)
    fabric = Fabric((near, far, none, none))
    time = timeline(chips=8)
    time.gather(fabric.spans(8), [Ready(0), Ready(100)], "gather")
    links, received = {}, {chip: [] for chip in range(8)}
    for event, chip in product(time.events, range(8)):
        level = [near, far].index(next(x for x in (near, far) if event.unit == f"{x.name} links"))
        peers = [peer for peer, index in fabric.links(chip) if index == level]
        assert len(peers) == event.ports
        twin = next(peer for peer, index in fabric.links(chip) if index == 1)
        slice_of = chip if event.needs.event == START else twin
        for peer in peers:
            links.setdefault((chip, peer), []).append((event.start, event.end))
            received[peer].append(slice_of)
    for times in links.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(times)))
    assert len(links) == 8 * 4
    for chip, slices in received.items():
        assert sorted(slices) == sorted(2 * [other for other in range(8) if other != chip])


# reports


@pytest.mark.parametrize("name", ["lpx", "lpx-no-speculation"])
def test_a_report_sums_and_holds_the_laws(name):
    report = schedule_report(parts_of(name), 10_000)
    assert sum(report.breakdown_s.values()) == pytest.approx(report.step_s, rel=1e-12)
    assert report.computing_lpus == report.tensor_parallel * report.pipeline_stages
    assert report.computing_lpus + report.lending_lpus == report.lpus
    assert report.lpus + report.unused_lpus == 256
    keys = {"computing_lpus", "lending_lpus", "unused_lpus"}
    assert keys <= report.to_json().keys()
    keys = {"tensor_parallel", "pipeline_stages", "lpus", "step_s", "breakdown_s", "floor_s"}
    assert keys <= report.to_json().keys()
    parts = {"compute", "sram", "first_bit", "serialisation", "idle", "overhead"}
    assert report.to_json()["breakdown_s"].keys() == parts


def test_without_drafts_nothing_is_calibrated():
    report = schedule_report(parts_of("lpx"), 10_000, drafted=0)
    assert report.step_s == report.floor_s
    assert report.breakdown_s["overhead"] == 0


def test_the_same_deployment_gives_the_same_bytes():
    once, again = ("".join(schedule_trace(parts_of("lpx"), 10_000, 2)) for _ in range(2))
    assert once == again


def test_a_trace_is_the_schedule_on_a_clock():
    parts = parts_of("lpx-no-speculation")
    trace = json.loads("".join(schedule_trace(parts, 10_000)))["traceEvents"]
    slices = [e for e in trace if e["ph"] == "X"]
    report = schedule_report(parts, 10_000)
    assert {e["pid"] for e in slices} == set(range(1, report.pipeline_stages + 1))
    end = max(e["ts"] + e["dur"] for e in slices)
    assert 0.9 * report.step_s * 1e6 < end <= report.step_s * 1e6 + 1e-6
    tracks = {}
    for event in slices:
        tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(b[0] >= a[1] - 1e-6 for a, b in pairwise(spans))


# feed-forward layers alone


@pytest.mark.parametrize("rows", [1, 8, 64])
@pytest.mark.parametrize(("model", "exchanges"), [("gemma-4-31b", 2), ("gpt-oss-120b", 3)])
def test_a_feed_forward_layer_alone_obeys_the_laws_and_has_its_exchanges(model, exchanges, rows):
    """Inner and output, and the router's."""
    chip, ledger = catalog.load(Chip, "lp30"), Ledger()
    fabric, lpu = build_fabric(chip, 1, ledger), build_lpu(chip, "fp8", ledger)
    stage = Stage(lpu, fabric.spans(64), 64, 1.0, 1.0)
    layer = layers_of(catalog.load(Model, model).shape.value, False, 64)[0]
    alone = feed_forward_schedule(stage, layer.hidden, layer.feed_forward, rows)
    check_schedule(alone)
    assert len({event.label for event in alone.events if event.vectors}) == exchanges
    assert alone.makespan_ps < layer_schedule(stage, layer, rows, 0.0, 0.0).makespan_ps
