"""A shell that asks gets names: deployments behind --on, the catalog behind show. Nothing else pays."""

from __future__ import annotations

import re

import pytest
from test_cli import commands, spawned

from agentsim import completion, plugins
from agentsim.specs import catalog
from agentsim.sweep.columns import BY_NAME

ON = {*catalog.names("deployments"), *catalog.names("endpoints"), "recorded"}


def offered(line, shell="bash"):
    """Return what the command line offers a shell for the last word of a line."""
    words = line.split(" ")
    environment = {
        "_AGENTSIM_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = spawned(**environment)
    assert done.stderr == ""
    return re.findall(r"[\w.-]+", done.stdout)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("agentsim swe", {"sweep"}),
        ("agentsim run w.yaml --on ", ON),
        ("agentsim run w.yaml --on lpx-", {name for name in ON if name.startswith("lpx-")}),
        ("agentsim compare w.yaml --on 8xb200 --on cl", {name for name in ON if name.startswith("cl")}),
        ("agentsim bench aa --on lpx", {name for name in ON if name.startswith("lpx")}),
        ("agentsim schedule gem", {name for name in catalog.names("models") if name.startswith("gem")}),
        ("agentsim show b2", {name for name in completion.NAMES["all"]() if name.startswith("b2")}),
        ("agentsim list e", {"engines", "endpoints"}),
        ("agentsim schema ", {"workflow", "sweep", "deployment"}),
        ("agentsim sweep s.yaml --metric ttft", {name for name in BY_NAME if name.startswith("ttft")}),
        ("agentsim observe log --from swe", {"swe-agent"}),
        ("agentsim run ", set()),
    ],
)
def test_bash_is_offered_what_can_stand_there(line, names):
    assert set(offered(line)) == names


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(shell):
    assert "gemma-h200" in offered("agentsim run w.yaml --on gemma-h", shell)


@pytest.mark.parametrize("kind", completion.NAMES)
def test_what_is_offered_is_known(kind):
    names = completion.completed(kind, "")
    assert names
    assert len(set(names)) == len(names)
    assert completion.completed(kind, names[0])[0] == names[0]


def test_the_formats_offered_are_those_that_load():
    for name in completion.completed("formats", ""):
        assert plugins.load("importers", name)


def test_every_option_that_takes_a_deployment_offers_those_there_are():
    options = [p for command in commands() for p in command.params if p.name == "on"]
    assert len(options) >= 5
    assert all(option._custom_shell_complete is not None for option in options)
