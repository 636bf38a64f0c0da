"""Every run mode of a model in one table: what each costs in accuracy and what it brings in speed."""

from __future__ import annotations

from .result import Mode, Speed, Sweep, front
from .speed import measure_speed

__all__ = ["Mode", "Speed", "Sweep", "front", "measure_speed"]
