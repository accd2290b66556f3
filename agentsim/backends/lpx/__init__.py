"""LPUs: what a compiler lays out before the run is what is modelled.

    specs -> fabric (who reaches whom) -> mapping (which chips hold what) -> programs on a schedule
          -> step (all stages) -> cost (interpolated for the simulator)

Physics: bytes over SRAM bandwidth, FLOPs over peak, vectors over links, hops. Published: SRAM, peak, links
and the latency of reach. Estimated: the lanes. Assumed: start-up of operations, the vector unit's rate,
the grouping of trays. Calibrated: `speculative_step_overhead` alone, the distance between the schedule and
the measured steps with drafts; it is the model's honest unknown, and `LpxCost.floor_s` leaves it out.

Read `fabric.py`, then `schedule.py`, `programs.py`, `mapping.py`, `step.py`, `cost.py`.
"""

from __future__ import annotations

from agentsim.backends.lpx.compiler import compile_lpx

PLUGIN = compile_lpx
