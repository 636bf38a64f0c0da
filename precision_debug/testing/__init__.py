"""What a plugin tests itself with, in this repository or in another wheel: ``backend_contract``. Needs pytest."""

from __future__ import annotations

import pytest

__all__ = []  # its modules are imported by name

pytest.register_assert_rewrite(f"{__name__}.backend_contract")  # or a failed check would not show its values
