"""What the README shows works as it is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from test_cli import printed

from agentsim import yaml_file
from agentsim.verbs import run_task, validate_file
from agentsim.workflow.load import check_document

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
YAML = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
NAMED = {re.match(r"# (\S+\.yaml)", text)[1]: text for text in YAML if text.startswith("# ")}


@pytest.fixture
def folder(tmp_path):
    for name, text in NAMED.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize("name", NAMED)
def test_a_file_of_the_readme_is_valid(folder, name):
    assert "valid" in validate_file(str(folder / name))


def test_the_readmes_own_hardware_runs(folder):
    path = str(folder / "zeus-gemma.yaml")
    summary, _ = run_task(str(ROOT / "workflows" / "support-agent.yaml"), path, [0])
    assert summary.completion_s.p50 > 0


def test_the_readmes_workflow_is_a_workflow():
    [text] = [text for text in YAML if not text.startswith("# ")]
    assert check_document(yaml_file.parse(text, "README.md")).steps


@pytest.mark.parametrize("path", re.findall(r"workflows/[\w-]+\.yaml", README))
def test_a_workflow_that_the_readme_names_is_there(path):
    assert (ROOT / path).exists()


def shown() -> dict[str, list[str]]:
    """Return the lines under every command that the README shows with its output."""
    found = {}
    for block in re.findall(r"```\n(\$ .*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip("\n").splitlines()
            if lines and command.startswith(("agentsim", "cat ")) and "sessions.jsonl" not in command:
                found[command] = [line for line in lines if line]
    return {command: lines for command, lines in found.items() if command.split()[1] in SHOWN}


SHOWN = ("compare", "claim", "capacity", "sweep", "anchors")


@pytest.mark.parametrize("command", shown())
def test_a_command_prints_what_the_readme_shows(command, tmp_path, monkeypatch):
    (tmp_path / "workflows").symlink_to(ROOT / "workflows")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    said = printed(*shlex.split(command)[1:])
    lines = [line.rstrip() for line in said.splitlines() if line]
    expected = shown()[command]
    assert [line for line in expected if line not in lines] == []
    assert "…" in expected or len(lines) == len(expected)
