"""Operators of a PIR program that stay in float32 under oneDNN's bfloat16: the program is written so that they must.

The passes over a PIR program ask nobody which operators may run in bfloat16. Two kinds they leave alone
(cpu_bfloat16_placement_pass.cc and onednn_placement_pass.cc in Paddle's fluid/pir/transforms/onednn): an operator that
says ``use_quantizer``, unless they set that attribute themselves, as in concat, pool2d and reshape; and ``subtract``,
which has no such kernel, so that a + b is written a - (0 - b), the same number. With x - 0 between operators nothing is
fused into a neighbour, where its attribute would be lost.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["KIND", "MARK", "find_given", "with_kept"]

MARK = "precision_debug.between"
"""The layer path of an operator that was written here."""

KIND = "precision_debug_kind"
"""The attribute that says what an operator was before it was written anew."""

_ADD, _PRODUCTS = "1.add", frozenset({"1.matmul", "1.conv2d", "1.depthwise_conv2d", "1.conv2d_transpose"})


def find_given(ops: list[dict[str, Any]]) -> Mapping[int, dict[str, Any]]:
    """Number of a result that is handed on through an x - 0 of ours, to what that gives."""
    made = {out["%"] for op in ops if _mark(op) != MARK for out in _outputs(op)}
    return {
        op["I"][0]["%"]: op["O"][0] for op in ops
        if _mark(op) == MARK and op["#"] == "1.subtract" and op["I"][0]["%"] in made and _attribute(op, KIND) == "out"
    }  # fmt: skip


def with_kept(program: dict[str, Any], kept: Collection[int]) -> dict[str, Any]:
    """Return a copy of a program in which the operators of the main block that give these values run in float32.

    The addition behind a kept product is kept with it: the passes make one operator of the two.
    """
    program = copy.deepcopy(program)
    block = program["regions"][0]["blocks"][0]
    writer = _Writer(block["ops"])
    chosen = set(kept)
    readers: dict[int, list[dict[str, Any]]] = {}
    for op in block["ops"]:
        for item in op.get("I") or ():
            readers.setdefault(item["%"], []).append(op)
    for op in block["ops"]:
        made = [out["%"] for out in _outputs(op)]
        if op["#"] in _PRODUCTS and chosen.intersection(made):
            chosen.update(
                out["%"] for number in made for reader in readers.get(number, ()) if reader["#"] == _ADD
                for out in _outputs(reader)
            )  # fmt: skip
    for op in block["ops"]:
        made = _outputs(op)
        if op["#"] == "p" or not any(out["%"] in chosen for out in made) or _mark(op) == MARK:
            writer.ops.append(op)
            continue
        for item in op.get("I") or ():
            if item["%"] in writer.computed and _is_float(writer.known[item["%"]]):  # what is kept hands on by itself
                item["%"] = writer.handed_on(item["%"], "in")
        if op["#"] == _ADD:
            op["#"] = "1.subtract"
            op.setdefault("A", []).append(_text(KIND, "add"))
            op["I"][1]["%"] = writer.negated(op["I"][1]["%"])
        else:
            op.setdefault("A", []).append({"AT": {"#": "0.a_bool", "D": True}, "N": "use_quantizer"})
        writer.ops.append(op)
        for out in made:
            if _is_float(out) and readers.get(out["%"]):
                before = copy.deepcopy(out)
                out["%"] = writer.fresh()
                writer.known[out["%"]] = out
                writer.subtract(out["%"], writer.zero(), before, "out")
                writer.computed.discard(before["%"])
    block["ops"] = writer.ops
    return program


class _Writer:
    """ops: those that are written so far. known: what has each number. computed: numbers of what operators give."""

    def __init__(self, ops: list[dict[str, Any]]) -> None:
        self.ops: list[dict[str, Any]] = []
        self.known = {out["%"]: out for op in ops for out in _outputs(op)}
        self.computed = {out["%"] for op in ops if op["#"] not in ("p", "1.full") for out in _outputs(op)}
        self._last: int = max(self.known)
        self._zero = 0
        self._handed: dict[int, int] = {}

    def fresh(self) -> int:
        self._last += 1
        return self._last

    def zero(self) -> int:
        """0 of no dimensions, which gives every shape back."""
        if not self._zero:
            self._zero = self.fresh()
            self.ops.append({
                "#": "1.full",
                "A": [
                    {"AT": {"#": "1.a_intarray", "D": []}, "N": "shape"},
                    {"AT": {"#": "0.a_f64", "D": 0.0}, "N": "value"},
                    {"AT": {"#": "1.a_dtype", "D": "float32"}, "N": "dtype"},
                    {"AT": {"#": "1.a_place", "D": [1, 0, ""]}, "N": "place"},
                    _text("struct_name", MARK),
                ],
                "I": [],
                "O": [{"%": self._zero, "TT": {"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, [], "NCHW", [], 0]}}],
                "OA": [_stop(value=True)],
            })  # fmt: skip
        return self._zero

    def subtract(self, one: int, other: int, out: dict[str, Any], what: str) -> None:
        attributes = [_text("struct_name", MARK), _text(KIND, what)]
        self.ops.append({
            "#": "1.subtract", "A": attributes, "I": [{"%": one}, {"%": other}], "O": [out], "OA": [_stop(value=False)],
        })  # fmt: skip

    def handed_on(self, number: int, what: str) -> int:
        """Return the value through an x - 0."""
        if number not in self._handed:
            self._handed[number] = self._typed(number)
            self.subtract(number, self.zero(), self.known[self._handed[number]], what)
        return self._handed[number]

    def negated(self, number: int) -> int:
        found = self._typed(number)
        self.subtract(self.zero(), number, self.known[found], "negated")
        return found

    def _typed(self, number: int) -> int:
        """Return a new number for a value of the same type."""
        fresh = self.fresh()
        self.known[fresh] = {**copy.deepcopy(self.known[number]), "%": fresh}
        return fresh


def _stop(*, value: bool) -> dict[str, Any]:
    return {"AT": {"#": "0.a_array", "D": [{"#": "0.a_bool", "D": value}]}, "N": "stop_gradient"}


def _text(name: str, value: str) -> dict[str, Any]:
    return {"AT": {"#": "0.a_str", "D": value}, "N": name}


def _is_float(out: dict[str, Any]) -> bool:
    described: list[Any] = (out.get("TT") or {}).get("D") or []
    return bool(described) and isinstance(described[0], dict) and str(described[0].get("#")).endswith("t_f32")


def _outputs(op: dict[str, Any]) -> list[dict[str, Any]]:
    made = op.get("O") or []
    return made if isinstance(made, list) else [made]


def _attribute(op: dict[str, Any], name: str) -> str:
    for item in op.get("A") or ():
        if isinstance(item, dict) and item.get("N") == name:
            return str(item["AT"]["D"])
    return ""


def _mark(op: dict[str, Any]) -> str:
    return _attribute(op, "struct_name").strip("/")
