"""Which operators of a quantised file stay in float32, and what a user takes away of that: a .tflite file."""

from __future__ import annotations

import difflib
import functools
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_debug.errors import UsageError
from precision_debug.protocols import Handed
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta

from .engine.graph import Graph, read_graph
from .model import read_model
from .modes import Recipe
from .reasons import say
from .settings import setting

__all__ = ["LiteRtKeep", "find_places"]

_COMMON = ("litert_threads", "quantised_inputs")


@dataclass(frozen=True, kw_only=True)
class LiteRtKeep:
    """See protocols.Keep: operators are kept by the tensors that they make."""

    spec: SessionSpec
    unit: str = "operator"
    simulation: str = ""
    saves: tuple[str, ...] = ("save_tflite",)

    @classmethod
    def of(cls, spec: SessionSpec, recipe: Recipe) -> LiteRtKeep | None:
        """None where nothing of the file is quantised, or the mode computes in float32 anyhow. Raises ModelError."""
        if recipe.widened or not read_model(spec.model.model_file).real_numbers().by_name:
            return None
        return cls(spec=spec)

    def key_of(self, meta: TensorMeta) -> str:
        value = self._graph.named.get(meta.name)
        return meta.name if value is not None and value.place >= 0 else ""

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        kept: tuple[str, ...] = setting(self.spec.options, "keep_fp32")
        return {"keep_fp32": tuple(dict.fromkeys((*kept, *keys)))}

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], folder: Path, /) -> Sequence[Handed]:
        """Return the names for this tool, and a file that every LiteRT runs."""
        names = self.options(keys)["keep_fp32"]
        listed = json.dumps(list(names), ensure_ascii=False)
        wanted = setting(self.spec.options, "save_tflite")
        path = Path(wanted) if wanted else folder / f"{Path(self.spec.model.model_file).stem}.kept.tflite"
        common = {name: self.spec.options[name] for name in _COMMON if name in self.spec.options}
        return [
            Handed(
                kind="setting", title=core("named_for_this_tool", name="keep_fp32"),
                text=f"--run_mode {self.spec.mode} --option {shlex.quote(f'keep_fp32={listed}')}",
                mode=self.spec.mode, options={"keep_fp32": names},
            ),
            Handed(
                kind="model", title=say("handed_file"), path=str(path), mode=self.spec.mode, model=str(path),
                options=common, maker=self.spec.mode,
                maker_options={"keep_fp32": names, **common, "save_tflite": str(path)},
            ),
        ]  # fmt: skip

    @functools.cached_property
    def _graph(self) -> Graph:
        return read_graph(read_model(self.spec.model.model_file))


def find_places(graph: Graph, names: Collection[str]) -> frozenset[int]:
    """Return the operators that make these tensors. Raises UsageError for a name that the file does not have."""
    found = set()
    for name in names:
        value = graph.named.get(name)
        if value is None or value.place < 0:
            near = difflib.get_close_matches(name, list(graph.named), n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "give names of tensors"
            raise UsageError(f"no operator of the file makes a tensor {name}", where="--option keep_fp32", hint=hint)
        found.add(value.place)
    return frozenset(found)
