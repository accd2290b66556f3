"""Cost models: how long one piece of inference work takes on some hardware. Pure; no clock."""
