"""Readers of recorded logs, one file each. Read `base.py` first."""
