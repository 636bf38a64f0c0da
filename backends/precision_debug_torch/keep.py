"""Which modules stay in float32, and the wrapper that a user takes away."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from precision_debug.protocols import BETWEEN, WHOLE, Handed, is_line
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta

from .modes import Recipe
from .reasons import say
from .settings import setting

__all__ = ["PackedKeep", "TorchKeep", "packed_keep"]

_LINEAR = frozenset({"aten.addmm", "aten.mm", "aten.linear"})
"""What an nn.Linear runs, by its inputs' shapes."""


@dataclass(frozen=True, kw_only=True)
class TorchKeep:
    """See keeping.Keep. Modules by their paths; operators that the model's own forward calls go by BETWEEN, with all
    that is computed between modules; under autocast by the line of source that calls them ("model.py:57"), and with all
    of the model where nobody knows it."""

    spec: SessionSpec
    recipe: Recipe
    unit: str = "module"
    simulation: str = ""
    saves: tuple[str, ...] = ()

    def key_of(self, meta: TensorMeta) -> str:
        from .engine.layers import layer_of

        if self.recipe.change in ("int8", "fp8") and meta.op_type not in _LINEAR:  # nothing else is quantised
            return ""
        if layer := layer_of(meta):
            return layer
        if self.recipe.autocast:
            line = meta.extra.get("Source", "").partition(" ")[0]
            return line if is_line(line) else WHOLE
        return BETWEEN if self.recipe.dtype else WHOLE

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        kept: tuple[str, ...] = setting(self.spec.options, "keep_modules")
        return {"keep_modules": tuple(dict.fromkeys((*kept, *keys)))}

    def hand_over(self, keys: Sequence[str], tensors: Sequence[TensorMeta], folder: Path, /) -> Sequence[Handed]:
        from .engine.keep_float32 import keep_outermost
        from .engine.keep_lines import autocast_lines, float8_lines, low_lines, torchao_lines

        names: tuple[str, ...] = self.options(keys)["keep_modules"]
        lines = [name for name in names if is_line(name)]
        paths = keep_outermost("" if name == WHOLE else name for name in names if name not in (BETWEEN, *lines))
        paths += [BETWEEN] * (BETWEEN in names)
        listed = json.dumps(list(names), ensure_ascii=False)
        handed = [
            Handed(
                kind="setting", title=core("for_this_tool"), mode=self.spec.mode, options={"keep_modules": names},
                text=f"--run_mode {self.spec.mode} --option {shlex.quote(f'keep_modules={listed}')}",
            )
        ]  # fmt: skip
        if self.recipe.change == "fp8":  # of a training step, which no file of a model runs
            pasted = float8_lines(paths)
            return [*handed, Handed(kind="config", title=say("handed_float8"), text=pasted, note=say("handed_below"))]
        path = folder / f"{_source_of(self.spec.model.path)[0].stem}_kept.py"
        path.write_text(self._wrapper([*paths, *lines]), encoding="utf-8")
        title = text = ""
        if self.recipe.change == "int8":
            title, text = say("handed_filter"), torchao_lines(paths)
        elif self.recipe.autocast:
            title, text = say("handed_lines_autocast"), autocast_lines(paths, _sources(lines, tensors))
        elif self.recipe.dtype and not self.recipe.change:
            title, text = say("handed_lines"), low_lines(paths, self.recipe.dtype)
        if text:
            handed.append(Handed(kind="config", title=title, text=text, note=say("handed_below")))
        mode = self.spec.mode if self.recipe.autocast else "torch_fp32"
        return [
            *handed,
            Handed(
                kind="wrapper", title=say("handed_wrapper"), path=str(path),
                mode=mode, model=f"{path}:model", options={"device": setting(self.spec.options, "device")},
                note=say("handed_autocast") if self.recipe.autocast else say("handed_float32"),
            ),
        ]  # fmt: skip

    def _wrapper(self, paths: Sequence[str]) -> str:
        """Return a file of its own: what was judged, and the model that it is done to."""
        own = Path(__file__).with_name("engine") / "keep_float32.py"
        file, factory = _source_of(self.spec.model.path)
        values = {"file": str(file.resolve()), "factory": factory, "names": list(paths), "low": self.recipe.dtype}
        written = {key: repr(value) for key, value in values.items()}
        source = _SOURCE if factory else _FOLDER
        if self.recipe.change == "int8":
            return _INT8.format(source=source, **written)
        return own.read_text(encoding="utf-8") + _MODEL.format(source=source, **written)


@dataclass(frozen=True, kw_only=True)
class PackedKeep:
    """See keeping.Keep, of a quantised folder: modules by their paths, which get the original folder's weights."""

    spec: SessionSpec
    modules: frozenset[str]
    dynamic: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "module"
    simulation: str = ""
    saves: tuple[str, ...] = ()

    def key_of(self, meta: TensorMeta) -> str:
        from .engine.layers import layer_of

        layer = layer_of(meta)
        return layer if layer in self.modules else ""

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        kept: tuple[str, ...] = setting(self.spec.options, "keep_original")
        return {"keep_original": tuple(dict.fromkeys((*kept, *keys)))}

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], _folder: Path, /) -> Sequence[Handed]:
        """Return the names for this tool, and the options of the quantisers that they stand for.

        A quantiser's list names what the folder holds unpacked as well: with a list it may leave nothing else."""
        from .engine.saved_folder import list_left_unpacked

        names: tuple[str, ...] = self.options(keys)["keep_original"]
        source, named = setting(self.spec.options, "keep_from"), json.dumps(list(names), ensure_ascii=False)
        left = dict.fromkeys((*names, *list_left_unpacked(self.spec.model.path)))
        listed = json.dumps(list(left), ensure_ascii=False)
        skipped = json.dumps({f"-:{re.escape(name)}$": {} for name in left} | dict(self.dynamic))
        note = say("handed_quantiser")
        return [
            Handed(
                kind="setting", title=core("named_for_this_tool", name="keep_original"), mode=self.spec.mode,
                text=f"--run_mode {self.spec.mode} --option {shlex.quote(f'keep_original={named}')}"
                f" --option {shlex.quote(f'keep_from={source}')}",
                options={"keep_original": names, "keep_from": source},
            ),
            Handed(kind="config", title=say("handed_ignore"), text=f"ignore={listed}", note=note),
            Handed(kind="config", title=say("handed_not_convert"), text=f"modules_to_not_convert={listed}", note=note),
            Handed(kind="config", title=say("handed_dynamic"), text=f"dynamic={skipped}", note=note),
        ]  # fmt: skip


