"""The process of a local executor: reads pickled work, then numbers, and answers each with its result.

It ends when its input does, so that it does not outlive whoever started it, however that one ended.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys


def main() -> None:
    """Serve the process on the other end of stdin and stdout."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the work prints does not mix with the answers
    gc.set_threshold(100_000)
    work = pickle.load(source)
    while True:
        try:
            number = pickle.load(source)
        except EOFError:
            return
        result, problem = None, None
        try:
            result = work(number)
        except Exception as error:
            problem = error
        pickle.dump((number, result, problem), sink)
        sink.flush()


if __name__ == "__main__":
    main()
