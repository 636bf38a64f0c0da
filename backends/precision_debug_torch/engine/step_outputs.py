"""What a training step gives, whose parts have names of their own."""

from __future__ import annotations

from typing import Any

__all__ = ["StepOutputs"]


class StepOutputs(dict[str, Any]):
    """What a step made, by name: "loss", "gradient/<parameter>" (unscaled, before it is clipped), and after an
    optimiser "update/<parameter>" (after less before) and "state/<parameter>/<key>".

    skipped: GradScaler found NaN or Inf in a gradient, and left the optimiser's step out.
    """

    skipped = False
