"""Which operators stay in FP32 in an engine, and what a user takes away of that: settings, trtexec's line, models."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from precision_debug.errors import PrecisionDebugError
from precision_debug.protocols import TF32_OFF, Handed, is_switch, without
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta

from .engine.versions import RTX, load_api
from .modes import Recipe
from .reasons import say
from .settings import SETTINGS, setting

__all__ = ["TensorRTKeep", "WeakKeep"]

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
        found: dict[str, Any] = {"tf32": False} if TF32_OFF in keys else {}
        if any(is_switch(key) and key != TF32_OFF for key in keys):
            for name in ("layer_precisions", "layer_output_types"):
                given = setting(self.spec.options, name)
                if low := _list_lower(given):
                    found[name] = {layer: kind for layer, kind in given.items() if layer not in low}
        nodes = [key for key in keys if not is_switch(key)]
        if nodes:
            kept: tuple[str, ...] = setting(self.spec.options, "keep_layers")
            found |= {"keep_layers": tuple(dict.fromkeys((*kept, *nodes))), "precision_constraints": "obey"}
        return found

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], folder: Path, /) -> Sequence[Handed]:
        model, mode, changed = self.spec.model.model_file, self.spec.mode, self.options(keys)
        names: tuple[str, ...] = changed.get("keep_layers", ())
        stem = Path(model).stem
        tf32_off = changed.get("tf32") is False
        layers = self._layers(names) if names else ()
        script = _API.format(names=list(layers)) if layers else ""
        script += _NO_TF32 if tf32_off else ""
        typed_options = " ".join(one.typed(changed[one.name]) for one in SETTINGS if one.name in changed)
        engine = self._place("save_engine", folder / f"{stem}.{self.recipe.precisions[0].lower()}.engine")
        typed = self._place("save_model", folder / f"{stem}.strong.onnx")
        if self.strong:
            return self._typed_road(names, engine, typed)
        handed = [
            Handed(
                kind="setting", title=core("for_this_tool"), note=say("handed_builds"),
                text=f"--run_mode {mode} {typed_options}",
            ),
            Handed(
                kind="model", title=say("handed_engine"), path=str(engine),
                mode="trt_engine", model=str(engine), maker=mode, maker_options={**changed, "save_engine": str(engine)},
                options={"plugins": setting(self.spec.options, "plugins")},
            ),
            Handed(
                kind="command", title="trtexec (TensorRT 8.6 to 10)", text=self._trtexec(layers, tf32_off),
                note=say("handed_trtexec_words"),
            ),
            Handed(
                kind="config", title=say("handed_api"), text=script,
                note=say("handed_script"),
            ),
        ]  # fmt: skip
        return [*handed, self._typed(names, typed)] if names else handed

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

    @property
    def strong(self) -> bool:
        """Whether the target's engine is typed strongly: by choice, or as this TensorRT has no other."""
        if self.recipe.edition == RTX or setting(self.spec.options, "typing") == "strong":
            return True
        with contextlib.suppress(PrecisionDebugError):
            return not load_api(self.recipe.edition).weakly_typed
        return False

    def _place(self, name: str, usual: Path) -> Path:
        wanted = setting(self.spec.options, name)
        return Path(wanted) if wanted else usual

    def _layers(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the layers of TensorRT's network that nodes become, by the names that trtexec knows them by; the
        nodes' own where there is no TensorRT here."""
        from .engine.kept import is_silent, map_nodes_to_layers
        from .engine.messages import Messages, make_logger
        from .engine.network import make_network
        from .model import OnnxModel, read_source

        with contextlib.suppress(PrecisionDebugError):
            source, api, messages = read_source(self.spec.model), load_api(self.recipe.edition), Messages()
            if isinstance(source, OnnxModel):
                made = make_network(api, make_logger(api.trt, messages), messages, source, strong=False)
                places = map_nodes_to_layers(source.model.proto.graph, made.network)
                layers = [made.network.get_layer(place) for node in nodes for place in places.get(node, ())]
                return tuple(dict.fromkeys(layer.name for layer in layers if not is_silent(layer)))
        return tuple(nodes)

    def _trtexec(self, names: Sequence[str], tf32_off: bool) -> str:
        layers = ",".join(f'"{name}":fp32' if set(name) & set(",:* ") else f"{name}:fp32" for name in names)
        flags = " ".join(_FLAGS[kind] for kind in self.recipe.precisions)
        begin = f"trtexec --onnx={shlex.quote(self.spec.model.model_file)} {flags}{' --noTF32' if tf32_off else ''}"
        if not names:
            return begin
        return (
            f"{begin} --precisionConstraints=obey"
            f" --layerPrecisions={shlex.quote(layers)} --layerOutputTypes={shlex.quote(layers)}"
        )

    def _typed(self, names: Sequence[str], path: Path) -> Handed:
        """Return a strongly typed ONNX: every precision is written into it by casts."""
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


@dataclass(frozen=True, kw_only=True)
class WeakKeep(TensorRTKeep):
    """Of a weakly typed network: see protocols.InRegions. Where types are written into the model, all are obeyed."""

    @property
    def switches(self) -> tuple[str, ...]:
        """TF32 off, where FP32 layers may compute in it; before that, the low precisions that the command asks for."""
        asked = _list_lower(setting(self.spec.options, "layer_precisions")) | _list_lower(
            setting(self.spec.options, "layer_output_types")
        )
        own = (without(" ".join(f"{name}:{kind}" for name, kind in asked.items())),) if asked else ()
        wanted = setting(self.spec.options, "tf32")
        tf32 = self.recipe.tf32 if wanted is None else wanted
        return (*own, TF32_OFF) if tf32 else own


def _list_lower(asked: Mapping[str, str]) -> dict[str, str]:
    """Of layers with a precision, those in a lower one than FP32."""
    return {name: kind for name, kind in asked.items() if kind not in ("FP32", "INT32")}


_NO_TF32 = "config.clear_flag(trt.BuilderFlag.TF32)\n"

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
