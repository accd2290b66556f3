"""How fast logs are read, format by format, one process, one core. Anyone can run it:

    python tests/benchmarks/imports.py [--mb 100] [--only claude_code,mooncake] [--format json]

A log of each format is written with rows as its tools write them, and then observed; of the formats that
hold one session a file, it is also imported as a workflow. `json` is what `json.loads` of every line takes,
and nothing else: the ratio to it is what counts, for it is the same on any machine. Peaks are of the whole
process. `short` and `long` are traces of prompts of few blocks and of many.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from agentsim.importers._folder import Walk
from agentsim.verbs_logs import import_session, recorded_at, total_of

Row = dict[str, Any]
WORDS = [
    "def",
    "return",
    "self",
    '"value":',
    "the\tpath/to/file.py",
    "assert",
    "None",
    "->",
    "error\n",
    "=",
    "(tests)",
]


def text(draw: Random, mean: float) -> str:
    """Return text about so many characters long: words, quotes and line ends of code."""
    return " ".join(draw.choices(WORDS, k=1 + int(draw.expovariate(6.3 / mean))))


def stamp(at_s: float) -> str:
    """Return a time as logs write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(1.77e9 + at_s)) + f".{int(at_s * 1000) % 1000:03d}Z"


def claude_code(draw: Random) -> Iterator[Row]:
    """Yield turns of text, tool call and result; every fortieth result is followed by a prompt."""
    ids, at_s, parent = count(), 0.0, None
    common = {
        "isSidechain": False, "userType": "external", "cwd": "/home/someone/projects/example",
        "sessionId": "0fae0449-64d3-4788-8622-d3a47d82c14b", "version": "2.0.1", "gitBranch": "main",
    }  # fmt: skip

    def row(kind: str, message: Row, **more: Any) -> Row:
        nonlocal parent, at_s
        at_s, uuid = at_s + draw.expovariate(0.3), f"{next(ids):08x}-cd5f-4730-917a-b704f00b24c1"
        made = {"parentUuid": parent, **common, "type": kind, "message": message, "uuid": uuid}
        parent = uuid
        return {**made, "timestamp": stamp(at_s), **more}

    for turn in count():
        if turn % 40 == 0:
            yield row("user", {"role": "user", "content": text(draw, 300)})
        usage = {
            "input_tokens": 3, "cache_creation_input_tokens": draw.randrange(5000),
            "cache_read_input_tokens": draw.randrange(150_000),
            "cache_creation": {"ephemeral_5m_input_tokens": 900, "ephemeral_1h_input_tokens": 0},
            "output_tokens": draw.randrange(1, 900), "service_tier": "standard",
        }  # fmt: skip
        answer = {
            "id": f"msg_{turn:024d}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4",
        }
        tool, command = f"toolu_{turn:024d}", {"command": text(draw, 300), "description": text(draw, 60)}
        for block in (
            {"type": "text", "text": text(draw, 250)},
            {"type": "tool_use", "id": tool, "name": draw.choice(["Bash", "Read", "Edit"]), "input": command},
        ):
            yield row("assistant", {**answer, "content": [block], "stop_reason": None, "usage": usage})
        said = text(draw, 2200)
        result = {"tool_use_id": tool, "type": "tool_result", "content": said, "is_error": False}
        outcome = {"stdout": said, "stderr": "", "interrupted": False, "isImage": False}
        yield row("user", {"role": "user", "content": [result]}, toolUseResult=outcome)


