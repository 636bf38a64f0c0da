"""Every run mode of a model in one table: what each costs in accuracy and what it brings in speed."""

from __future__ import annotations

from .result import Mode, Speed, Sweep, find_pareto_front
from .speed import measure_speed

__all__ = ["Mode", "Speed", "Sweep", "find_pareto_front", "measure_speed"]
