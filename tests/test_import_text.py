"""What was said in a session leaves its log only where that is asked for."""

from __future__ import annotations

import json
import re

import pytest
from importer_checks import BASE_S, DATA, checked
from test_import_limits import LOGS_OF, OWN, SESSION, rows_in

from agentsim import plugins, yaml_file
from agentsim.errors import ImportFormatError
from agentsim.importers._build import workflow_document
from agentsim.importers._claude import Session as Claude
from agentsim.importers._observe import observe
from agentsim.importers.base import TextAware, sessions_of
from agentsim.verbs_logs import Reading, import_session
from agentsim.workflow.load import check_document

WITHOUT_TEXT = {"agentic_mooncake", "llmservingsim", "sessions", "tracelab", "weka", *OWN}
MARKER = "planted {} words that nobody should ever see outside of this log"
HOLDERS = ("content", "text", "input", "output", "arguments", "args", "action", "observation", "response",
           "thought", "message", "value", "prompt", "text_input", "stringValue", "command", "query",
           "summary", "thinking", "stdout", "instructions", "description")  # fmt: skip
KEEPERS = sorted({name for name in LOGS_OF if name not in WITHOUT_TEXT})


PROMPT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "fix the test"}]
ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": "I look at it"}]}]
ARGUMENTS, RESULT = '{"path": "a.py"}', "no such file"


def _otel(span, start, kind, attributes):
    values = [
        {"key": k, "value": {"stringValue" if isinstance(v, str) else "intValue": v}}
        for k, v in {"gen_ai.operation.name": kind, **attributes}.items()
    ]
    times = {"startTimeUnixNano": str(start * 10**9), "endTimeUnixNano": str((start + 2) * 10**9)}
    return {"traceId": "t", "spanId": span, "name": span, "attributes": values, **times}


def _flat(span, start, kind, attributes):
    times = {"start_time": f"2026-01-01T00:00:0{start}Z", "end_time": f"2026-01-01T00:00:0{start + 2}Z"}
    context = {"trace_id": "t", "span_id": span}
    return {"name": span, "context": context, "span_kind": kind, "attributes": attributes, **times}


def _observation(span, start, kind, given, gave):
    times = {"startTime": f"2026-01-01T00:00:0{start}Z", "endTime": f"2026-01-01T00:00:0{start + 2}Z"}
    usage = {"usageDetails": {"input": 9, "output": 3}} if kind == "GENERATION" else {}
    about = {"id": span, "traceId": "t", "type": kind, "name": span}
    return {**about, "input": given, "output": gave, **times, **usage}


OTEL_CALL = {
    "gen_ai.usage.input_tokens": 9,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.input.messages": json.dumps(PROMPT),
    "gen_ai.output.messages": json.dumps(ANSWER),
}
OTEL_TOOL = {
    "gen_ai.tool.name": "read",
    "gen_ai.tool.call.arguments": ARGUMENTS,
    "gen_ai.tool.call.result": RESULT,
}
FLAT_CALL = {
    "llm.token_count.prompt": 9,
    "llm.token_count.completion": 3,
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "fix the test",
    "llm.output_messages": [{"message": {"role": "assistant", "content": "I look at it"}}],
}
FLAT_TOOL = {"tool.name": "read", "input.value": ARGUMENTS, "output.value": RESULT}
GENERATION = {"messages": PROMPT}, {"role": "assistant", "content": "I look at it"}
SPANS = [_otel("a", BASE_S, "chat", OTEL_CALL), _otel("b", BASE_S + 3, "execute_tool", OTEL_TOOL)]
SPOKEN = {
    "otel": {"resourceSpans": [{"scopeSpans": [{"spans": SPANS}]}]},
    "openinference": [_flat("a", 0, "LLM", FLAT_CALL), _flat("b", 3, "TOOL", FLAT_TOOL)],
    "langfuse": {
        "trace": {"id": "t", "projectId": "p"},
        "observations": [
            _observation("a", 0, "GENERATION", *GENERATION),
            _observation("b", 3, "TOOL", json.loads(ARGUMENTS), RESULT),
        ],
    },
    "mooncake": {"timestamp": 0, "text_input": "fix the test", "output_length": 3},
}
MISSING = {"mooncake": {"I look at it", ARGUMENTS, RESULT}}


def planted(value, found, key=""):
    """Return a document with a sentence of its own after each text that people or tools wrote."""
    if isinstance(value, dict):
        return {k: planted(v, found, k) for k, v in value.items()}
    if isinstance(value, list):
        return [planted(item, found, key) for item in value]
    if (
        isinstance(value, str)
        and key.rpartition(".")[2] in HOLDERS
        and (" " in value or key in ("content", "text"))
    ):
        found.append(MARKER.format(len(found)))
        return f"{value} {found[-1]}" if value[:1] not in ("{", "[") else value
    return value


def read_or_refused(importer, log):
    try:
        return list(importer.sessions(str(log)))
    except ImportFormatError:
        return []


