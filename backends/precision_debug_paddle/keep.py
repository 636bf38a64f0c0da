"""Which operators stay in FP32, as Paddle's configuration takes it: by type, and in TensorRT by names of outputs."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_debug.errors import PrecisionDebugError
from precision_debug.protocols import Handed
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta
from precision_debug.safety.untrusted import make_visible

from .engine.bfloat16 import list_all_but, list_lowered_names
from .engine.pir_program import PirProgram
from .model import read_model
from .modes import Recipe
from .reasons import say
from .settings import setting

__all__ = ["NO_OPERATOR", "PaddleKeep", "PirKeep", "TensorRTKeep", "count_types"]

NO_OPERATOR = "(none)"
"""A type that no operator has: a list of those that may run in BF16 must not be empty, which would mean all."""


@dataclass(frozen=True, kw_only=True)
class PaddleKeep:
    """See keeping.Keep. types: every operator type of the program. A type goes as a whole: Paddle keeps no less."""

    spec: SessionSpec
    recipe: Recipe
    types: Mapping[str, int]
    simulation: str = ""
    saves: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return "operator type"

    def key_of(self, meta: TensorMeta) -> str:
        kind = meta.op_type.partition(":")[0]
        if kind in self.types and self.recipe.onednn:
            return kind if list_lowered_names(kind) else ""  # the others run in FP32 as it is
        return kind if kind in self.types else ""

    @property
    def _name(self) -> str:
        return "bfloat16_ops" if self.recipe.onednn else "disable_mixed_precision_ops"

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        kept: tuple[str, ...] = setting(self.spec.options, self._name)
        if self._name != "bfloat16_ops":
            return {self._name: tuple(dict.fromkeys((*kept, *keys)))} if kept or keys else {}
        left = list_all_but(keys, kept)
        return {self._name: left or (NO_OPERATOR,)} if keys or kept else {}

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], _folder: Path, /) -> Sequence[Handed]:
        names: tuple[str, ...] = self.options(keys)[self._name]
        listed = json.dumps(list(names), ensure_ascii=False)
        along = ", ".join(f"{kind}: all {self.types[kind]} of them" for kind in keys if kind in self.types)
        return [
            Handed(
                kind="setting", title=core("for_this_tool"), mode=self.spec.mode, options={self._name: names},
                note=along,
                text=f"--run_mode {self.spec.mode} --option {shlex.quote(f'{self._name}={listed}')}",
            ),
            Handed(
                kind="config", title=say("handed_config"), text=self._snippet(names, keys),
                note=say("handed_pasted"),
            ),
        ]  # fmt: skip

    def _files(self) -> tuple[str, str]:
        """Return the program and its parameters; of one that is gone, as they were named."""
        try:
            model = read_model(self.spec.model)
        except PrecisionDebugError:
            return self.spec.model.model_file, self.spec.model.params_file
        return str(model.file), str(model.params)

    def _snippet(self, names: Sequence[str], keys: Sequence[str]) -> str:
        chosen = repr(sorted(names))
        if self._name == "bfloat16_ops":
            program, params = self._files()
            rest = make_visible(", ".join(keys))  # on the line of its remark
            return _ONEDNN.format(program=program, params=params, chosen=chosen, rest=rest)
        return f"config.exp_disable_mixed_precision_ops(set({chosen}))"


@dataclass(frozen=True, kw_only=True)
class TensorRTKeep(PaddleKeep):
    """See keeping.Keep and keeping.InRegions: single operators of an engine, by the names of their outputs.

    TensorRT fuses what it gets from Paddle, and each set takes a build."""

    switches: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return "operator"

    def key_of(self, meta: TensorMeta) -> str:
        return meta.name

    @property
    def _name(self) -> str:
        return "disable_tensorrt_half_ops"

    def _snippet(self, names: Sequence[str], _keys: Sequence[str]) -> str:
        return f"paddle.inference.InternalUtils.disable_tensorrt_half_ops(config, set({sorted(names)!r}))"


_ONEDNN = """\
from paddle.inference import Config, create_predictor

config = Config({program!r}, {params!r})
known = "onednn" if hasattr(config, "enable_onednn") else "mkldnn"  # as Paddle 2 calls it
getattr(config, f"enable_{{known}}")()
getattr(config, f"enable_{{known}}_bfloat16")()
config.set_bfloat16_op(set({chosen}))  # all but {rest}
predictor = create_predictor(config)
"""


@dataclass(frozen=True, kw_only=True)
class PirKeep:
    """See keeping.Keep: of a PIR program under oneDNN, whose passes ask nobody: single operators, by what they give.

    names: of the values whose operators can be kept.
    """

    spec: SessionSpec
    names: frozenset[str]
    unit: str = "operator"
    simulation: str = ""
    saves: tuple[str, ...] = ()

    def key_of(self, meta: TensorMeta) -> str:
        return meta.name if meta.name in self.names else ""

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        kept: tuple[str, ...] = setting(self.spec.options, "keep_operators")
        names = tuple(dict.fromkeys((*kept, *keys)))
        return {"keep_operators": names} if names else {}

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], folder: Path, /) -> Sequence[Handed]:
        """Return the names for this tool, and the program that was judged with its parameters, for Paddle as it is."""
        names: tuple[str, ...] = self.options(keys)["keep_operators"]
        listed = json.dumps(list(names), ensure_ascii=False)
        model = read_model(self.spec.model)
        path = folder / f"{model.file.stem}.kept.json"
        if isinstance(model.program, PirProgram):
            model.program.with_kept(names, path)
        shutil.copyfile(model.params, path.with_suffix(".pdiparams"))
        return [
            Handed(
                kind="setting", title=core("for_this_tool"), mode=self.spec.mode, options={"keep_operators": names},
                text=f"--run_mode {self.spec.mode} --option {shlex.quote(f'keep_operators={listed}')}",
            ),
            Handed(kind="model", title=say("handed_pir"), path=str(path), mode=self.spec.mode, model=str(path)),
        ]  # fmt: skip


def count_types(values: Sequence[Any]) -> dict[str, int]:
    """Return how many operators of each type a program has."""
    counted = Counter(value.op_type.partition(":")[0] for value in values)
    return {kind: number for kind, number in counted.items() if kind}
