"""`python -m agentsim`."""

from agentsim.cli import main

main()