def codex(draw: Random) -> Iterator[Row]:
    """Yield turns of reasoning, tool call, usage and result; every fortieth ends and another begins."""
    at_s, total = 0.0, 0

    def row(kind: str, **payload: Any) -> Row:
        nonlocal at_s
        at_s += draw.expovariate(0.5)
        return {"timestamp": stamp(at_s), "type": kind, "payload": payload}

    yield row("session_meta", id="01a7c9e4-6d12-7b3a-9f42-8c6d5e1a0b73", timestamp=stamp(at_s), source="cli")
    for turn in count():
        if turn % 40 == 0:
            if turn:
                yield row("event_msg", type="task_complete", turn_id=f"t{turn}", duration_ms=90_000)
            yield row("event_msg", type="task_started", turn_id=f"t{turn}", model_context_window=258_400)
            yield row("turn_context", model="gpt-5.4", approval_policy="on-request", cwd="/workspace")
            yield row("event_msg", type="user_message", message=text(draw, 300))
        yield row("response_item", type="reasoning", summary=[], encrypted_content="gAAAA" * 200)
        yield row("event_msg", type="agent_message", message=text(draw, 200), phase="commentary")
        call, arguments = f"call_{turn:020d}", json.dumps({"cmd": text(draw, 150), "workdir": "/workspace"})
        yield row(
            "response_item", type="function_call", name="exec_command", arguments=arguments, call_id=call
        )
        last = draw.randrange(150_000)
        total += last
        given, before = (
            {"input_tokens": n, "cached_input_tokens": n // 2, "output_tokens": n // 90,
             "reasoning_output_tokens": n // 300, "total_tokens": n + n // 90}
            for n in (total, last)
        )  # fmt: skip
        info = {"total_token_usage": given, "last_token_usage": before, "model_context_window": 258_400}
        yield row("event_msg", type="token_count", info=info, rate_limits=None)
        said = f"Chunk ID: b7e3a1\nWall time: 0.5000 seconds\nOutput:\n{text(draw, 1500)}"
        yield row("response_item", type="function_call_output", call_id=call, output=said)


def pi(draw: Random) -> Iterator[Row]:
    """Yield turns of an answer with a tool call, and its result."""
    at_s, parent = 0.0, None

    def row(message: Row, id: str) -> Row:
        nonlocal at_s, parent
        made, at_s = at_s, at_s + draw.expovariate(0.2)
        message = {**message, "timestamp": int((1.77e9 + made) * 1000)}
        whole = {
            "type": "message",
            "id": id,
            "parentId": parent,
            "timestamp": stamp(at_s),
            "message": message,
        }
        parent = id
        return whole

    yield {"type": "session", "version": 3, "id": "s-1", "timestamp": stamp(0.0), "cwd": "/work"}
    for turn in count():
        if turn % 40 == 0:
            said = [{"type": "text", "text": text(draw, 300)}]
            yield row({"role": "user", "content": said}, f"{turn:08x}u")
        usage = {"input": 30, "output": draw.randrange(1, 900), "cacheRead": draw.randrange(99_999)}
        call = {"type": "toolCall", "id": f"call_{turn}", "name": "bash"}
        call["arguments"] = {"command": text(draw, 200)}
        content = [{"type": "text", "text": text(draw, 250)}, call]
        answer = {"role": "assistant", "content": content, "model": "gpt-5.4", "usage": usage}
        yield row({**answer, "stopReason": "toolUse"}, f"{turn:08x}a")
        result = {"role": "toolResult", "toolCallId": f"call_{turn}", "toolName": "bash", "isError": False}
        yield row({**result, "content": [{"type": "text", "text": text(draw, 1500)}]}, f"{turn:08x}r")


def otel(draw: Random) -> Iterator[Row]:
    """Yield one export a line: an agent's span, and by turns a model call with its texts and a tool's."""
    ids = count(1)

    def span(trace: int, above: str, name: str, at_s: float, length_s: float, **told: Any) -> Row:
        values = [
            {"key": key.replace("__", "."), "value": {"intValue" if type(v) is int else "stringValue": v}}
            for key, v in told.items()
        ]
        start, end = (str(int((1.77e9 + s) * 1e9)) for s in (at_s, at_s + length_s))
        times = {"startTimeUnixNano": start, "endTimeUnixNano": end}
        spans = {"traceId": f"{trace:032x}", "spanId": f"{next(ids):016x}", "parentSpanId": above}
        return {**spans, "name": name, "kind": 3, **times, "attributes": values, "status": {}}

    for trace in count(1):
        root = span(trace, "", "invoke_agent", 0.0, 200.0, gen_ai__operation__name="invoke_agent")
        spans = [root]
        for turn in range(20):
            told = {
                "gen_ai__operation__name": "chat", "gen_ai__request__model": "gpt-5.4",
                "gen_ai__usage__input_tokens": draw.randrange(99_999),
                "gen_ai__usage__output_tokens": draw.randrange(1, 900),
                "gen_ai__input__messages": text(draw, 1200), "gen_ai__output__messages": text(draw, 300),
            }  # fmt: skip
            spans.append(span(trace, root["spanId"], "chat gpt-5.4", turn * 10.0, 6.0, **told))
            tool = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "bash"}
            spans.append(span(trace, root["spanId"], "execute_tool bash", turn * 10.0 + 6, 3.0, **tool))
        yield {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": spans}]}]}


def prompts(draw: Random, blocks: float) -> Iterator[tuple[list[int], int]]:
    """Yield (hashes, tokens) of prompts: one in three goes on with one of the thousand before."""
    before: list[list[int]] = [[0]]
    fresh = count(1)
    for index in count():
        start = draw.choice(before) if draw.random() < 1 / 3 else [0]
        hashes = [
            *start[: int(4 * blocks)],
            *(next(fresh) for _ in range(1 + int(draw.expovariate(1 / blocks)))),
        ]
        before[index % 1000 : index % 1000 + 1] = [hashes]
        yield hashes, 512 * len(hashes) - draw.randrange(512)


def mooncake(draw: Random, blocks: float) -> Iterator[Row]:
    """Yield requests of many users."""
    for index, (hashes, tokens) in enumerate(prompts(draw, blocks)):
        lengths = {"input_length": tokens, "output_length": draw.randrange(1, 900)}
        yield {"timestamp": index * 90, **lengths, "hash_ids": hashes}


def sessions_plus(draw: Random) -> Iterator[Row]:
    """Yield turns of sessions that stand mixed."""
    for index, (hashes, tokens) in enumerate(prompts(draw, 6)):
        lengths = {"input_length": tokens, "output_length": draw.randrange(1, 900)}
        session = {"session_id": f"conversation-{index // 400 * 20 + index % 20}"}
        yield {**session, "timestamp": index * 90, **lengths, "hash_ids": hashes, "delay": 500}


def agentic_mooncake(draw: Random) -> Iterator[Row]:
    """Yield agents one after another: twenty requests, each going on with the one before; blocks of 64."""
    fresh = count(1)
    for agent in count():
        hashes = [*range(1, 90), *(next(fresh) for _ in range(20))]
        for turn in range(20):
            hashes = [*hashes, *(next(fresh) for _ in range(draw.randrange(5, 25)))]
            links = {"wait_for": [f"a{agent}-{turn - 1}"], "tool_wait_ms": 900, "delay": 20} if turn else {}
            yield {
                "request_id": f"a{agent}-{turn}", "session_id": f"agent-{agent}", **links,
                "input_length": 64 * len(hashes) - 9, "output_length": draw.randrange(1, 900),
                "hash_ids": hashes, "timestamp": agent * 700 + turn * 9000, "prefix_reset": not turn,
            }  # fmt: skip


FORMATS: dict[str, Callable[[Random], Iterator[Row]]] = {
    "claude_code": claude_code,
    "codex": codex,
    "pi": pi,
    "otel": otel,
    "mooncake short": lambda draw: mooncake(draw, 4),
    "mooncake": lambda draw: mooncake(draw, 16),
    "mooncake long": lambda draw: mooncake(draw, 60),
    "mooncake sessions": sessions_plus,
    "agentic_mooncake": agentic_mooncake,
}
ONE_SESSION = ("claude_code", "codex", "pi")


def write(path: str, name: str, mb: float) -> None:
    """Write rows until a file is large enough; serving traces are published with spaces, logs without."""
    rows, spaces = FORMATS[name](Random(1)), (", ", ": ") if "mooncake" in name else (",", ":")
    with open(path, "w") as file:
        while file.tell() < mb * 1e6:
            file.writelines(json.dumps(next(rows), separators=spaces) + "\n" for _ in range(50))


def bare(path: str) -> None:
    """Read every line as JSON, and nothing else."""
    with open(path, "rb") as file:
        for line in file:
            json.loads(line)


def observed(path: str) -> None:
    """Do what `agentsim observe` does."""
    walk = Walk()
    total_of(path, recorded_at(path, walk), walk)


def imported(path: str) -> None:
    """Do what `agentsim import -o` does."""
    import_session(path, os.path.join(os.path.dirname(path), "out.yaml"))


WORK = {"json": bare, "observe": observed, "import": imported}


def measure(work: str, path: str) -> None:
    """Do one thing in this process, and print its seconds of processor time and its peak (MB)."""
    start = time.process_time()
    WORK[work](path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.process_time() - start, "peak_mb": peak}))


