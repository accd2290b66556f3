"""Points per second of a sweep, in one process and on all cores, start and table included. Anyone can run it:

    python tests/benchmarks/sweep.py [--format json]

3,000 points of the support agent (some 10 model calls each) on one GPU server.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from agentsim.pool import cores
from agentsim.sweep.load import load_sweep
from agentsim.sweep.run import Place, Running

ROOT = Path(__file__).parents[2]
SWEEP = f"""workflow: {ROOT}/workflows/support-agent.yaml
deployment: 8xb200
grid:
  deployment.engines.main.chips: [4, 8]
  context.system_tokens: {{from: 1k, to: 60k, steps: 30}}
  network.round_trip: {{from: 1 ms, to: 1 s, steps: 50, scale: log}}
"""


def measure(folder: str, workers: int) -> dict[str, float]:
    """Run the sweep anew in so many processes."""
    path = Path(folder) / "sweep.yaml"
    path.write_text(SWEEP, "utf-8")
    sweep = load_sweep(str(path))
    start = time.perf_counter()
    with Running(sweep, f"{folder}/{workers}.csv", restart=True) as running:
        running.run(Place("local", str(workers)))
    seconds = time.perf_counter() - start
    return {"processes": workers, "points": sweep.space.size, "points_per_s": sweep.space.size / seconds}


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        found = [measure(folder, workers) for workers in sorted({1, cores()})]
    if "json" in sys.argv:
        print(json.dumps(found, indent=2))
        return
    for row in found:
        print(f"{row['processes']:2.0f} processes {row['points_per_s']:8.0f} points/s")


if __name__ == "__main__":
    main()
