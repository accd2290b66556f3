"""Calls that an engine holds while sequences decode, by hand: when each of them is let in."""

import pytest
from test_server import Simple, ns

from agentsim.backends.base import Hold, ServingRules
from agentsim.compile import compile_plan
from agentsim.errors import SpecError
from agentsim.sim.clock import Clock
from agentsim.sim.request import Prefix, Work
from agentsim.sim.server import EngineServer
from agentsim.workflow.schema import Workflow

STEP_S = 0.010
COST = Simple(STEP_S, 0.0, 0.0, 0.0, 0.0)
"""Every iteration takes 10 ms, whatever it works on."""


def first_tokens(hold, arrivals, outputs=(1000,), prompts=(10,), **cost):
    """Return when the first token of each call is out, in steps from the beginning."""
    rules = ServingRules(hold=hold, whole_prompts=cost.pop("whole", False))
    engine = Simple(STEP_S, 0.0, 0.0, 0.0, 0.0, rules=rules, **cost)
    env = Clock()
    server, made = EngineServer(env, engine), []

    def caller(at_steps, prompt, output):
        yield env.timeout(ns(at_steps * STEP_S))
        made.append(server.submit(Work(prompt, Prefix(0, 0), output)))
        yield made[-1].done

    for place, at in enumerate(arrivals):
        prompt, output = prompts[place % len(prompts)], outputs[place % len(outputs)]
        env.process(caller(at, prompt, output))
    env.run()
    return [request.first_token_ns / ns(STEP_S) for request in made]


def test_without_a_hold_a_call_joins_the_next_iteration():
    assert first_tokens(None, [0, 3.5]) == pytest.approx([1, 5])


def test_an_engine_that_looks_every_so_often_lets_a_call_in_at_the_next_look():
    # looks before iterations 1 (after the prefill), 11, 21: a call at 3.5 joins at the end of iteration 11
    assert first_tokens(Hold(10), [0, 3.5]) == pytest.approx([1, 12])
    assert first_tokens(Hold(10), [0, 11.5]) == pytest.approx([1, 22])


def test_an_engine_that_prefilled_or_has_nothing_to_decode_looks_at_once():
    assert first_tokens(Hold(10), [0, 0.5]) == pytest.approx([1, 2])
    assert first_tokens(Hold(10), [0, 50.5], outputs=(2,))[1] == pytest.approx(51.5)


def test_prompts_wait_until_every_copy_has_one_or_for_so_many_iterations():
    two = Hold(30, copies=2)
    alone = first_tokens(two, [0, 0, 5.5])
    assert alone[2] == pytest.approx(1 + 30 + 1), "both copies decode from 1 on; nobody comes to the other"
    paired = first_tokens(two, [0, 0, 5.5, 9.5])
    assert paired[2:] == pytest.approx([11, 11])


def test_a_prompt_waits_for_the_copy_whose_sequence_ended():
    # the first copy's call ends at 5, the next calls are both its own: nobody waits for the second copy
    alone = first_tokens(Hold(30, copies=2), [0, 0, 5.5, 9.5], outputs=(5, 1000, 2, 1000))
    assert alone[2] == pytest.approx(7), "one sequence decodes"


def test_a_copy_that_decodes_nothing_is_not_waited_for():
    assert first_tokens(Hold(30, copies=2), [0, 5.5]) == pytest.approx([1, 7])


def test_prompts_wait_for_a_batch_from_the_first_on():
    batch = Hold(20, share=0.9)
    assert first_tokens(batch, [0, 5.5], batched_tokens=100)[1] == pytest.approx(6 + 20 + 1)
    late = first_tokens(batch, [0, 5.5, 15.5], batched_tokens=100)
    assert late[1:] == pytest.approx([27, 27]), "who comes later goes with the first"
    filled = first_tokens(batch, [0, 5.5, 15.5], prompts=(10, 50, 45), batched_tokens=100)
    assert filled[1:] == pytest.approx([17, 17]), "96 of 100 tokens wait"


def test_a_prompt_is_not_split_unless_it_is_longer_than_the_budget():
    # 60 and 60 of 100: whole, one each iteration; split, the second is done with the rest of the budget
    whole = first_tokens(None, [0, 0], outputs=(1,), prompts=(60,), batched_tokens=100, whole=True)
    assert whole == pytest.approx([1, 2])
    thirds = first_tokens(None, [0, 0, 0], outputs=(1,), prompts=(60,), batched_tokens=100)
    assert thirds == pytest.approx([1, 2, 2])
    longer = first_tokens(None, [0], outputs=(1,), prompts=(250,), batched_tokens=100, whole=True)
    assert longer == pytest.approx([3])


@pytest.mark.parametrize(
    ("deployment", "fields", "said"),
    [
        ("lpx", ["receive_interval=10"], "receive_interval is of GPUs; an lpx engine has none"),
        ("lpx", ["attention_dp=2"], "attention_dp is of GPUs"),
        ("gemma-4xb200", ["balance_wait=9"], "attention_dp is 1"),
        ("gemma-4xb200", ["batch_wait=9", "receive_interval=4"], "an engine holds calls in one way"),
    ],
)
def test_a_hold_that_means_nothing_is_refused(deployment, fields, said):
    task = Workflow.model_validate({"name": "made", "steps": [{"user": {"tokens": 10}}]})
    with pytest.raises(SpecError, match=said):
        compile_plan(task, deployment, [f"engines.main.{field}" for field in fields])


def test_a_deployment_says_how_long_calls_are_held():
    task = Workflow.model_validate({"name": "made", "steps": [{"user": {"tokens": 10}}]})
    plan = compile_plan(task, "deepseek-8xb200-dp", ["engines.main.balance_wait=60"])
    assert plan.engines["main"].rules.hold == Hold(60, copies=8)
    plan = compile_plan(task, "gemma-4xb200", ["engines.main.receive_interval=30"])
    assert plan.engines["main"].rules.hold == Hold(30)
