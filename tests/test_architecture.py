"""The shape of the source: who imports whom, who may touch which package, and how long things are."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from statistics import median

import pytest

from agentsim import plugins

ROOT = Path(__file__).parents[1] / "agentsim"
FILES = sorted(ROOT.rglob("*.py"))
NAMES = [str(file.relative_to(ROOT)) for file in FILES]
TREES = {file: ast.parse(file.read_text("utf-8")) for file in FILES}

RANKS = (
    ("units", "errors", "yaml_file", "plugins", "seeds", "fields"),
    ("workflow", "specs", "result", "recorded"),
    ("invariants", "backends", "summary", "sheets", "claims", "executors"),
    ("coexec", "pool"),
    ("plan",),
    ("compile", "compile_engines", "sim"),
    ("variation",),
    ("uncertainty", "sensitivity", "levers"),
    (
        "compare",
        "exports",
        "importers",
        "calibrate",
        "validation",
        "bench",
        "anchors",
        "anchor_measures",
        "fleet",
    ),
    ("sweep", "report", "population"),
    (
        "terminal",
        "verbs",
        "verbs_answers",
        "verbs_fleet",
        "verbs_hardware",
        "verbs_logs",
        "verbs_report",
        "verbs_sweep",
        "completion",
    ),
    ("commands",),
    ("cli", "__main__"),
)
RANK = {part: rank for rank, parts in enumerate(RANKS) for part in parts}
OPEN_TO_ALL = {"errors", "units"}
WITHIN_A_RANK = {
    ("compile", "compile_engines"),
    ("__main__", "cli"),
    ("verbs_answers", "verbs"),
    ("verbs_answers", "verbs_logs"),
    ("anchor_measures", "bench"),
    ("anchors", "anchor_measures"),
    ("anchors", "bench"),
    ("verbs_fleet", "verbs"),
    ("calibrate", "validation"),
}
THIRD_PARTY = {
    "simpy": ("sim/",),
    "yaml": ("yaml_file.py",),
    "rich": ("terminal/",),
    "typer": ("cli.py", "commands/"),
    "numpy": ("calibrate/", "importers/_block_numbers.py"),
    "pydantic": (
        "fields.py",
        "yaml_file.py",
        "workflow/",
        "specs/",
        "sweep/schema.py",
        "terminal/catalog.py",
        "report/",
    ),
    "pydantic_core": ("fields.py", "workflow/", "specs/"),
    "distributed": ("executors/dask.py",),
    "pyarrow": ("sweep/table.py",),
}
MODULE_DENY = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}
SOCKETS = {"socket", "ssl", "http", "urllib", "asyncio", "requests", "httpx", "aiohttp", "socketserver"}
LONGEST_FILE, LONGEST_FUNCTION, LONGEST_CLI, MEDIAN_FUNCTION = 400, 60, 300, 12
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
PLUGIN_FOLDERS = ("backends", "coexec", "executors", "exports", "importers")


def part_of(dotted):
    """Return what of agentsim a dotted name lies in: a package or a top-level module."""
    return dotted.split(".")[1] if "." in dotted else ""


def place_of(file):
    """Return the package or top-level module that a file belongs to."""
    relative = file.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def typing_only(tree):
    """Return the imports that only a type checker sees."""
    guards = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    return {id(inner) for guard in guards for inner in ast.walk(guard)}


def imports_of(file):
    """Yield (line, dotted name, seen at run time) for every import, those in functions included."""
    hidden = typing_only(TREES[file])
    for node in ast.walk(TREES[file]):
        runs = id(node) not in hidden
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, runs) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are written in full"
            base = node.module
            if base == "agentsim":
                yield from ((node.lineno, f"agentsim.{alias.name}", runs) for alias in node.names)
            else:
                yield node.lineno, base, runs


def is_allowed(here, there, runs):
    if here == there or there in OPEN_TO_ALL or (here, there) in WITHIN_A_RANK:
        return True
    if here == "terminal" and not runs:
        return RANK[there] <= RANK["terminal"]
    return RANK[there] < RANK[here]


def functions():
    """Yield (where it is, node) of every function."""
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, FUNCTION):
                yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", node


def length(node):
    return node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_file_imports_only_from_lower_ranks_or_its_own_package(file):
    here = place_of(file)
    if here == "__init__":
        return
    assert here in RANK, f"{here} has no rank: give it one"
    wrong = [
        f"line {line}: {name}"
        for line, name, runs in imports_of(file)
        if name.startswith("agentsim.") and not is_allowed(here, part_of(name), runs)
    ]
    assert wrong == []


@pytest.mark.parametrize("package", THIRD_PARTY)
def test_a_third_party_package_is_imported_only_where_it_belongs(package):
    users = {
        str(file.relative_to(ROOT))
        for file in FILES
        for _, name, _ in imports_of(file)
        if name.split(".")[0] == package
    }
    assert {user for user in users if not user.startswith(THIRD_PARTY[package])} == set()


def test_no_other_third_party_package_is_imported():
    import sys

    found = {name.split(".")[0] for file in FILES for _, name, _ in imports_of(file)}
    assert found - set(sys.stdlib_module_names) - set(THIRD_PARTY) - {"agentsim"} == set()


def test_nothing_opens_a_socket():
    users = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in FILES
        for line, name, _ in imports_of(file)
        if name.split(".")[0] in SOCKETS
    ]
    assert users == []


def test_only_the_command_line_prints():
    users = {
        str(file.relative_to(ROOT))
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert users <= {"cli.py", "terminal/console.py"}


def test_the_library_neither_exits_nor_prints_at_exit():
    users = {
        str(file.relative_to(ROOT))
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if (node.value.id, node.attr) in {("sys", "exit"), ("os", "_exit"), ("atexit", "register")}
    }
    assert users <= {"cli.py", "terminal/console.py"}


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_file_is_short_enough_to_read(file):
    longest = LONGEST_CLI if file.name == "cli.py" else LONGEST_FILE
    assert len(file.read_text("utf-8").splitlines()) <= longest


def test_a_function_is_short_enough_to_read():
    assert [name for name, node in functions() if length(node) > LONGEST_FUNCTION] == []


def test_the_median_function_is_short():
    assert median(length(node) for _, node in functions()) <= MEDIAN_FUNCTION


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_module_is_named_after_what_it_holds(file):
    words = set(file.stem.lower().split("_"))
    assert words & MODULE_DENY == set()


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_every_public_thing_says_what_it_is(file):
    assert undocumented(TREES[file]) == []


def undocumented(tree):
    """Return what is public at the top of a module, the module included, and has no docstring.

    The members of a class are left to the class: they need one where their name does not say enough.
    """
    found = [] if ast.get_docstring(tree) else ["the module"]
    for node in tree.body:
        public = isinstance(node, (*FUNCTION, ast.ClassDef)) and not node.name.startswith("_")
        if public and not ast.get_docstring(node):
            found.append(f"line {node.lineno}: {node.name}")
    return found


@pytest.mark.parametrize(
    ("folder", "name"),
    [(folder, name) for folder in PLUGIN_FOLDERS for name in plugins.built_in_names(folder)],
)
def test_every_module_of_a_plugin_folder_exposes_its_plugin(folder, name):
    assert import_module(f"agentsim.{folder}.{name}").PLUGIN is plugins.load(folder, name)


@pytest.mark.parametrize("folder", PLUGIN_FOLDERS)
def test_a_plugin_folder_says_its_contract_in_base(folder):
    base = ROOT / folder / "base.py"
    assert "PLUGIN" in ast.get_docstring(TREES[base])
