"""An executor calls the work once for each number, survives a process that ends, and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentsim.errors import InputError
from agentsim.executors import local
from agentsim.executors.base import Lost

HERE = Path(__file__).parent


def double(number):
    """Work that succeeds."""
    return 2 * number


def fatal(number):
    """Work that takes its process with it at one number."""
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def broken(number):
    """Work that raises at one number."""
    if number == 3:
        raise InputError("no three")
    return number


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.mark.parametrize("workers", ["1", "2", "5"])
@pytest.mark.parametrize("alone", [0.0, 60.0])
def test_each_number_is_done_once(workers, alone, monkeypatch):
    monkeypatch.setattr(local, "ALONE_S", alone)
    found = list(local.run(double, range(40), workers))
    assert sorted(found) == [(number, 2 * number) for number in range(40)]


def test_a_process_that_ends_costs_one_number():
    found = dict(local.spread(fatal, iter(range(30)), 2))
    assert found.pop(7) == Lost("its process ended, killed by signal 9")
    assert found == {number: number for number in range(30) if number != 7}


def test_work_that_raises_ends_all_and_leaves_no_process(monkeypatch):
    started = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])
    with pytest.raises(InputError, match="no three"):
        list(local.spread(broken, iter(range(30)), 2))
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_numbers_are_taken_as_they_are_needed():
    taken = []

    def numbers():
        for number in range(1000):
            taken.append(number)
            yield number

    results = local.spread(double, numbers(), 2)
    next(results)
    results.close()
    assert len(taken) <= 10


def test_what_the_work_prints_does_not_mix_with_its_answers():
    found = dict(local.spread(print, iter(range(5)), 1))
    assert found == dict.fromkeys(range(5))


@pytest.mark.parametrize("where", ["0", "-1", "two", ""])
def test_a_number_of_workers_is_a_whole_number_over_0(where):
    with pytest.raises(InputError, match="workers"):
        list(local.run(double, range(3), where))


def test_the_executors_start_without_the_packages_of_clusters():
    code = (
        "import sys, agentsim.executors.local; assert not {'distributed', 'dask', 'simpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=HERE.parent)
