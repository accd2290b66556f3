"""Co-execution patterns: a model call becomes stages on engines. Knows no clock."""
