"""What the user asks of several workers, beside the comparison."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Spread"]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """jobs: workers; 0: as many as the cluster has room for. engine: "" for child processes, or "ray".

    address: of a Ray cluster, "" starts one here. gpus: of each worker. checkpoint: a file of finished parts, which a
    later command goes on from.
    """

    jobs: int = 0
    engine: str = ""
    address: str = ""
    gpus: float = 0.0
    checkpoint: str = ""