def packed_keep(spec: SessionSpec) -> PackedKeep | None:
    """Of a quantised folder, where the one that it was made of is named; None elsewhere. Raises ModelError."""
    if not Path(spec.model.path).is_dir() or not setting(spec.options, "keep_from"):
        return None
    from .engine.saved_folder import packed_folder

    packed = packed_folder(spec.model.path)
    return None if packed is None else PackedKeep(spec=spec, modules=packed.modules, dynamic=packed.dynamic)


def _sources(lines: Sequence[str], tensors: Sequence[TensorMeta]) -> list[str]:
    """Of lines of source, what stands there: "model.py:57 forward: y = torch.cumsum(x, -1)"."""
    known = {text.partition(" ")[0]: text for meta in tensors if (text := meta.extra.get("Source", ""))}
    return [known.get(line, line) for line in lines]


def _source_of(model: str) -> tuple[Path, str]:
    """Return the file and its factory, or the folder and ""."""
    file, _, factory = model.partition(".py:")
    return (Path(f"{file}.py"), factory) if factory else (Path(model), "")


_SOURCE = '''
def source() -> tuple[Any, Any]:
    """What FACTORY of FILE makes: the module in evaluation mode, and its example inputs, None where there are none."""
    import importlib.util
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(FILE).parent))
    spec = importlib.util.spec_from_file_location(Path(FILE).stem, FILE)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    made = getattr(loaded, FACTORY)()
    module, inputs = made if isinstance(made, tuple) else (made, None)
    return module.eval(), inputs


def narrowed(module: Any, low: Any) -> Any:
    """The module in a narrower type."""
    return module.to(low)
'''

_FOLDER = '''
def loaded(dtype: Any) -> Any:
    """The model of the folder FILE, which names its class, in evaluation mode."""
    import json
    from pathlib import Path

    import transformers

    named = json.loads((Path(FILE) / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    return getattr(transformers, named).from_pretrained(FILE, torch_dtype=dtype).eval()


def source() -> tuple[Any, Any]:
    """The model in float32; it brings no example inputs."""
    return loaded(torch.float32), None


def narrowed(_module: Any, low: Any) -> Any:
    """The model as it is loaded in a narrower type: what it computes while it is loaded may stay in float32."""
    return loaded(low)
'''

_INT8 = '''\
"""The model in int8 by torchao, but for some modules, which stay in float32. Needs torch and torchao."""

from typing import Any

import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

FILE, FACTORY, KEEP = {file}, {factory}, {names}

{source}

def model() -> Any:
    """The quantised module, and its example inputs where FACTORY gives some."""
    module, inputs = source()

    def low(part: Any, name: str) -> bool:
        kept = any(one in ("", name) or name.startswith(one + ".") for one in KEEP)
        inside = isinstance(part, torch.nn.modules.linear.NonDynamicallyQuantizableLinear)  # nn.MultiheadAttention's
        return isinstance(part, torch.nn.Linear) and not (kept or inside)

    quantize_(module, Int8DynamicActivationInt8WeightConfig(), filter_fn=low)
    return (module, inputs) if inputs is not None else module
'''

_MODEL = '''

FILE, FACTORY, KEEP, LOW = {file}, {factory}, {names}, {low}

{source}

def tensors(module: Any, name: str) -> list[tuple[str, Any]]:
    """Parameters and buffers by their names: of a module inside, or between all of them."""
    if name == BETWEEN:
        return [*list_between_tensors(module).items()]
    part = module.get_submodule(name)
    return [*part.named_parameters(), *part.named_buffers()]


def model() -> Any:
    """What FACTORY of FILE makes, in LOW ("": as it is, for autocast) but for KEEP, which stays in float32."""
    module, inputs = source()
    if LOW:
        exact = {{name: {{k: v.detach().clone() for k, v in tensors(module, name)}} for name in KEEP}}
        module = narrowed(module, getattr(torch, LOW))
        for name in KEEP:
            for own, tensor in tensors(module, name):
                tensor.data = exact[name][own]
    keep_in_float32(module, KEEP, getattr(torch, LOW) if LOW else None)
    if LOW and not {{"", BETWEEN}} & set(KEEP):
        low = getattr(torch, LOW)

        def narrow(value: Any) -> Any:
            return value.to(low) if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value

        def wide(value: Any) -> Any:
            return value.float() if isinstance(value, torch.Tensor) and value.dtype == low else value

        module.register_forward_pre_hook(lambda _, a, k: (tree_map(narrow, a), tree_map(narrow, k)), with_kwargs=True)
        module.register_forward_hook(lambda _, _a, output: tree_map(wide, output))
    return (module, inputs) if inputs is not None else module
'''
