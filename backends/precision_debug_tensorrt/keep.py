"""Which operators stay in FP32 in an engine, and what a user takes away of that: settings, trtexec's line, models."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from precision_debug.errors import PrecisionDebugError
from precision_debug.protocols import Handed
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta

from .engine.versions import RTX, load_api
from .modes import Recipe
from .reasons import say
from .settings import setting

__all__ = ["TensorRTKeep"]

_SIMULATIONS = {"FP16": "ort_fp16_sim", "BF16": "ort_bf16_sim", "INT8": "ort_int8"}
_FLAGS = {"FP16": "--fp16", "BF16": "--bf16", "INT8": "--int8", "FP8": "--fp8"}


@dataclass(frozen=True, kw_only=True)
class TensorRTKeep:
    """See keeping.Keep. Weakly typed (8.6 to 10) by layer precisions and output types under obey, strongly typed
    (10 and 11) by casts in the graph: the setting keep_layers does either."""

    spec: SessionSpec
    recipe: Recipe
    unit: str = "operator"
    saves: tuple[str, ...] = ("save_engine", "save_model")

    @property
    def simulation(self) -> str:
        return next((_SIMULATIONS[kind] for kind in self.recipe.precisions if kind in _SIMULATIONS), "")

    def key_of(self, meta: TensorMeta) -> str:
        return meta.node

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        if not keys:
            return {}
        kept: tuple[str, ...] = setting(self.spec.options, "keep_layers")
        return {"keep_layers": tuple(dict.fromkeys((*kept, *keys))), "precision_constraints": "obey"}

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], folder: Path, /) -> Sequence[Handed]:
        model, mode, options = self.spec.model.model_file, self.spec.mode, self.options(keys)
        names: tuple[str, ...] = options["keep_layers"]
        stem = Path(model).stem
        script = _API.format(names=list(names))
        engine = self._place("save_engine", folder / f"{stem}.{self.recipe.precisions[0].lower()}.engine")
        typed = self._place("save_model", folder / f"{stem}.strong.onnx")
        if self._strong():
            return self._typed_road(names, engine, typed)
        handed = [
            Handed(
                kind="setting", title=core("for_this_tool"), note=say("handed_builds"),
                text=f"--run_mode {mode} --keep_layers {shlex.join(names)} --precision_constraints obey",
            ),
            Handed(
                kind="model", title=say("handed_engine"), path=str(engine),
                mode="trt_engine", model=str(engine), maker=mode, maker_options={**options, "save_engine": str(engine)},
                options={"plugins": setting(self.spec.options, "plugins")},
            ),
            Handed(
                kind="command", title="trtexec (TensorRT 8.6 to 10)", text=self._trtexec(names),
                note=say("handed_trtexec_words"),
            ),
            Handed(
                kind="config", title=say("handed_api"), text=script,
                note=say("handed_script"),
            ),
        ]  # fmt: skip
        return [*handed, self._typed(names, typed)]

    def _typed_road(self, names: tuple[str, ...], engine: Path, typed: Path) -> Sequence[Handed]:
        """Where the model's types are the only way to a precision: the session that builds the engine writes both."""
        mode, rtx = self.spec.mode, self.recipe.edition == RTX
        files = {"save_engine": str(engine), "save_model": str(typed)}
        kept = {"keep_layers": names, "precision_constraints": "obey"}
        tool = "tensorrt_rtx" if rtx else "trtexec"
        flag = " --stronglyTyped" if not rtx and setting(self.spec.options, "typing") == "strong" else ""
        return [
            Handed(
                kind="setting", title=core("for_this_tool"), note=say("handed_builds"),
                text=f"--run_mode {mode} --keep_layers {shlex.join(names)}",
            ),
            Handed(
                kind="model", title=say("handed_engine"), path=str(engine),
                mode="rtx_engine" if rtx else "trt_engine", model=str(engine), maker=mode,
                maker_options={**kept, **files}, options={"plugins": setting(self.spec.options, "plugins")},
            ),
            Handed(
                kind="model", title=say("handed_typed_only"), path=str(typed), mode="ort_opt", model=str(typed),
                note=say("handed_typed_here"),
            ),
            Handed(
                kind="command", title=tool, note=say("handed_typed_command"),
                text=f"{tool} --onnx={shlex.quote(str(typed))}{flag} --saveEngine={shlex.quote(str(engine))}",
            ),
        ]  # fmt: skip

    def _strong(self) -> bool:
        """Whether the target's engine is typed strongly: by choice, or as this TensorRT has no other."""
        if self.recipe.edition == RTX or setting(self.spec.options, "typing") == "strong":
            return True
        with contextlib.suppress(PrecisionDebugError):
            return not load_api(self.recipe.edition).weakly_typed
        return False

    def _place(self, name: str, usual: Path) -> Path:
        wanted = setting(self.spec.options, name)
        return Path(wanted) if wanted else usual

    def _trtexec(self, names: Sequence[str]) -> str:
        layers = ",".join(f'"{name}":fp32' if set(name) & set(",:* ") else f"{name}:fp32" for name in names)
        flags = " ".join(_FLAGS[kind] for kind in self.recipe.precisions)
        return (
            f"trtexec --onnx={shlex.quote(self.spec.model.model_file)} {flags} --precisionConstraints=obey"
            f" --layerPrecisions={shlex.quote(layers)} --layerOutputTypes={shlex.quote(layers)}"
        )

    def _typed(self, names: Sequence[str], path: Path) -> Handed:
        """A strongly typed ONNX: every precision is written into it by casts."""
        base = next((kind for kind in self.recipe.precisions if kind in ("FP16", "BF16")), "")
        title = say("handed_typed")
        if not base:
            return Handed(kind="model", title=title, note=say("handed_int8"))
        from precision_debug.onnx.model import read_model

        from .engine.casts import write_casts
        from .engine.strongly_typed import save_typed

        source = read_model(self.spec.model.model_file)
        try:
            written = write_casts(source.proto, base, dict.fromkeys(names, "FP32"), folder=source.folder)
            save_typed(replace(source, proto=written.proto), str(path))
        except PrecisionDebugError as error:
            return Handed(kind="model", title=title, note=f"could not be written: {error}")
        kept = (*written.regardless, *written.unfit)
        more = f"; these stay in FP32 too: {', '.join(kept[:4])}" if kept else ""
        # unfused: what is asked is whether the file holds, not whether ONNX Runtime's fusions do (1.23.2 refuses an
        # encoder of this kind in SimplifiedLayerNormFusion), and fusions would take out roundings that TensorRT makes
        return Handed(
            kind="model", title=title, path=str(path), mode="ort_fp32", model=str(path),
            note=f"run here by ONNX Runtime on the CPU, whose {base} sums are FP32{more}",
        )  # fmt: skip


_API = """\
keep = set({names})
config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
for layer in (network.get_layer(i) for i in range(network.num_layers)):
    if layer.name in keep:
        layer.precision = trt.float32
        for i in range(layer.num_outputs):
            if layer.get_output(i).dtype in (trt.float32, trt.float16):
                layer.set_output_type(i, trt.float32)
"""
