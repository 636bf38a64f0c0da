"""What other viewers show of a report: each module writes the files of one."""

from __future__ import annotations

__all__: list[str] = []