def measured(name: str, mb: float) -> Row:
    """Write a log and measure everything with it, each in a process of its own."""
    found: Row = {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log.jsonl")
        write(path, name, mb)
        size_mb = os.path.getsize(path) / 1e6
        for work in WORK if name in ONE_SESSION else ("json", "observe"):
            command = [sys.executable, __file__, "--measure", work, path]
            done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            found[work] = {"mb_per_s": size_mb / done["seconds"], "peak_mb": done["peak_mb"]}
    return found


def line_of(name: str, found: Row) -> str:
    """Return a row of the table."""
    base, seen, made = (found.get(work) for work in WORK)
    cells = [f"{name:18} {base['mb_per_s']:6.0f}"]
    for part in filter(None, (seen, made)):
        speed = part["mb_per_s"]
        cells.append(f"{speed:9.1f} {speed / base['mb_per_s']:6.2f} {part['peak_mb']:7.0f}")
    return " ".join(cells)


def main() -> None:
    """Measure each format and print the table."""
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:])
        return
    options = argparse.ArgumentParser()
    options.add_argument("--mb", type=float, default=100)
    options.add_argument("--only", default="")
    options.add_argument("--format", choices=("table", "json"), default="table")
    given = options.parse_args()
    names = [name for name in FORMATS if not given.only or name in given.only.split(",")]
    if given.format == "json":
        print(json.dumps({name: measured(name, given.mb) for name in names}, indent=2))
        return
    print(f"{'MB/s':18} {'json':>6} {'observe':>9} {'ratio':>6} {'peak MB':>7} {'import':>9} {'ratio':>6}")
    for name in names:
        print(line_of(name, measured(name, given.mb)), flush=True)


if __name__ == "__main__":
    main()
