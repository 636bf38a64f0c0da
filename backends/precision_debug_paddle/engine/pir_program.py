"""A PIR program (.json, Paddle 3): read and edited without Paddle.

``program.regions[0].blocks[0].ops`` holds the operators; "#" is an operator's name, "I" its inputs and "O" its outputs,
"%" a value's number, "TT" its type, "A" the attributes; the attribute struct_name carries the layer path.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.reasons import NOTHING
from precision_debug.records import InputMeta

from ..naming import ONE_OUTPUT, Namer, fetch_name, layer_names, plain_type
from .kept_in_pir import KIND, MARK, find_given, with_kept
from .pir_blocks import Block, Op
from .program import NESTED, Value, dims

__all__ = ["PirProgram", "name_fetches", "read_pir"]

_DTYPES = {
    "t_f16": "float16", "t_bf16": "bfloat16", "t_f32": "float32", "t_f64": "float64", "t_bool": "bool", "t_i8": "int8",
    "t_ui8": "uint8", "t_i16": "int16", "t_i32": "int32", "t_i64": "int64", "t_c64": "complex64",
    "t_c128": "complex128",
}  # fmt: skip
_FETCH = "fetch"
_CARRIES = frozenset({"reshape", "unsqueeze", "squeeze", "cast", "transpose"})
_SOURCES = frozenset({"data", "feed"})
_NUMBERS = {"full": "value", "full_int_array": "value", "assign_value": "values"}
_CONSTANTS = frozenset({"full", "full_int_array", "constant", "constant_tensor", "assign_value"})


class PirProgram:
    """See ``Program``. Values get the names that ``naming`` describes."""

    pir = True

    def __init__(self, data: dict[str, Any], path: str) -> None:
        self._data = data
        self._path = path
        self._block = data["program"]["regions"][0]["blocks"][0]["ops"]
        self.statistics = 0
        self._given_by = find_given(self._block)
        self._layers = layer_names(_layer(op) for op in _iterate_operators(self._block))
        self._number: dict[str, dict[str, Any]] = {}
        self.values = tuple(self._values())

    @functools.cached_property
    def inputs(self) -> tuple[InputMeta, ...]:
        found = []
        for op in self._block:
            if plain_type(op["#"]) in _SOURCES:
                dtype, shape = _read_type(_outputs(op)[0])
                found.append(InputMeta(name=str(_attribute(op, "name")), dtype=dtype, shape=shape))
        return tuple(found)

    def declared(self, name: str) -> tuple[str, tuple[int | str, ...] | None]:
        """Return the type and shape that the program gives a parameter."""
        found = next(op for op in self._block if op["#"] == "p" and str(op["A"][-1]) == name)
        return _read_type(_outputs(found)[0])

    def parameters(self) -> frozenset[str]:
        return frozenset(str(op["A"][-1]) for op in self._block if op["#"] == "p")

    def reading(self) -> Iterator[tuple[str, str, tuple[str, ...], dict[str, Any]]]:
        """Yield each operator as ``values`` counts it: its name, type, the parameters in place of its inputs ("" where
        it is none), attributes. A parameter is followed through the operators that only give it another shape or type.
        """
        held = {_outputs(op)[0]["%"]: str(op["A"][-1]) for op in self._block if op["#"] == "p"}
        for name, kind, op in self._named():
            reads = tuple(held.get(item, "") for item in _reads(op))
            if kind in _CARRIES and reads and reads[0]:
                held.update((out["%"], reads[0]) for out in _outputs(op))
            plain = {item["N"]: _value(item["AT"].get("D")) for item in op.get("A") or () if isinstance(item, dict)}
            yield name, kind, reads, plain

    def scalars(self) -> dict[str, dict[int, tuple[tuple[float, ...], str]]]:
        """By operator, as ``reading`` names it: the numbers that it reads and the program itself holds, and their type,
        by input."""
        held: dict[int, tuple[tuple[float, ...], str]] = {}
        for op in self._block:
            if plain_type(op["#"]) in _NUMBERS:
                found = _value(_attribute(op, _NUMBERS[plain_type(op["#"])]))
                numbers = found if isinstance(found, tuple) else (found,)
                if all(isinstance(number, (int, float)) for number in numbers):
                    kind = "int64" if plain_type(op["#"]) == "full_int_array" else "float32"
                    held.update((out["%"], (numbers, kind)) for out in _outputs(op))
        return {
            name: {place: held[item] for place, item in enumerate(_reads(op)) if item in held}
            for name, _, op in self._named()
        }

    def _named(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield the operators that ``values`` counts: name without layer, type, and the operator."""
        namer = Namer()
        for op in self._block:
            kind = _kind(op)
            if op["#"] == "p" or kind in _CONSTANTS or kind in _SOURCES or kind in {_FETCH, "yield", "shadow_output"}:
                continue
            if _layer(op) == MARK:
                continue
            if any(_is_dense(out) for out in _outputs(op)):
                yield namer.name(kind, ""), kind, op

    def blocks(self) -> Block:
        """Return the program with its loops and branches, as Paddle's hook numbers the operators: without those whose
        results nobody reads, which every predictor drops."""
        names = {out["%"]: name for name, out in self._number.items()}
        dead = _find_dead(self._block)

        def block(ops: Sequence[dict[str, Any]], arguments: Sequence[dict[str, Any]] = ()) -> Block:
            yields = next((op for op in ops if plain_type(op["#"]) == "yield"), {})
            return Block(
                ops=tuple(
                    Op(
                        kind=plain_type(op["#"]), reads=tuple(_reads(op)),
                        outputs=tuple(out["%"] for out in _outputs(op) if _is_dense(out)),
                        names=tuple(names.get(out["%"], "") for out in _outputs(op) if _is_dense(out)),
                        blocks=tuple(
                            block(one["ops"], one.get("args") or ()) for region in op.get("regions") or ()
                            for one in region["blocks"]
                        ),
                    )
                    for op in ops
                    if op["#"] != "p" and plain_type(op["#"]) not in _SOURCES and id(op) not in dead
                ),
                arguments=tuple(one["#"] for one in arguments), yields=tuple(_reads(yields)),
            )  # fmt: skip

        return block(self._block)

    def with_fetches(self, names: Sequence[str], path: Path) -> Path:
        fetches = [op for op in self._block if plain_type(op["#"]) == _FETCH]
        taken = {_reads(op)[0] for op in fetches}
        number = max(out["%"] for op in self._block for out in _outputs(op))
        extra: list[dict[str, Any]] = []
        for name in names:
            value = self._number[name]
            if value["%"] in taken:
                continue
            number += 1
            column = len(fetches) + len(extra)
            op = json.loads(json.dumps(fetches[0]))
            for attribute in op["A"]:
                if attribute["N"] == "name":
                    attribute["AT"]["D"] = fetch_name(name)
                elif attribute["N"] == "col":
                    attribute["AT"]["D"] = column
            op["I"] = [{"%": value["%"]}]
            op["O"] = [{"%": number, "TT": value["TT"]}]
            extra.append(op)
        self._block.extend(extra)
        try:
            path.write_text(json.dumps(self._data, separators=(",", ":")), encoding="utf-8")
        finally:
            del self._block[len(self._block) - len(extra) :]
        return path

    def with_kept(self, names: Sequence[str], path: Path) -> Path:
        """Write the program so that the operators of these values stay in float32 (see ``kept_in_pir``).

        Raises KeyError for a value that it does not have.
        """
        kept = {self._number[name]["%"] for name in names}
        data = {**self._data, "program": with_kept(self._data["program"], kept)}
        path.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
        return path

    def _values(self) -> Iterator[Value]:
        outputs = {_reads(op)[0]: str(_attribute(op, "name")) for op in self._block if plain_type(op["#"]) == _FETCH}
        yield from self._walk(self._block, outputs, Namer(), {}, set(), nested=False)

    def _walk(
        self, ops: Sequence[dict[str, Any]], outputs: dict[int, str], namer: Namer,
        sources: dict[int, tuple[str, ...]], constant: set[int], *, nested: bool,
    ) -> Iterator[Value]:  # fmt: skip
        """sources: value number to the names that it stands for, through operators that only bundle values."""
        for op in ops:
            kind = _kind(op)
            reads = _reads(op)
            made = _outputs(op)
            fixed = op["#"] == "p" or kind in _CONSTANTS or (bool(reads) and all(item in constant for item in reads))
            if fixed:
                constant.update(out["%"] for out in made if out["%"] not in outputs)
            if kind in _SOURCES:
                sources.update((out["%"], (str(_attribute(op, "name")),)) for out in made)
            if op["#"] == "p" or kind in _CONSTANTS or kind in _SOURCES or kind in {_FETCH, "yield", "shadow_output"}:
                continue
            inputs = tuple(dict.fromkeys(name for item in reads for name in sources.get(item, ())))
            layer = _layer(op)
            if layer == MARK:
                sources.update((out["%"], inputs) for out in made)
                continue
            for region in op.get("regions") or ():
                for block in region["blocks"]:
                    yield from self._walk(block["ops"], {}, namer, sources, constant, nested=True)
            if not any(_is_dense(out) for out in made):
                sources.update((out["%"], inputs) for out in made)
                continue
            base = namer.name(kind, self._layers.get(layer, ""))
            for place, out in enumerate(made):
                if not _is_dense(out) or (place and kind in ONE_OUTPUT):
                    self.statistics += _is_dense(out)
                    continue
                if out["%"] in constant:
                    continue
                head, at, tail = base.partition("@")
                name = f"{head}.{place}{at}{tail}" if place else base
                sources[out["%"]] = (name,)
                self._number[name] = seen = self._given_by.get(out["%"], out)
                dtype, shape = _read_type(seen)
                yield Value(
                    name=name, op_type=kind, node=layer, dtype=dtype, shape=shape, inputs=inputs,
                    output=outputs.get(seen["%"], ""), hidden=NESTED if nested else NOTHING,
                )  # fmt: skip


