"""Results as files. An export sees a `Result` and nothing else."""
