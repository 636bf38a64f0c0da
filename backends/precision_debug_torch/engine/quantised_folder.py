"""Folders whose weights a quantiser packed: read as documented, and unpacked to what their engines multiply with.

compressed-tensors (https://github.com/vllm-project/compressed-tensors, compressors/: weight_packed or weight of int8 or
float8, weight_scale, weight_zero_point), GPTQ (AutoGPTQ's qlinear: qweight, qzeros, scales, g_idx), AWQ (AutoAWQ's
WQLinear_GEMM: qweight, qzeros, scales), block-wise float8 (weight, weight_scale_inv) and torchao (its
prototype/safetensors: _weight_qdata, _weight_scale, _weight_zero_point, each weight's class in the file's head). None
of these packages is needed: a weight is its integers less the zero point, times the scale. transformers 4 writes
torchao's classes as pytorch_model.bin, which torch's unpickler for weights alone reads where torchao is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from precision_debug.errors import BackendUnavailable, ModelError

from ..reasons import say
from .torchao import quantization, what_is_missing

__all__ = ["Packed", "config_of", "is_pickled_by_torchao", "load_weight", "read_packed", "unpack_state"]

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight columns each four bits of an AWQ word hold."""

_PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx", "weight_scale_inv",
          "qweight", "qzeros", "scales", "g_idx", "weight", "input_scale", "input_zero_point",
          "weight_global_scale", "input_global_scale", "output_scale", "bias",
          "_weight_qdata", "_weight_scale", "_weight_zero_point", "_weight_act_pre_scale")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What a folder says of its quantisation. method: the quantiser's name. modules: paths whose weights are packed.

    activations: whether its engines quantise what these modules read, too. dynamic: GPTQModel's settings by pattern."""

    method: str
    modules: frozenset[str] = frozenset()
    activations: bool = False
    dynamic: Mapping[str, Any] = field(default_factory=dict)


def read_packed(config: Mapping[str, Any], folder: Path) -> Packed | None:
    """None of a folder that is not quantised. Raises ModelError of a quantiser that is not known here."""
    said = config.get("quantization_config") or config.get("compression_config")
    if not said:
        return None
    method = str(said.get("quant_method", ""))
    if method not in _UNPACK:
        known = ", ".join(_UNPACK)
        raise ModelError(f"is quantised by {method or 'an unnamed tool'}", where=str(folder), hint=f"known are {known}")
    if is_pickled_by_torchao(config, folder):
        names = {name.removesuffix(".weight") for name, one in _pickled(folder).items() if _is_packed(one)}
    else:
        names = {name.rpartition(".")[0] for _, name in _names(folder) if name.rpartition(".")[2] in _MARKS}
    groups = (said.get("config_groups") or {}).values()
    acts = any(group.get("input_activations") for group in groups) or method == "fp8"
    acts = acts or (method == "torchao" and "Activation" in json.dumps(said.get("quant_type")))
    dynamic = said.get("dynamic")
    return Packed(
        method=method, modules=frozenset(names), activations=acts, dynamic=dynamic if isinstance(dynamic, dict) else {}
    )


_MARKS = frozenset({"weight_packed", "weight_scale", "weight_scale_inv", "qweight", "_weight_qdata"})
"""Tensors of which each packed module has one."""


