"""agentsim: how long an AI agent's whole task takes on given inference hardware, and where the time goes.

Read in this order: `workflow/schema.py` (what a task is), `backends/base.py` (what hardware costs),
`sim/engine.py` (how the two meet), `result.py` (what comes out).
"""
