"""What each verb of the command line does, without the command line: read, compute, write files.

The library's front door for scripts, too. Returns data; prints nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentsim import plugins, yaml_file
from agentsim.compile import compile_plan
from agentsim.errors import AgentsimError, InputError, unknown_name
from agentsim.plan import Plan
from agentsim.result import Result
from agentsim.sim.engine import simulate
from agentsim.specs import catalog
from agentsim.summary import Summary, SummaryBuilder
from agentsim.workflow.load import check_document, load_workflow
from agentsim.workflow.schema import Workflow

if TYPE_CHECKING:
    from agentsim.calibrate import Report
    from agentsim.compare import Comparison
    from agentsim.sheets import Sheet

Step = Callable[[], None]


def run_task(
    workflow: str,
    deployment: str,
    seeds: Sequence[int],
    overrides: Sequence[str] = (),
    output_dir: str | None = None,
    step: Step = lambda: None,
    export: str = "result",
    output: str | None = None,
) -> tuple[Summary, list[str]]:
    """Run a workflow file on a deployment over the seeds; return the summary and the files written.

    The first run is the one told in full: in `output`, in the format `export`, and in `output_dir`.
    """
    plan = plans(workflow, [deployment], overrides)[0]
    write_export = exporter(export, output)
    with outputs(output_dir) as write:
        builder = SummaryBuilder()
        for seed in seeds:
            builder.add(simulate(plan, seed))
            step()
        summary = builder.build()
        written = write_export(summary.first)
        written += write(output_files(summary)) if write is not None else []
    return summary, written


def outputs(folder: str | None) -> Any:
    """Open a folder for files, or nothing: a context whose value writes them, or is None."""
    from agentsim.exports.base import output_folder

    return nullcontext() if folder is None else output_folder(folder)


def output_files(summary: Summary) -> dict[str, Any]:
    """Return the text of every output file by name; the first run is the one told in full."""
    import json

    files: dict[str, Any] = {"summary.json": [json.dumps(summary.to_json(), indent=2) + "\n"]}
    for name in plugins.names("exports"):
        export = plugins.load("exports", name)
        if export.in_folder:
            files[export.file_name] = export.render(summary.first)
    return files


def exporter(export: str, output: str | None) -> Callable[[Result], list[str]]:
    """Return the function that writes a result to `output` in the format `export`, and nothing without one.

    Raises at once for an unknown format, or where a file stands that is not the tool's own.
    """
    if output is None and export == "result":
        return lambda _: []
    from agentsim.exports.base import check_target, write_file

    plugin = plugins.load("exports", export)
    if output is None:
        raise InputError(f"--export {export}: give -o FILE to write it to, such as {plugin.file_name}")
    check_target(output, plugin.mark)

    def write(result: Result) -> list[str]:
        write_file(output, "".join(plugin.render(result)), plugin.mark)
        return [output]

    return write


def plans(workflow: str, deployments: Sequence[str], overrides: Sequence[str]) -> list[Plan]:
    """Compile one workflow file for each deployment; `deployment.x=…` overrides go to those."""
    task, theirs = workflow_of(workflow, overrides), deployment_overrides(overrides)
    compiled = {name: compile_plan(task, name, theirs) for name in deployments}
    changed = tuple(overrides)
    return [replace(plan, overrides=changed, asked_for=name) for name, plan in compiled.items()]


def workflow_of(path: str, overrides: Sequence[str]) -> Workflow:
    """Return the workflow of a file, with those overrides applied that are its own."""
    return load_workflow(path, [o for o in overrides if not o.startswith(catalog.DEPLOYMENT)])


def deployment_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that are the deployments', as their files' paths."""
    return [o.removeprefix(catalog.DEPLOYMENT) for o in overrides if o.startswith(catalog.DEPLOYMENT)]


def compare_deployments(
    workflow: str,
    deployments: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str] = (),
    step: Step = lambda: None,
) -> Comparison:
    """Run a workflow file on several deployments over the same seeds."""
    from agentsim.compare import compare

    check_deployments(deployments)
    return compare(plans(workflow, deployments, overrides), simulate, seeds, step)


def check_deployments(deployments: Sequence[str]) -> None:
    """Refuse less than two deployments to compare, and one that is given twice."""
    if len(deployments) < 2:
        raise InputError("compare: give --on at least twice; the first is the base of the comparison")
    twice = [name for name, count in Counter(deployments).items() if count > 1]
    if twice:
        raise InputError(f"compare: --on {twice[0]} is given twice")


