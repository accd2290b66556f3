"""The simulator held against measured serving runs. Read this first.

`table.py` reads a CSV, `rows.py` turns each of its rows into a `Run` or into the reason why not,
`serving.py` replays a run on the real engine server, `pool.py` replays many on all cores, and
`report.py` says how far off the simulator is, by GPU, engine, model, precision and concurrency.
"""

from __future__ import annotations
