"""Processes of this machine; `where` is how many.

The first numbers are done in this process: a small piece of work is over before another one has started.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from agentsim.errors import InputError
from agentsim.executors.base import Lost, Work

ALONE_S = 0.5
"""What is done within this time needs no other process; starting one takes about as long."""
AHEAD = 2
"""Numbers that a process holds at once, so that it never waits for the next."""
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(work: Work, numbers: Iterable[int], where: str) -> Generator[tuple[int, Any], None, None]:
    """Do the work in as many processes as `where` says; see `base.Run`."""
    if not where.isdecimal() or int(where) < 1:
        raise InputError(f"'{where}' workers; give a whole number over 0")
    rest, count = iter(numbers), int(where)
    end = time.monotonic() + ALONE_S
    for number in rest:
        yield number, work(number)
        if count > 1 and time.monotonic() > end:
            break
    yield from spread(work, rest, count)


def spread(work: Work, numbers: Iterator[int], count: int) -> Generator[tuple[int, Any], None, None]:
    """Do the work in `count` other processes. A process that ends takes one number with it."""
    answers: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
    again: list[int] = []
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            workers.append(_Worker(work, answers))
            _fill(workers[-1], numbers, again)
        while any(worker.held for worker in workers):
            worker, answer = answers.get()
            if answer is None:
                workers.remove(worker)
                if worker.held:
                    yield worker.held.popleft(), Lost(worker.end())
                again += worker.held
                worker = _Worker(work, answers)
                workers.append(worker)
            else:
                yield worker.take(answer)
            _fill(worker, numbers, again)
    finally:
        for worker in workers:
            worker.stop()


def _fill(worker: _Worker, numbers: Iterator[int], again: list[int]) -> None:
    while len(worker.held) < AHEAD:
        number = again.pop() if again else next(numbers, None)
        if number is None:
            return
        worker.give(number)


class _Worker:
    """A process, the numbers that it holds, and a thread that waits for its answers."""

    def __init__(self, work: Work, answers: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        paths = [PACKAGE, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.held: deque[int] = deque()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agentsim.executors._worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # an interrupt of the terminal is for the process that waits for it
        )
        assert self.process.stdin is not None
        self._send(work)
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def _send(self, thing: Any) -> None:
        assert self.process.stdin is not None
        try:
            pickle.dump(thing, self.process.stdin)
            self.process.stdin.flush()
        except OSError:  # it has ended; the thread that listens tells
            pass

    def _listen(self, answers: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        assert self.process.stdout is not None
        while True:
            try:
                answer = pickle.load(self.process.stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                answer = None
            answers.put((self, answer))
            if answer is None:
                return

    def give(self, number: int) -> None:
        self.held.append(number)
        self._send(number)

    def take(self, answer: tuple[int, Any, Exception | None]) -> tuple[int, Any]:
        number, result, error = answer
        self.held.remove(number)
        if error is not None:
            raise error
        return number, result

    def end(self) -> str:
        self.stop()
        code = self.process.returncode
        return f"its process ended, {f'killed by signal {-code}' if code < 0 else f'exit code {code}'}"

    def stop(self) -> None:
        code = self.process.poll()
        if code is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass


PLUGIN = run