def validate_file(path: str) -> str:
    """Check one file of any kind; return what it is. Every problem is an `AgentsimError`."""
    from agentsim.sweep.load import is_sweep, sweep_of

    document = yaml_file.read(path, InputError)
    kind = catalog.kind_of_document(document)
    several = document.data.get("endpoints") if isinstance(document.data, dict) else None
    if isinstance(several, dict):
        for name in several:
            compile_plan(_probe(), f"{os.path.abspath(path)}#{name}")
        return f"{len(several)} valid endpoints"
    if kind is None and is_sweep(document):
        return f"a valid sweep of {sweep_of(document).space.size:,} points"
    if kind is None:
        return f"a valid workflow, '{check_document(document).name}'"
    if kind in ("deployments", "endpoints"):
        compile_plan(_probe(), os.path.abspath(path))
    else:
        catalog.from_document(catalog.schema_of(kind), document, path)
    return _VALID[kind]


def validate_files(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Check several files, each for itself; return what each is, or its problem."""
    found = []
    for path in paths:
        try:
            found.append({"file": path, "valid": True, "is": validate_file(path)})
        except AgentsimError as error:
            found.append({"file": path, "valid": False, "problem": str(error)})
    return found


_VALID = {
    "hardware": "a valid hardware file",
    "models": "a valid model",
    "engines": "a valid engine profile",
    "endpoints": "a valid endpoint",
    "deployments": "a valid deployment",
}


def list_catalog(kind: str | None) -> dict[str, list[tuple[str, str]]]:
    """Return (name, title) of every spec, of one kind or all."""
    if kind is not None and kind not in catalog.KINDS:
        raise unknown_name("kind", kind, catalog.KINDS)
    kinds = [kind] if kind else list(catalog.KINDS)
    return {k: [(n, _title(k, n)) for n in catalog.names(k)] for k in kinds}


def _title(kind: str, name: str) -> str:
    return str(catalog.document(kind, name).data.get("title", ""))


def show_sheets(name: str) -> list[Sheet]:
    """Return what is known of a name or a spec file; for a deployment also every datum that it uses."""
    from agentsim.sheets import own_sheets, sheet, used_sheets

    kind, document = catalog.find(name)
    sheets = [sheet(kind, name, document)]
    if kind == "deployments":
        sheets += [*used_sheets(compile_plan(_probe(), name).sources), *own_sheets(document)]
    return sheets


def _probe() -> Workflow:
    """The smallest task there is, to compile a deployment without one."""
    return Workflow.model_validate({"name": "probe", "steps": [{"user": {"tokens": 1}}]})


SCHEMAS = ("workflow", "sweep", "deployment")
"""Kinds of files that people write most; the others are told by `show`."""


def json_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of one of `SCHEMAS`."""
    if kind not in SCHEMAS:
        raise unknown_name("kind of file", kind, SCHEMAS)
    if kind == "workflow":
        return Workflow.model_json_schema()
    if kind == "deployment":
        from agentsim.specs.deployment import Deployment

        return Deployment.model_json_schema()
    from agentsim.sweep.schema import SweepFile

    return SweepFile.model_json_schema()


def write_starter(path: str) -> None:
    """Write the commented starter workflow; an existing file is left alone."""
    from agentsim.exports.base import write_file

    if os.path.exists(path):
        raise InputError(f"{path}: exists already; it was left as it is")
    template = os.path.join(os.path.dirname(__file__), "starter.template.yaml")
    with open(template, encoding="utf-8") as file:
        write_file(path, file.read())


def calibrate_sessions(path: str, output: str | None, check: str | None, source: str) -> Report[Any]:
    """Fit endpoints on recorded sessions, a log or a folder, or judge an existing profile (`check`)."""
    from agentsim.calibrate import calibrate_endpoints, check_endpoints, read_profiles
    from agentsim.calibrate.profiles import MARK
    from agentsim.exports.base import refuse_foreign
    from agentsim.importers._folder import Walk, sessions_below

    if check is not None:
        return check_endpoints(read_profiles(check), sessions_below(path, Walk()))
    assert output is not None
    refuse_foreign(output, MARK)
    calibration = calibrate_endpoints(sessions_below(path, Walk()))
    _write_profiles(calibration, output, source, f"agentsim calibrate endpoint {os.path.basename(path)}")
    return calibration


def _write_profiles(calibration: Report[Any], output: str, source: str, command: str) -> None:
    from agentsim.calibrate import endpoint_documents, profile_document
    from agentsim.exports.base import output_folder, write_file

    if output.endswith(os.sep) or os.path.isdir(output):
        documents = endpoint_documents(calibration, source, command)
        with output_folder(output) as write:
            write({f"{name}.yaml": [text] for name, text in documents.items()})
    else:
        write_file(output, profile_document(calibration, source, command))
