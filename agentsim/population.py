"""Many recorded sessions on several deployments: what a claim comes to over real work.

Every session runs once on each deployment, at one seed. A session that does not fit a deployment is
counted with its reason and stands in none of the distributions, so that all are over the same sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from agentsim.claims import Claim
from agentsim.compile import compile_plan
from agentsim.errors import InfeasibleError
from agentsim.importers._task import recorded_task
from agentsim.importers.sessions import WAIT_NAME
from agentsim.plan import Plan
from agentsim.pool import Step, spread
from agentsim.recorded import PARTIAL_OUTPUT, RecordedSession, RecordedWait
from agentsim.result import INFERENCE, Part, percentile
from agentsim.sim.engine import simulate
from agentsim.uncertainty import by_reason
from agentsim.units import to_s
from agentsim.workflow.schema import Workflow

SLOWEST = 0.1
"""The share of sessions whose waiting is broken down."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
EDGES = (1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Speed-ups between which sessions are counted; the first and the last class are open."""
NAMED = 5
"""So many waits of the slowest sessions are told by name."""
NO_CALL = "no model call in it"
NO_TIME = "no time in it"
PARTIAL = "its log kept only part of the output tokens"
MOST_PARTIAL = 0.1
"""The share of model calls with a partial count of output tokens from which on a session tells nothing."""


@dataclass(frozen=True, slots=True)
class Lived:
    """One session on one deployment: seconds of the task and of each part; `problem` where it cannot be."""

    task_s: float = 0.0
    parts_s: tuple[float, ...] = ()
    output_tokens: int = 0
    decode_s: float = 0.0
    lower_bound: bool = False
    problem: str = ""

    @property
    def model_s(self) -> float:
        """Seconds that faster inference could shorten."""
        return sum(self.parts_s[part] for part in INFERENCE) if self.parts_s else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One session: what it was on every deployment, and what it waited for by name (s)."""

    name: str
    model_calls: int
    lived: tuple[Lived, ...]
    waits_s: Mapping[str, float]

    @property
    def problem(self) -> str:
        """Why it stands in no distribution."""
        return next((lived.problem for lived in self.lived if lived.problem), "")


@dataclass(frozen=True)
class Population:
    """Sessions on deployments, the first of which is the base.

    `rows` are the sessions that run on all of them; `left_out` counts the others by deployment and reason,
    `passed_over` the files that hold none. `idle_s` is the length from which a wait that the log does not
    explain was taken for a person's.
    """

    path: str
    claim: Claim
    deployments: tuple[str, ...]
    seed: int
    rows: tuple[Row, ...]
    left_out: Mapping[str, Mapping[str, int]]
    passed_over: Mapping[str, int]
    idle_s: float | None = None
    overrides: tuple[str, ...] = ()

    @property
    def sessions(self) -> int:
        """How many there are, those left out included."""
        return len(self.rows) + sum(sum(reasons.values()) for reasons in self.left_out.values())

    def task_s(self, index: int) -> list[float]:
        """Return the task times on one deployment."""
        return [row.lived[index].task_s for row in self.rows]

    def speedups(self, index: int) -> list[float]:
        """Return how many times faster each session is than on the base."""
        return [_ratio(row.lived[0].task_s, row.lived[index].task_s) for row in self.rows]

    def model_speedups(self, index: int) -> list[float]:
        """Return the same of the model's time alone, tools and waits left out."""
        return [_ratio(row.lived[0].model_s, row.lived[index].model_s) for row in self.rows]

    def token_speed(self, index: int) -> float | None:
        """Return tokens per second of decoding, all sessions together."""
        decode_s = sum(row.lived[index].decode_s for row in self.rows)
        return sum(row.lived[index].output_tokens for row in self.rows) / decode_s if decode_s else None

    def kept(self, index: int) -> int:
        """Return in how many sessions the claim holds."""
        return sum(self.claim.is_kept(row.lived[0].task_s, row.lived[index].task_s) for row in self.rows)

    def begun(self) -> int:
        """Return how many sessions the claim could be of: those that take long enough on the base."""
        return sum(row.lived[0].task_s >= self.claim.from_s for row in self.rows)

    def is_lower_bound(self, index: int) -> bool:
        """Tell whether a part of the deployment's time is unknown and counts as zero."""
        return any(row.lived[index].lower_bound for row in self.rows)

    def slowest(self) -> list[Row]:
        """Return the tenth of the sessions that takes longest on the base, at least one."""
        ordered = sorted(self.rows, key=lambda row: -row.lived[0].task_s)
        return ordered[: max(round(SLOWEST * len(ordered)), 1)]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `compare SESSIONS --format json` prints; seconds."""
        return {
            "sessions": self.sessions,
            "model_calls": sum(row.model_calls for row in self.rows),
            "simulated": len(self.rows),
            "left_out": self.left_out,
            "passed_over": self.passed_over,
            "seed": self.seed,
            "idle_over_s": self.idle_s,
            "claim": self.claim.text,
            "long_enough_for_it": self.begun(),
            "deployments": [self._column(index) for index in range(len(self.deployments))],
            "slowest_tenth": [asdict(part) for part in slowest_parts(self)],
            "list": [self._session(row) for row in self.rows],
        }

    def _column(self, index: int) -> dict[str, Any]:
        return {
            "deployment": self.deployments[index],
            "task_s": quantiles(self.task_s(index)),
            "total_s": sum(self.task_s(index)),
            "lower_bound": self.is_lower_bound(index),
            "speedup": quantiles(self.speedups(index)),
            "model_time_speedup": quantiles(self.model_speedups(index)),
            "output_tokens_per_s": self.token_speed(index),
            "claim_holds": self.kept(index),
            "histogram": histogram(self.speedups(index)),
        }

    def _session(self, row: Row) -> dict[str, Any]:
        times = {name: lived.task_s for name, lived in zip(self.deployments, row.lived, strict=True)}
        return {"name": row.name, "model_calls": row.model_calls, "task_s": times}


def _ratio(base_s: float, other_s: float) -> float:
    """Return a speed-up; one where both take no time. Of a task without any time left it is a lower bound."""
    return base_s / max(other_s, 1e-9) if base_s else 1.0


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return the sample at `QUANTILES`, by name (`p50`), and its mean; empty where the sample is."""
    if not values:
        return {}
    ordered = sorted(values)
    found = {f"p{100 * share:g}": percentile(ordered, share) for share in QUANTILES}
    return {"mean": sum(values) / len(values), **found, "max": ordered[-1]}


def histogram(values: Iterable[float]) -> list[int]:
    """Return how many values lie below the first of `EDGES`, between each two, and over the last."""
    counts = [0] * (len(EDGES) + 1)
    for value in values:
        counts[sum(value >= edge for edge in EDGES)] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Share:
    """A part of what the slowest sessions take, on base and other (s); `names` are its longest waits."""

    part: str
    base_s: float
    other_s: float
    names: Mapping[str, float]


def slowest_parts(population: Population) -> list[Share]:
    """Return what the slowest tenth waits for on the base and on the fastest other, the most first."""
    rows, other = population.slowest() if population.rows else [], fastest(population)
    found = []
    for part in Part:
        base_s, other_s = (sum(row.lived[index].parts_s[part] for row in rows) for index in (0, other))
        if part is not Part.HUMAN and (base_s or other_s):
            found.append(Share(part.key, base_s, other_s, _names(rows) if part is Part.TOOL else {}))
    return sorted(found, key=lambda share: -share.base_s)


def _names(rows: Iterable[Row]) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in rows:
        for name, seconds in row.waits_s.items():
            total[name] = total.get(name, 0.0) + seconds
    return dict(sorted(total.items(), key=lambda item: -item[1])[:NAMED])


def fastest(population: Population) -> int:
    """Return the index of the deployment, the base aside, on which all sessions together end first."""
    return min(range(1, len(population.deployments)), key=lambda index: sum(population.task_s(index)))


def population_of(
    path: str,
    sessions: Sequence[RecordedSession],
    deployments: Sequence[str],
    overrides: Sequence[str],
    claim: Claim,
    seed: int = 0,
    idle_s: float | None = None,
    step: Step = lambda: None,
) -> Population:
    """Run every session on every deployment; `step` is called for each session.

    `overrides` are of the deployments. Raises `InfeasibleError` where no session runs on all of them.
    """
    names = tuple(bare_plan(name, tuple(overrides)).deployment for name in deployments)
    work = _Work(tuple(deployments), tuple(overrides), seed, idle_s)
    rows = spread(work, sessions, step)
    whole = tuple(row for row in rows if not row.problem)
    left_out = {
        name: reasons
        for index, name in enumerate(names)
        if (reasons := by_reason(r.problem for r in rows if _first_problem(r) == index))
    }
    if not whole:
        told = "; ".join(
            f"{count} on {name}: {why}" for name, r in left_out.items() for why, count in r.items()
        )
        raise InfeasibleError(f"{path}: no session runs on all of {', '.join(names)} ({told})")
    return Population(path, claim, names, seed, whole, left_out, {}, idle_s)


def _first_problem(row: Row) -> int | None:
    return next((index for index, lived in enumerate(row.lived) if lived.problem), None)


@lru_cache(maxsize=64)
def bare_plan(name: str, overrides: tuple[str, ...]) -> Plan:
    """Return a deployment compiled for no task in particular; a process does so once."""
    probe = Workflow.model_validate({"name": "probe", "steps": [{"user": {"tokens": 1}}]})
    return compile_plan(probe, name, overrides)


@dataclass(frozen=True)
class _Work:
    """Runs sessions on the deployments of these names."""

    deployments: tuple[str, ...]
    overrides: tuple[str, ...]
    seed: int
    idle_s: float | None

    def __call__(self, session: RecordedSession) -> Row:
        calls = sum(1 for _ in session.calls)
        if not calls:
            return Row(session.name, 0, (Lived(problem=NO_CALL),), {})
        if session.odd.get(PARTIAL_OUTPUT, 0) > MOST_PARTIAL * calls:
            return Row(session.name, calls, (Lived(problem=PARTIAL),), {})
        if self.idle_s is not None:
            session = with_people(session, self.idle_s)
        task, lived = recorded_task(session), []
        for name in self.deployments:
            plan = bare_plan(name, self.overrides)
            try:
                limit = task.limit_below(plan.limit_tokens, plan.title)
                lived.append(_lived(replace(plan, task=task, limit_tokens=limit), self.seed))
            except InfeasibleError as bad:
                lived.append(Lived(problem=_over_limit(session, plan) or str(bad)))
        if not lived[0].task_s and not lived[0].problem:
            lived[0] = Lived(problem=NO_TIME)
        return Row(session.name, calls, tuple(lived), _waits(session))


def _over_limit(session: RecordedSession, plan: Plan) -> str:
    """Return that a context is too long, without the figures in which sessions differ."""
    longest = max(call.prompt_tokens + call.output_tokens for call in session.calls)
    if plan.limit_tokens is None or longest <= plan.limit_tokens:
        return ""
    return f"a context of over {plan.limit_tokens:,} tokens, the most that it takes"


def _lived(plan: Plan, seed: int) -> Lived:
    result = simulate(plan, seed, detail="summary")
    task = result.task
    return Lived(
        task_s=to_s(task.completion_ns),
        parts_s=tuple(to_s(nanoseconds) for nanoseconds in task.parts_ns),
        output_tokens=task.output_tokens,
        decode_s=to_s(task.decode_ns),
        lower_bound=result.lower_bound,
    )


def _waits(session: RecordedSession) -> dict[str, float]:
    found: dict[str, float] = {}
    for lane in session.lanes:
        for event in lane.events:
            if isinstance(event, RecordedWait) and event.kind != "human":
                found[event.name] = found.get(event.name, 0.0) + event.duration_s
    return found


def with_people(session: RecordedSession, idle_s: float) -> RecordedSession:
    """Return the session with waits of over `idle_s` that its log does not explain as a person's."""

    def told(event: Any) -> Any:
        is_unexplained = isinstance(event, RecordedWait) and event.name == WAIT_NAME
        return replace(event, kind="human") if is_unexplained and event.duration_s > idle_s else event

    lanes = tuple(replace(lane, events=tuple(map(told, lane.events))) for lane in session.lanes)
    return replace(session, lanes=lanes)
