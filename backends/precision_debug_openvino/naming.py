"""What OpenVINO's ports and operators are called here: by the source model's names, and the same in every session.

A port has the tensor names that its importer gave it. What an importer made out of one source operator has none, and
an operator's name with a number that counts over the whole process ("ShapeOf_33"): that one is called after the tensor
that it is computed for ("gap_out/ShapeOf").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["dtype_of", "name_operators", "numpy_name", "port_name", "shape_of"]

_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "boolean": "bool", "string": "str",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}  # fmt: skip


def numpy_name(kind: str) -> str:
    """Return numpy's name of an element type in OpenVINO's words ("f32"); those that numpy does not have, as they
    are."""
    return _DTYPES.get(kind, kind)


def dtype_of(port: Any) -> str:
    """Return numpy's name of a port's element type."""
    return numpy_name(port.get_element_type().get_type_name())


def shape_of(port: Any) -> tuple[int | str, ...] | None:
    """Return a port's shape as InputMeta has it; None where not even its rank is known."""
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(dim.get_length() if dim.is_static else f"dim{place}" for place, dim in enumerate(shape))


def port_name(port: Any) -> str:
    """Return the source model's name of a tensor, else its operator's, with the port's number where it has several."""
    names = port.get_names()
    node = port.get_node()
    own = str(node.get_friendly_name())
    if own in names:
        return own
    if names:
        return str(min(names))
    return own if len(node.outputs()) == 1 else f"{own}.{port.get_index()}"


def name_operators(ops: Sequence[Any], taken: set[str], prefix: str = "") -> None:
    """Give each operator a name that no other has, bodies of loops and branches included, and that stays.

    ops: of one graph, in execution order. taken: names of the others; filled. prefix: of the body that they are in.
    """
    heirs: dict[str, str] = {}
    renamed = []
    for op in reversed(ops):
        own, kind = str(op.get_friendly_name()), str(op.get_type_name())
        names = {name for port in op.outputs() for name in port.get_names()}
        readers = sorted(
            str(target.get_node().get_friendly_name()) for port in op.outputs() for target in port.get_target_inputs()
        )
        heir = min(names) if names else next((heirs[reader] for reader in readers if reader in heirs), prefix)
        numbered = re.fullmatch(rf"{kind}_\d+" if names else r"[A-Z][A-Za-z0-9]*_\d+", own) is not None
        heirs[own] = heir
        if numbered and (names or heir):
            renamed.append((op, f"{heir}/{kind}"))
        elif own in taken:
            renamed.append((op, f"{prefix}/{own}" if prefix else own))
        taken.add(own)
    for op, wanted in renamed:  # after all others have theirs
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}.{number}"
        taken.add(name)
        op.set_friendly_name(name)