def read_pir(path: Path) -> PirProgram:
    """Raises ModelError where the file is not a PIR program."""
    hint = "export or copy the model again"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"is not JSON, or is cut off ({error})", where=str(path), hint=hint) from error
    code = data.get("base_code") if isinstance(data, dict) else None
    if not isinstance(code, dict) or code.get("magic") != "pir":
        raise ModelError("is JSON, but no Paddle program", where=str(path), hint="name the inference.json of an export")
    try:
        program = PirProgram(data, str(path))
        program.inputs  # noqa: B018
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise ModelError(f"the program cannot be read ({error!r})", where=str(path), hint=hint) from error
    if not any(value.output for value in program.values):
        raise ModelError("the program has no output that an operator computes", where=str(path), hint=hint)
    return program


def name_fetches(path: Path, like: Path) -> None:
    """Give the fetches of a program that Paddle saved anew, and named itself, the names of those in ``like``, which
    are in the same order. Raises ModelError where there are not as many.
    """
    data, wanted = (json.loads(file.read_text(encoding="utf-8")) for file in (path, like))
    fetches, names = _fetches(data), [_attribute(op, "name") for op in _fetches(wanted)]
    if len(fetches) != len(names):
        raise ModelError(
            f"has {len(fetches)} outputs after its conversion, and had {len(names)}", where=str(path),
            hint="this Paddle changes the outputs of a program; compare a legacy program (.pdmodel) instead",
        )  # fmt: skip
    for op, name in zip(fetches, names, strict=True):
        next(item for item in op["A"] if item["N"] == "name")["AT"]["D"] = name
    path.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")


