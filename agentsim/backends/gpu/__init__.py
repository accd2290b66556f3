"""A GPU engine: what an iteration reads, multiplies and sends, at the rates that engines reach.

Physics: bytes over HBM bandwidth, FLOPs over dense peak, what crosses the links. Calibrated: the share of
each peak that the engine's kernels reach, and the fixed times of a layer (launches, norms, the floor of
small kernels, which dominate at batch 1), an iteration, a sequence, a prefill and a request.

Read `forward.py` first (the law), then `cost.py` (an iteration), `group.py` (who shares what),
`constants.py` (what is reached), `network.py` (what is sent), `weights.py` (what is read and what fits).
"""

from __future__ import annotations

from agentsim.backends.gpu.cost import compile_gpu

PLUGIN = compile_gpu
