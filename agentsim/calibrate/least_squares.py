"""Bounded least squares: Levenberg-Marquardt with numerical derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_STEP = 0.04
"""Step of the derivatives, in the logarithm of a constant."""
_DAMPINGS = (0.1, 1.0, 10.0, 100.0)
_LEAST, _MOST = 1e-4, 1e4
_CONVERGED = 1e-3


class Solution(NamedTuple):
    """The point found, and the sum of squares there."""

    point: Array
    cost: float


def solve(
    residuals: Callable[[Array], Array], start: Array, low: Array, high: Array, rounds: int
) -> Solution:
    """Return a local minimum of the sum of squared residuals inside the bounds.

    Stops when a round gains less than a thousandth, or after `rounds`.
    """
    point, damping = np.clip(start, low, high), 1.0
    at = residuals(point)
    cost = float(at @ at)
    for _ in range(rounds):
        slope = _jacobian(residuals, point)
        gram, gradient = slope.T @ slope, slope.T @ at
        tried = [np.clip(point - _step(gram, gradient, damping * factor), low, high) for factor in _DAMPINGS]
        found = [residuals(trial) for trial in tried]
        costs = [float(r @ r) for r in found]
        best = int(np.argmin(costs))
        gained = cost - costs[best]
        if gained <= 0:
            break
        point, at, cost = tried[best], found[best], costs[best]
        damping = min(max(damping * _DAMPINGS[best], _LEAST), _MOST)
        if gained < _CONVERGED * cost:
            break
    return Solution(point, cost)


def _jacobian(residuals: Callable[[Array], Array], point: Array) -> Array:
    steps = _STEP * np.eye(len(point))
    columns = [(residuals(point + step) - residuals(point - step)) / (2 * _STEP) for step in steps]
    return np.array(columns).T


def _step(gram: Array, gradient: Array, damping: float) -> Array:
    return np.asarray(np.linalg.solve(gram + damping * np.diag(gram.diagonal() + 1e-6), gradient))


def damped(residual: Array, width: float) -> Array:
    """Return residuals whose squares grow as a logarithm beyond `width`: outliers hardly pull (Cauchy)."""
    return np.asarray(np.sign(residual) * width * np.sqrt(np.log1p((residual / width) ** 2)))
