"""One task over many settings: what a sweep file says, its points, and the table of their results.

Read in this order: `schema` (the file), `space` (its points), `work` (a point becomes a row), `journal`
(what is done is kept), `run` (all of it together), `effects` (what the table says).
"""
