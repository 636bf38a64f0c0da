"""The third kernel: the comparison of tensors on their CUDA device, by Triton, or by torch where that is missing.

Nothing here is imported before a backend's session has such tensors: these modules, and no others of the core, import
torch and triton at their top.
"""

from __future__ import annotations

__all__: list[str] = []
