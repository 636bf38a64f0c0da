"""What makes torch.compile compute as eager does: inductor's options that decide numbers, and modules left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_debug.protocols import Remedy
from precision_debug.records import SessionSpec, TensorMeta

from ..settings import setting
from .inductor_options import options_of
from .keep_float32 import keep_outermost
from .layers import layer_of

__all__ = ["is_inside", "list_agreements"]

_ALONE = 3
"""Modules that are left out one by one."""

_MOST_LEFT_OUT = 0.5
"""Of the operators, what modules that are left out may run: beyond that it is no compiled model."""


@dataclass(frozen=True, kw_only=True)
class _Option:
    """value: as eager computes. narrow: of models in float16 or bfloat16 alone. device: where it is read, "" anywhere.
    cause: see Remedy."""

    name: str
    value: Any
    narrow: bool = False
    device: str = ""
    cause: str = ""


_OPTIONS = (
    _Option(name="emulate_precision_casts", value=True, narrow=True, cause="fewer_roundings"),
    _Option(name="keep_addmm_fused_for_half_dtypes", value=True, narrow=True),
    _Option(name="cpp.enable_unsafe_math_opt_flag", value=False, device="cpu"),
    _Option(name="cpp.enable_floating_point_contract_flag", value="off", device="cpu"),
    _Option(name="cpp.use_decompose_tanh", value=False, device="cpu"),
    _Option(name="use_fast_math", value=False, device="cuda"),
    _Option(name="eager_numerics.division_rounding", value=True, device="cuda"),
    _Option(name="eager_numerics.use_pytorch_libdevice", value=True, device="cuda"),
)
"""Of torch/_inductor/config.py of 2.13, those that change numbers in pointwise kernels. Which are not at eager's value
depends on the user and the environment; on a CPU that is the first alone, unless somebody changed them."""

_NARROW = {"float16", "bfloat16"}


def list_agreements(
    spec: SessionSpec, tensors: Sequence[TensorMeta], culprits: Sequence[Sequence[str]]
) -> tuple[Remedy, ...]:
    """Return each of inductor's options that is not as eager computes, all of them, the modules of the culprits.

    tensors: the baseline's; their types and modules.
    """
    options = _options(spec, tensors) if setting(spec.options, "compile_backend") == "inductor" else ()
    return (*options, *_modules(spec, tensors, culprits))


def _options(spec: SessionSpec, tensors: Sequence[TensorMeta]) -> Iterator[Remedy]:
    import torch
    from torch import _inductor

    known, before = set(_inductor.list_options()), dict(setting(spec.options, "inductor"))
    now = options_of(before)
    narrow = sorted({meta.dtype for meta in tensors} & _NARROW)
    chosen = setting(spec.options, "device")
    device = chosen.partition(":")[0] or ("cuda" if torch.cuda.is_available() else "cpu")
    fitting = [
        one for one in _OPTIONS
        if one.name in known and one.device in ("", device) and (narrow or not one.narrow)
        and now.get(one.name, _read_process_option(one.name)) != one.value
    ]  # fmt: skip
    for one in fitting:
        evidence = {"type": " and ".join(narrow)} if one.cause else {}
        yield _with(before, {one.name: one.value}, one.cause, evidence)
    if len(fitting) > 1:
        yield _with(before, {one.name: one.value for one in fitting}, "", {})


def _with(before: Mapping[str, str], more: Mapping[str, Any], cause: str, evidence: Mapping[str, str]) -> Remedy:
    pairs = {**before, **{name: str(value) for name, value in more.items()}}
    return Remedy(
        name=", ".join(f"{name}={value}" for name, value in more.items()),
        settings={"inductor": [f"{name}={value}" for name, value in pairs.items()]},
        text=f"model = torch.compile(model, options={options_of(pairs)})", cause=cause, evidence=evidence,
    )  # fmt: skip


def _read_process_option(name: str) -> Any:
    """Return what inductor's configuration says here, environment variables included."""
    from torch._inductor import config

    found: Any = config
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _modules(
    spec: SessionSpec, tensors: Sequence[TensorMeta], culprits: Sequence[Sequence[str]]
) -> Iterator[Remedy]:  # fmt: skip
    """Yield the modules of the first culprit, one by one and together, then those of all: run eagerly, beside what
    stays compiled."""
    left: tuple[str, ...] = setting(spec.options, "uncompiled")
    of = {meta.name: layer_of(meta) for meta in tensors if meta.op_type not in ("Input", "Output")}
    first, theirs = (
        [*dict.fromkeys(of[name] for names in blamed for name in names if of.get(name))]
        for blamed in (culprits[:1], culprits)
    )
    alone = [(one,) for one in first[:_ALONE]]
    for some in dict.fromkeys((*alone, tuple(keep_outermost(first)), tuple(keep_outermost(theirs)))):
        names = tuple(keep_outermost((*left, *some)))
        share = sum(is_inside(layer, names) for layer in of.values()) / max(1, len(of))
        if some and names != left and share <= _MOST_LEFT_OUT:
            yield Remedy(
                name=f"uncompiled={','.join(names)}", settings={"uncompiled": names}, text=_lines(spec, names),
                modules=names,
            )  # fmt: skip


def is_inside(layer: str, names: Collection[str]) -> bool:
    """Return whether a module is one of these, or in one."""
    return any(layer == name or layer.startswith(f"{name}.") for name in names)


def _lines(spec: SessionSpec, names: Sequence[str]) -> str:
    backend, options = setting(spec.options, "compile_backend"), options_of(setting(spec.options, "inductor"))
    how = f', backend="{backend}"' if backend != "inductor" else f", options={options}" if options else ""
    return (
        f"for part in map(model.get_submodule, {list(names)!r}):\n"
        "    part.forward = torch.compiler.disable(part.forward)\n"
        f"model = torch.compile(model{how})"
    )