def _fetches(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [op for op in data["program"]["regions"][0]["blocks"][0]["ops"] if plain_type(op["#"]) == _FETCH]


def _value(data: Any) -> Any:
    return tuple(item["D"] for item in data if isinstance(item, dict)) if isinstance(data, list) else data


def _iterate_operators(ops: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for op in ops:
        yield op
        for region in op.get("regions") or ():
            for block in region["blocks"]:
                yield from _iterate_operators(block["ops"])


def _find_dead(ops: Sequence[dict[str, Any]]) -> set[int]:
    """Identities of the operators whose results nobody reads, and of those that only such ones read."""
    left = {id(op): op for op in _iterate_operators(ops)}
    dead: set[int] = set()
    while True:
        read = {number for op in left.values() for number in _reads(op)}
        more = [
            key for key, op in left.items()
            if _outputs(op) and not op.get("regions") and op["#"] != "p"
            and plain_type(op["#"]) not in _SOURCES | {_FETCH}
            and not any(out["%"] in read for out in _outputs(op))
        ]  # fmt: skip
        if not more:
            return dead
        dead.update(more)
        for key in more:
            del left[key]


def _layer(op: dict[str, Any]) -> str:
    return str(_attribute(op, "struct_name") or "").strip("/")


def _outputs(op: dict[str, Any]) -> list[dict[str, Any]]:
    made = op.get("O") or []
    return made if isinstance(made, list) else [made]


def _reads(op: dict[str, Any]) -> list[int]:
    return [item["%"] for item in op.get("I") or ()]


def _attribute(op: dict[str, Any], name: str) -> Any:
    attributes = op.get("A") or ()
    return next((item["AT"]["D"] for item in attributes if isinstance(item, dict) and item["N"] == name), None)


def _kind(op: dict[str, Any]) -> str:
    """Return what an operator is, or was before it was written anew to be kept."""
    return str(_attribute(op, KIND) or "") or plain_type(op["#"])


def _is_dense(out: dict[str, Any]) -> bool:
    kind = out.get("TT") or {}
    return str(kind.get("#", "")).endswith("t_dtensor")


def _read_type(out: dict[str, Any]) -> tuple[str, tuple[int | str, ...] | None]:
    described = (out.get("TT") or {}).get("D")
    if not described:
        return "", None
    return _DTYPES.get(str(described[0]["#"]).partition(".")[2], ""), dims(described[1])
