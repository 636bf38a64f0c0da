"""The inputs of a Python function, by what its signature tells: names, and what they are called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from ..records import InputMeta

__all__ = ["inputs_of"]

_INDICES = re.compile(r"(^|_)(ids?|tokens?|mask|positions?|types?|index|indices)$|^(src|tgt|text)$", re.IGNORECASE)
_LOOKED_UP = re.compile(r"^((?!type|position|mask).)*(ids?|tokens?)$|^(src|tgt|text)$", re.IGNORECASE)
_FLAGS = re.compile(r"key_padding_mask$", re.IGNORECASE)
"""torch's own name of a mask, which it takes as flags."""
_TENSOR = re.compile(r"tensor|array", re.IGNORECASE)

_NO_SHAPES: Mapping[str, tuple[int | str, ...]] = MappingProxyType({})


def inputs_of(
    signature: inspect.Signature,
    *,
    table: int | None = None,
    needed: Collection[str] = (),
    shapes: Mapping[str, tuple[int | str, ...]] = _NO_SHAPES,
) -> tuple[InputMeta, ...]:
    """An input for each parameter that may be a tensor; those with a default are optional, unless they are ``needed``.

    table: rows of the table that the function looks token ids up in; None: it looks nothing up, and every input is
    taken for a float. shapes: what is known of shapes besides.

    Types and shapes are guesses: an array that is given keeps its own.
    """
    found = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        optional = parameter.default is not parameter.empty and name not in needed
        if optional and not _may_be_a_tensor(parameter):
            continue
        whole = table is not None and _INDICES.search(name) is not None
        kind = "bool" if _FLAGS.search(name) else "int64" if whole else "float32"
        found.append(
            InputMeta(
                name=name, dtype=kind, shape=shapes.get(name), optional=optional,
                limit=table if whole and _LOOKED_UP.search(name) else None, guessed=True,
            )
        )  # fmt: skip
    return tuple(found)


def _may_be_a_tensor(parameter: inspect.Parameter) -> bool:
    """Of one with a default: None, annotated as a tensor or not at all."""
    if parameter.default is not None:
        return False
    return parameter.annotation is parameter.empty or _TENSOR.search(str(parameter.annotation)) is not None
