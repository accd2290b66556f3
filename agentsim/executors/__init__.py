"""Where the points of a sweep are computed, one file a place; `base` says what such a file exposes."""
