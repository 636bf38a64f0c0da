"""Compiled models of one run: the plain one, and those with operators of ours in them that show tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_debug.errors import UsageError

from .engine.graph import Key, key_of, list_bodies
from .engine.layers import Layer, read_layers
from .engine.stored import FEW_BITS
from .engine.tap import NAME, Receive, make_tap_types
from .failures import building

__all__ = ["Built", "Given", "Maker", "before"]

_NOT_FOLDED = "DisableConstantFolding_0"


@dataclass(frozen=True, kw_only=True)
class Built:
    """A compiled model. request: where it runs. taps: the tensor that each of our operators shows, by its number.

    ends: the tensors that are further results, behind the model's own.
    """

    compiled: Any
    request: Any
    taps: tuple[Key, ...] = ()
    ends: tuple[Key, ...] = ()

    def layers(self, known: Collection[str]) -> tuple[Layer, ...]:
        """Return what it runs; after a run with times."""
        return tuple(layer for layer in read_layers(self.compiled, known) if not layer.name.startswith(NAME))

    def tap_order(self) -> list[Key]:
        """Return the tensors whose taps it runs, in the order in which it does; others became constants."""
        if self.ends:
            return list(self.ends)
        layers = read_layers(self.compiled, ())
        numbers = [layer.name.removeprefix(NAME) for layer in layers if layer.name.startswith(NAME)]
        return [self.taps[int(number)] for number in numbers if number.isdigit()]


def before(key: Key) -> Key:
    """Return by what the tensor that a quantiser reads is shown, where the quantiser is given its values."""
    return key[0], -1


@dataclass(frozen=True, kw_only=True)
class Given:
    """Where taps stand that give their readers other values: in the way of tensors, beside others, in front of
    quantisers. without: quantisers that are passed by."""

    ways: frozenset[Key]
    aside: frozenset[Key]
    quantisers: frozenset[str]
    without: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Maker:
    """model: as it was read. precision, fused: see Recipe. threads: 0: OpenVINO's own choice.

    properties: the user's. folds: weights in few bits become floats where taps are put in, which engines that fuse
    multiply by otherwise.
    """

    core: Any
    model: Any
    path: str
    mode: str
    precision: str
    fused: bool = True
    device: str = "CPU"
    threads: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    folds: bool = False

    @functools.cached_property
    def simple(self) -> Any:
        """See ``_fold_constants``: what taps are put into."""
        return _fold_constants(self.model, _HALVES if self.folds or not self.fused else _HALVES | FEW_BITS.keys())

    def plain(self) -> Built:
        """As OpenVINO compiles it."""
        return self._compile(self.model, ())

    def through(self, keys: Collection[Key], receive: Receive, *, floats: bool = False) -> Built:
        """With a tap in the way of each of these tensors.

        floats: in the way of these alone, and beside the others of the main graph: OpenVINO turns 64-bit whole numbers
        into 32-bit ones, and an operator that reads both a tap's and others may then be given two types.
        """
        clone = self.simple.clone()
        taps: list[Key] = []
        tokens: list[Any] = []
        through, beside = make_tap_types()
        main = {op.get_friendly_name() for op in clone.get_ordered_ops()} if floats else set()

        def insert(port: Any, key: Key) -> None:
            if port.get_node().get_friendly_name() in main and not port.get_element_type().is_real():
                tap = beside([port], len(taps), receive)
                tap.set_friendly_name(f"{NAME}{len(taps)}")
                taps.append(key)
                tokens.append(tap.output(0))
                return
            readers = list(port.get_target_inputs())
            tap = through([port], len(taps), receive)
            tap.set_friendly_name(f"{NAME}{len(taps)}")
            taps.append(key)
            for reader in readers:
                reader.replace_source_output(tap.output(0))

        _call_for_ports(clone, keys, insert)
        _end_in_a_product(clone, tokens)
        clone.validate_nodes_and_infer_types()
        return self._compile(clone, taps)

    def given(self, where: Given, receive: Receive) -> Built:
        """With taps as these places say."""
        clone = self.simple.clone()
        taps: list[Key] = []
        tokens: list[Any] = []
        through, beside = make_tap_types()

        def tap(kind: Any, port: Any, key: Key) -> Any:
            one = kind([port], len(taps), receive)
            one.set_friendly_name(f"{NAME}{len(taps)}")
            taps.append(key)
            return one.output(0)

        def insert(port: Any, key: Key) -> None:
            if key in where.aside:
                tokens.append(tap(beside, port, key))
                return
            readers = list(port.get_target_inputs())
            new = tap(through, port, key)
            for reader in readers:
                reader.replace_source_output(new)

        operators = {str(op.get_friendly_name()): op for op in clone.get_ordered_ops()}
        for one in where.without & operators.keys():
            for reader in list(operators[one].output(0).get_target_inputs()):
                reader.replace_source_output(operators[one].input_value(0))
        _call_for_ports(clone, where.ways | where.aside, insert, inside=False)
        for one in sorted(where.quantisers & operators.keys()):
            new = tap(through, operators[one].input_value(0), before((one, 0)))
            operators[one].input(0).replace_source_output(new)
        _end_in_a_product(clone, tokens)
        clone.validate_nodes_and_infer_types()
        return self._compile(clone, taps)

    @functools.cached_property
    def ranges(self) -> Mapping[str, tuple[Any, ...]]:
        """Of each quantiser whose ranges are constants: both of what it reads, both of what it gives, its levels."""
        found = {}
        for op in self.simple.get_ordered_ops():
            sources = [op.input_value(place).get_node() for place in range(1, op.get_input_size())]
            fixed = all(one.get_type_name() == "Constant" for one in sources)
            if op.get_type_name() == "FakeQuantize" and fixed:
                ranges = (one.data.astype("float64") for one in sources)
                found[str(op.get_friendly_name())] = (*ranges, int(op.get_attributes()["levels"]))
        return found

    def beside(self, keys: Collection[Key], receive: Receive) -> Built:
        """With a tap as one more reader of each of these tensors.

        OpenVINO keeps what lies between a graph's last product and its results in float32, even where it was asked
        for less: a tap that led to a result of its own would change that for the tensor that it shows. So what the
        taps give is led through one product of its own.
        """
        clone = self.simple.clone()
        taps: list[Key] = []
        tokens: list[Any] = []
        _, beside = make_tap_types()

        def insert(port: Any, key: Key) -> None:
            tap = beside([port], len(taps), receive)
            tap.set_friendly_name(f"{NAME}{len(taps)}")
            taps.append(key)
            tokens.append(tap.output(0))

        _call_for_ports(clone, keys, insert)
        _end_in_a_product(clone, tokens)
        return self._compile(clone, taps)

    def results(self, keys: Collection[Key]) -> Built:
        """With these tensors as further results, which every device has; they come when the run is over."""
        from openvino import opset13

        clone = self.simple.clone()
        ends: list[Key] = []
        ports: list[Any] = []

        def insert(port: Any, key: Key) -> None:
            ends.append(key)
            ports.append(port)

        _call_for_ports(clone, keys, insert, inside=False)
        clone.add_results([opset13.result(port) for port in ports])
        return self._compile(clone, (), ends)

    def _compile(self, model: Any, taps: Sequence[Key], ends: Sequence[Key] = ()) -> Built:
        with building(self.path, self.mode, self.properties):
            compiled = self.core.compile_model(model, self.device, self._config())
            request = compiled.create_infer_request()
            return Built(compiled=compiled, request=request, taps=tuple(taps), ends=tuple(ends))

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"PERF_COUNT": True}
        if self.precision:
            config["INFERENCE_PRECISION_HINT"] = self.precision
        if self.precision == "f32" and self.device == "CPU":
            config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"  # else compressed weights are multiplied in INT8
        if not self.fused and self.device == "CPU":
            # a kernel that is generated for several operators quantises and normalises in other steps than theirs
            config["SNIPPETS_MODE"] = "DISABLE"
        if self.threads:
            config["INFERENCE_NUM_THREADS"] = self.threads
        for name, value in self.properties.items():
            if name == "PERF_COUNT" or (name in config and name == "INFERENCE_PRECISION_HINT"):
                raise UsageError(f"{name} is what the run mode decides", where="--option config",
                                 hint="choose another run mode")  # fmt: skip
            config[name] = value
        return config


def _end_in_a_product(model: Any, tokens: Sequence[Any]) -> None:
    """Lead what taps beside tensors give to one further result."""
    import numpy as np
    from openvino import opset13

    if tokens:
        together = opset13.concat(list(tokens), 0, name=f"{NAME}tokens")
        # in FP16 the constant becomes half, and the tokens stay what an operator of ours says that they are
        ones = opset13.convert_like(opset13.constant(np.ones((1, len(tokens)), np.float32)), together)
        end = opset13.matmul(ones, together, False, False, name=f"{NAME}end")
        model.add_results([opset13.result(end, name=f"{NAME}result")])


def _fold_constants(model: Any, kept: Collection[str]) -> Any:
    """Return a copy in which everything that does not depend on an input is a constant already.

    OpenVINO would find that out while it changes types, and take a tap for a part of it. Weights that are held in
    the ``kept`` types stay so: which kernel multiplies by them depends on it.
    """
    from openvino.passes import ConstantFolding, Manager

    clone = model.clone()
    converts = (op for op in _iterate_operators(clone) if op.get_type_name() == "Convert")
    held = [op for op in converts if _is_held(op.input_value(0), kept)]
    for op in held:
        op.get_rt_info()[_NOT_FOLDED] = ""
    manager = Manager()
    manager.register_pass(ConstantFolding())
    manager.run_passes(clone)
    for op in held:
        del op.get_rt_info()[_NOT_FOLDED]
    return clone


_HALVES = frozenset({"f16", "bf16"})


def _is_held(port: Any, types: Collection[str]) -> bool:
    return port.get_node().get_type_name() == "Constant" and port.get_element_type().get_type_name() in types


def _iterate_operators(model: Any) -> Iterator[Any]:
    for op in model.get_ordered_ops():
        for body in list_bodies(op):
            yield from _iterate_operators(body)
        yield op


def _call_for_ports(
    model: Any, keys: Collection[Key], insert: Callable[[Any, Key], None], *, inside: bool = True
) -> None:  # fmt: skip
    """Call for each port of these keys. inside: bodies of loops and branches included."""
    for op in model.get_ordered_ops():
        for body in list_bodies(op) if inside else ():
            _call_for_ports(body, keys, insert)
        for port in op.outputs():
            if key_of(port) in keys:
                insert(port, key_of(port))
