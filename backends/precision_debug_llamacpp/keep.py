"""Which weights of a quantised file stay in float32, and what a user takes away of that: a .gguf file, or options."""

from __future__ import annotations

import difflib
import functools
import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError, UsageError
from precision_debug.protocols import Handed
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta

from .engine.file import GgufFile, Weight
from .model import read_model
from .modes import Recipe
from .reasons import say
from .settings import setting

__all__ = ["LlamaCppKeep", "find_counterpart", "find_weights"]

_COMMON = ("llama_threads", "flash_attention", "kv_cache", "repack")


@dataclass(frozen=True, kw_only=True)
class LlamaCppKeep:
    """See protocols.Keep: operators are kept by the weight that they read."""

    spec: SessionSpec
    unit: str = "operator"
    simulation: str = ""
    saves: tuple[str, ...] = ("save_gguf",)

    @classmethod
    def of(cls, spec: SessionSpec, recipe: Recipe) -> LlamaCppKeep | None:
        """None where every weight is in float32. Raises ModelError."""
        found = cls(spec=spec)
        return None if recipe.widened or not found._narrow else found

    def key_of(self, meta: TensorMeta) -> str:
        name = f"{meta.node}.weight"
        return name if meta.node and name in self._narrow else ""

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        kept: tuple[str, ...] = setting(self.spec.options, "keep_fp32")
        return {"keep_fp32": tuple(dict.fromkeys((*kept, *keys)))}

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], folder: Path, /) -> Sequence[Handed]:
        """Return the names for this tool, a file that every llama.cpp runs, and options for llama-quantize."""
        names = self.options(keys)["keep_fp32"]
        listed = json.dumps(list(names), ensure_ascii=False)
        wanted = setting(self.spec.options, "save_gguf")
        path = Path(wanted) if wanted else folder / f"{Path(self.spec.model.model_file).stem}.kept.gguf"
        common = {name: self.spec.options[name] for name in _COMMON if name in self.spec.options}
        source = {name: self.spec.options[name] for name in ("keep_from",) if name in self.spec.options}
        return [
            Handed(
                kind="setting", title=core("named_for_this_tool", name="keep_fp32"),
                text=f"--run_mode {self.spec.mode} --option {shlex.quote(f'keep_fp32={listed}')}"
                + "".join(f" --option {shlex.quote(f'{key}={value}')}" for key, value in source.items()),
                mode=self.spec.mode, options={"keep_fp32": names, **source},
            ),
            Handed(
                kind="model", title=say("handed_file"), path=str(path), mode=self.spec.mode, model=str(path),
                options=common, maker=self.spec.mode,
                maker_options={"keep_fp32": names, **source, **common, "save_gguf": str(path)},
            ),
            Handed(
                kind="command", title=say("handed_quantize"), note=say("handed_not_run"),
                text=" ".join(
                    f"--tensor-type {shlex.quote(re.escape(name.removesuffix('.weight')) + '=f32')}" for name in names
                ),
            ),
        ]  # fmt: skip

    @functools.cached_property
    def _narrow(self) -> frozenset[str]:
        weights = read_model(self.spec.model.model_file).weights
        return frozenset(name for name, one in weights.items() if one.kind)


def find_weights(model: GgufFile, names: Collection[str]) -> tuple[str, ...]:
    """Raises UsageError for a name that the file does not have."""
    for name in names:
        if name not in model.weights:
            near = difflib.get_close_matches(name, list(model.weights), n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "use names of the file's weights"
            raise UsageError(f"the file has no weight {name}", where="--option keep_fp32", hint=hint)
    return tuple(names)


def find_counterpart(model: GgufFile, weight: Weight) -> Weight:
    """Return the weight of the same name. Raises ModelError where it is another one's."""
    found = model.weights.get(weight.name)
    if found is None or found.shape != weight.shape:
        raise ModelError(f"it has no {weight.name} of shape {list(weight.shape)}", where=model.path)
    return found
