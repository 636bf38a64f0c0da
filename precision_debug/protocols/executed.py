"""In which precision a session's operators really ran, as the engine shows it and not as it was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Executed", "PrecisionReader"]


@dataclass(frozen=True, kw_only=True)
class Executed:
    """Of ``of`` operators (or fused layers) that compute on floats, ``low`` ran in the mode's low precision.

    precision: the low one, as people write it ("BF16", "INT8").
    """

    low: int
    of: int
    precision: str


class PrecisionReader(Protocol):
    """A backend that knows more of its sessions than their layers and their tensors' types tell; by its capability."""

    def executed(self, session: Session) -> tuple[int, int] | None:
        """Operators in low precision, and all that compute on floats, of a session that has run; None: not known."""
