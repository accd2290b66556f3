"""A GPU engine: what an iteration reads, multiplies and sends, at the rates that engines reach.

    t = max(weights read, FLOPs) + KV read + attention of the prefill + all-reduces + layer overhead

Physics: bytes over HBM bandwidth, FLOPs over dense peak, two all-reduces a layer. Calibrated: the
share of each peak that the engine's kernels reach, and the fixed time a layer takes whatever it works
on (launches, norms, the floor of small kernels), which dominates at batch 1.

Read `cost.py` (an iteration), then `forward.py` (a pass), `weights.py` (what is read and what fits).
"""

from __future__ import annotations

from agentsim.backends.gpu.cost import compile_gpu

PLUGIN = compile_gpu