@pytest.mark.parametrize("name", sorted(LOGS_OF.keys() - OWN))
def test_without_being_asked_no_sentence_of_a_log_leaves_it(name, tmp_path):
    made = {path.name: path.read_text("utf-8") for path in LOGS_OF[name]}
    made |= {"spoken.json": json.dumps(SPOKEN[name])} if name in SPOKEN else {}
    importer, found = plugins.load("importers", name), []
    for file, text in (made or {"sessions.jsonl": json.dumps(SESSION)}).items():
        log = tmp_path / file
        log.write_text("".join(json.dumps(planted(row, found)) + "\n" for row in rows_in(text)))
        for session in read_or_refused(importer, log):
            shown = workflow_document(session) + json.dumps(observe(session).to_json()) + repr(session)
            assert "planted" not in shown
    assert found or name in WITHOUT_TEXT


def texts_in(text):
    return [json.loads(found) for found in re.findall(r'(?:result_)?text: ("(?:[^"\\]|\\.)*")', text)]


@pytest.mark.parametrize("name", KEEPERS)
def test_where_asked_the_texts_come_along_and_change_no_figure(name, tmp_path):
    importer, kept = plugins.load("importers", name), []
    log = tmp_path / "log.json"
    log.write_text(json.dumps(SPOKEN.get(name)))
    for path in [*LOGS_OF[name], *([log] if name in SPOKEN else [])]:
        bare = read_or_refused(importer, path)
        spoken = list(sessions_of(importer, str(path), keep_text=True)) if bare else []
        for plain, full in zip(bare, spoken, strict=True):
            checked(full)
            document = workflow_document(full)
            kept += texts_in(document)
            without = re.sub(r', (?:result_)?text: "(?:[^"\\]|\\.)*"', "", document)
            said = re.compile(r"^ *- user: \{tokens: 0\}\n", re.MULTILINE)
            assert said.sub("", without) == said.sub("", workflow_document(plain))
            assert observe(full) == observe(plain)
    if name in SPOKEN:
        everything = {"fix the test", "I look at it", ARGUMENTS, RESULT}
        assert set(kept) >= everything - MISSING.get(name, set())
    assert any(len(text.split()) > 1 for text in kept), f"no text was kept of {name}"


def test_the_formats_that_hold_text_are_those_that_can_keep_it():
    able = {name for name in LOGS_OF if isinstance(plugins.load("importers", name), TextAware)}
    assert able == set(KEEPERS)


def test_what_was_said_stands_where_it_was_said(tmp_path):
    output = tmp_path / "s.yaml"
    import_session(str(DATA / "claude_code_plain.jsonl"), str(output), Reading(keep_text=True))
    steps = check_document(yaml_file.read(str(output))).steps
    rows = rows_in((DATA / "claude_code_plain.jsonl").read_text())
    first = next(row["message"]["content"] for row in rows if row.get("type") == "user")
    assert steps[0].user.text == first
    assert any(step.generate and step.generate.text for step in steps)


NO = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"
ANSWERS = {
    "told apart": ({"questions": [], "answers": {"Which?": "the red one", "When?": ["now", "later"]}}, "x",
                   "the red one\nnow\nlater"),
    "in the harness' words": ({}, 'User has answered your questions: "Which?"="red". Go on.', "red"),
    "a refusal with words": ("Error: no", NO + "use the other file", "use the other file"),
    "a refusal without": ("Error: no", "The user doesn't want to proceed with this tool use.", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_human_answered_to_a_tool_that_asks_is_what_a_human_said(name):
    outcome, content, words = ANSWERS[name]
    rows = rows_in((DATA / "claude_code_human_waits.jsonl").read_text())
    rows[2]["toolUseResult"] = outcome
    rows[2]["message"]["content"][0]["content"] = content
    for keep_text, said in ((True, words), (False, "")):
        session = Claude("s", "claude_code", "log:1", keep_text=keep_text)
        for row in rows:
            session.take(row)
        assert list(session.read().calls)[1].said == said


def test_answers_to_a_question_of_codex_are_kept_without_it(tmp_path):
    rows = rows_in((DATA / "codex_plain.jsonl").read_text())
    items = [row["payload"] for row in rows if row["type"] == "response_item"]
    call = next(item for item in items if item["type"] == "function_call")
    result = next(item for item in items if item["type"] == "function_call_output")
    call["name"] = "request_user_input"
    result["output"] = json.dumps({"answers": {"which": {"answers": ["the red one"]}}})
    log = tmp_path / "s.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    [kept] = sessions_of(plugins.load("importers", "codex"), str(log), keep_text=True)
    assert "the red one" in [call.said for call in kept.calls]


TEXTS = ["a\u2028b\u0085c", 'say "x": {y}\n- z: \\', "\ud83d\ude00 \ud800", "#\t\x00", "é"]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_read_again_as_it_was_written(text, tmp_path):
    rows = rows_in((DATA / "claude_code_plain.jsonl").read_text())
    row = next(row for row in rows if row.get("type") == "user")
    row["message"]["content"] = text
    log = tmp_path / "s.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_session(str(log), str(tmp_path / "s.yaml"), Reading(keep_text=True))
    again = check_document(yaml_file.read(str(tmp_path / "s.yaml"))).steps[0].user.text
    assert again == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
