"""What a whole `agentsim run` costs beside the bare import of what it stands on. Anyone can run it:

    python tests/benchmarks/startup.py [--format json]

Both are measured in the same run, in turn, and their medians are compared: the ratio is what counts.
What is measured is the installed package, compiled as it was installed, and not the folder one stands in.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
BARE = [sys.executable, "-c", "import typer, rich, pydantic, simpy, yaml"]
WORKFLOW = str(ROOT / "workflows" / "coding-agent.yaml")
RUN = [sys.executable, "-P", "-m", "agentsim", "run", WORKFLOW, "--on", "coding-tool"]
HELP = [sys.executable, "-P", "-m", "agentsim", "--help"]
ROUNDS = 15


def seconds(command: list[str]) -> float:
    """Return the wall time of one process, its output thrown away."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Measure in turn, print medians and ratios."""
    commands = {"bare_import": BARE, "run": RUN, "help": HELP}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    found = {
        **{f"{name}_s": value for name, value in medians.items()},
        "run_ratio": medians["run"] / medians["bare_import"],
        "help_ratio": medians["help"] / medians["bare_import"],
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
