"""The third kernel: the comparison of tensors on their CUDA device, by the driver alone.

``device`` and what it needs (``driver``, ``ptx``, ``answer``) know pointers; ``compare``, ``describe`` and ``plain``
take torch tensors, and no other modules of the core import torch at their top. Nothing here is imported before a
backend's session has tensors on a device.
"""

from __future__ import annotations

__all__: list[str] = []
