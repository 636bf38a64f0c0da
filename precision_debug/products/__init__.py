"""What a comparison does not need: every folder is a product, which the core finds and works without."""

from __future__ import annotations

__all__: list[str] = []
