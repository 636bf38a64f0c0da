"""What of a model vLLM can compute in float32 where the rest is narrower: its head, and what a user takes away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_debug.protocols import Handed
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta

from .reasons import say

__all__ = ["VllmKeep"]

_HEAD = "lm_head"


@dataclass(frozen=True, kw_only=True)
class VllmKeep:
    """See protocols.Keep. The engine holds all other modules in one type."""

    spec: SessionSpec
    unit: str = "module"
    simulation: str = ""
    saves: tuple[str, ...] = ()

    def key_of(self, meta: TensorMeta) -> str:
        """The baseline's tensors bear the names of vLLM's, or of transformers' modules with an operator
        behind."""
        return _HEAD if meta.name.partition("/")[0] == _HEAD else ""

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        return {"head_fp32": "on"} if _HEAD in keys else {}

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], _folder: Path, /) -> Sequence[Handed]:
        """Return the setting for this tool, and the option of vLLM that it stands for."""
        if _HEAD not in keys:
            return []
        options = self.options(keys)
        return [
            Handed(
                kind="setting", title=core("named_for_this_tool", name="head_fp32"),
                text=f"--run_mode {self.spec.mode} --option head_fp32=on", mode=self.spec.mode, options=options,
            ),
            Handed(
                kind="command", title=say("handed_head"), note=say("handed_not_run"),
                text="""--hf-overrides '{"head_dtype": "float32"}'""",
            ),
        ]  # fmt: skip