def _names(folder: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            yield from ((file, name) for name in opened.keys())  # noqa: SIM118


def load_weight(folder: Path, name: str) -> Any:
    """One tensor of a folder. Raises ModelError where it has none of that name."""
    for file, one in _names(folder):
        if one == name:
            with safe_open(file, "pt") as opened:
                return opened.get_tensor(name)
    raise ModelError(f"has no tensor {name}", where=str(folder), hint="name the folder that was quantised")


def unpack_state(config: Mapping[str, Any], packed: Packed, folder: Path) -> dict[str, Any]:
    """Return every tensor of the folder by its name, packed weights in float32. Raises ModelError."""
    if is_pickled_by_torchao(config, folder):
        return {name: one.dequantize().float() if _is_packed(one) else one for name, one in _pickled(folder).items()}
    said = config.get("quantization_config") or config.get("compression_config") or {}
    parts: dict[str, dict[str, Any]] = {module: {} for module in packed.modules}
    state: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            heads = opened.metadata() or {}
            for module, held in parts.items():
                if packed.method == "torchao" and f"{module}.weight" in heads:
                    held["class"] = json.loads(heads[f"{module}.weight"])["_type"]
            for name in opened.keys():  # noqa: SIM118
                module, _, part = name.rpartition(".")
                own = module in parts and part in _PARTS and part != "bias"
                (parts[module] if own else state)[part if own else name] = opened.get_tensor(name)
    for module, own in parts.items():
        try:
            state[f"{module}.weight"] = _UNPACK[packed.method](own, said)
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            what = f"{module} cannot be unpacked as {packed.method} ({type(error).__name__}: {error})"
            raise ModelError(what, where=str(folder)) from error
    return state


def _unpack_bits(words: Any, bits: int, order: Sequence[int] | None = None) -> Any:
    """int32 words along the last axis to the unsigned numbers that they hold, lowest bits first."""
    if bits not in (2, 4, 8):
        raise ValueError(f"{bits} bits a number")
    each = 32 // bits
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    found = (words.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    if order is not None:
        back = torch.empty_like(found)
        back[..., list(order)] = found
        found = back
    return found.reshape(*words.shape[:-1], words.shape[-1] * each)


def _apply_scale(numbers: Any, scale: Any, zero: Any, groups: Any = None) -> Any:
    """(numbers - zero) * scale, each scale over its rows and stretch of columns. groups: a column's, by number."""
    rows, columns = numbers.shape

    def spread(one: Any) -> Any:
        one = one.float()
        one = one.reshape(1, 1) if one.numel() == 1 else one.reshape(one.shape[0], -1)
        if one.shape[0] not in (1, rows):
            one = one.repeat_interleave(-(-rows // one.shape[0]), 0)[:rows]
        if groups is not None and one.shape[1] > 1:
            return one[:, groups.long()]
        if one.shape[1] not in (1, columns):
            one = one.repeat_interleave(-(-columns // one.shape[1]), 1)[:, :columns]
        return one

    plain = numbers.float()
    return (plain if zero is None else plain - spread(zero)) * spread(scale)


def _unpack_compressed_tensors(own: Mapping[str, Any], said: Mapping[str, Any]) -> Any:
    zero, groups = own.get("weight_zero_point"), own.get("weight_g_idx")
    groups = None if groups is None or bool((groups < 0).any()) else groups
    if "weight_packed" not in own:
        return _apply_scale(own["weight"], own["weight_scale"], zero, groups)
    rows, columns = (int(one) for one in own["weight_shape"])
    bits = _find_weight_bits(said, own["weight_packed"].shape[1], columns)
    middle = 1 << (bits - 1)
    numbers = _unpack_bits(own["weight_packed"], bits)[:, :columns] - middle
    if zero is not None and zero.dtype == torch.int32:
        zero = _unpack_bits(zero.t().contiguous(), bits).t()[:rows] - middle
    return _apply_scale(numbers, own["weight_scale"], zero, groups)


def _find_weight_bits(said: Mapping[str, Any], words: int, columns: int) -> int:
    """Of the scheme that fits a packed weight's width: a folder may have several."""
    schemes = [group["weights"]["num_bits"] for group in (said.get("config_groups") or {}).values()]
    fits = [int(bits) for bits in schemes if -(-columns * int(bits) // 32) == words]
    if not fits:
        raise ValueError(f"{words} words hold {columns} columns of none of its schemes")
    return fits[0]


def _unpack_gptq(own: Mapping[str, Any], said: Mapping[str, Any]) -> Any:
    bits = int(said["bits"])
    numbers = _unpack_bits(own["qweight"].t().contiguous(), bits)  # [outputs, inputs]
    zero = _unpack_bits(own["qzeros"], bits) + (
        said.get("checkpoint_format", "gptq") == "gptq"
    )  # which stores one less
    groups = own.get("g_idx")
    if groups is None:
        groups = torch.arange(numbers.shape[1]) // (numbers.shape[1] // own["scales"].shape[0])
    return _apply_scale(numbers, own["scales"].t(), zero.t(), groups)


def _unpack_awq(own: Mapping[str, Any], said: Mapping[str, Any]) -> Any:
    bits = int(said.get("bits", said.get("w_bit", 4)))
    if bits != 4:
        raise ValueError(f"{bits} bits a number")
    numbers, zero = (_unpack_bits(own[name], bits, _AWQ_ORDER).t() for name in ("qweight", "qzeros"))
    return _apply_scale(numbers, own["scales"].t(), zero)


def _unpack_fp8(own: Mapping[str, Any], said: Mapping[str, Any]) -> Any:
    scale = own.get("weight_scale_inv", own.get("weight_scale"))
    high, wide = said.get("weight_block_size") or (0, 0)
    if scale.numel() > 1 and high:  # the last block may be cut off
        rows, columns = own["weight"].shape
        scale = scale.repeat_interleave(high, 0)[:rows].repeat_interleave(wide, 1)[:, :columns]
    return _apply_scale(own["weight"], scale, None)


def _unpack_torchao(own: Mapping[str, Any], _said: Mapping[str, Any]) -> Any:
    kind, scale, zero = own["class"], own["_weight_scale"], own.get("_weight_zero_point")
    if own.get("_weight_act_pre_scale") is not None or kind not in _TORCHAO:
        known = ", ".join(_TORCHAO)
        raise ValueError(f"its class {kind} is laid out for one kind of device; known are {known}")
    if kind != "Int4Tensor":
        return _apply_scale(own["_weight_qdata"], scale, zero)
    held = own["_weight_qdata"].to(torch.int8)  # two numbers a byte, lowest bits first, two's complement
    numbers = torch.stack([(held << 4) >> 4, held >> 4], -1).reshape(held.shape[0], -1)
    middle = own["_weight_zero_point"].t()  # what 0 stands for
    return _apply_scale(numbers, scale.t(), None) + _apply_scale(torch.ones_like(numbers), middle, None)


_TORCHAO = ("Int8Tensor", "IntxUnpackedToInt8Tensor", "Float8Tensor", "Int4Tensor")


def is_pickled_by_torchao(config: Mapping[str, Any], folder: Path) -> bool:
    """Return whether torchao's weights are in no safetensors: transformers 4 writes most of its types so."""
    said = config.get("quantization_config") or {}
    pickled = isinstance(said, dict) and said.get("quant_method") == "torchao"
    return pickled and not any(folder.glob("*.safetensors")) and any(folder.glob("pytorch_model*.bin"))


def _pickled(folder: Path) -> dict[str, Any]:
    """Return what is in pytorch_model.bin, by the unpickler that makes tensors of known classes alone.

    Raises BackendUnavailable without torchao, ModelError."""
    if missing := what_is_missing():
        what = say("pickled_by_torchao")
        raise BackendUnavailable(what, where=str(folder), hint=missing)
    quantization()  # which makes its classes known to that unpickler
    state: dict[str, Any] = {}
    for file in sorted(folder.glob("pytorch_model*.bin")):
        try:
            state |= torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(f"cannot be read without running code ({text})", where=str(file)) from error
    return state


def _is_packed(tensor: Any) -> bool:
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter) and hasattr(tensor, "dequantize")


_UNPACK: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Any]] = {
    "compressed-tensors": _unpack_compressed_tensors, "gptq": _unpack_gptq, "awq": _unpack_awq, "fp8": _unpack_fp8,
    "torchao": _unpack_torchao,
}  # fmt: skip


def config_of(folder: Path) -> dict[str, Any]:
    """Return what a folder's config.json says. Raises what reading it raises."""
    found: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return found
