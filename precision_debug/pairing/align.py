"""Which tensor of the baseline a tensor of the target is compared with, and how we know.

In this order, each baseline tensor at most once: the user's rename map; the source tensor that the backend names
(``TensorMeta.origin``); the same name, where its producer can have made it (``fits``); the name without what a
quantiser appends; where it dropped a clamp, what the clamp read; of two files that are one graph but for names, what
computes it (``isomorphic``). From what is certain to what is likely: engines give the name of a tensor to another one
that took its place, so a name counts only after what says more, and each step pairs what the earlier ones left.
Across frameworks equal names mean nothing: there the values decide, before the comparison and in equal arithmetic
(``run.across_frameworks``). Nothing is paired by position.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import MarkError
from ..protocols import Matches
from ..reasons import Reason, say
from ..reasons.ways import NO_WAY, Way, way
from ..records import TensorMeta
from .isomorphic import pair_isomorphic

__all__ = ["Alignment", "Pair", "align", "fits", "strip_iteration"]


# What the name of a tensor does not tell: whether its operator can have made it, and what it was before quantisation.
#
# ONNX Runtime's quantiser drops a Relu, whose clamp the zero point does, and gives the Relu's name to what came before:
# then equal names are different tensors. Only what can be told for sure is refused: a plain linear operator has not
# computed an activation, nor the other way round; what a fusion or an engine calls its own may have.

_ACTIVATIONS = frozenset(
    """
    Relu Clip LeakyRelu PRelu Sigmoid Tanh HardSigmoid HardSwish Elu Selu Celu Softplus Softsign ThresholdedRelu Mish
    Softmax LogSoftmax
    """.split()  # noqa: SIM905
)
_HEAVY = frozenset(
    """
    BatchNormalization Conv ConvTranspose Gemm MatMul Concat AveragePool GlobalAveragePool InstanceNormalization
    """.split()  # noqa: SIM905
)
# exporters and fusions may end other activations in one of these, but not a clamp
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Sum"})
_CLAMPS = frozenset({"Relu", "Clip"})
# the forms of a tensor that onnxruntime.quantization makes, the one that its readers get first
_FORMS = ("_DequantizeLinear_Output", "_QuantizeLinear_Output", "_quantized", "_QuantizeLinear_Input")
_DECORATION = re.compile(r"(/duplicated|_token_\d+)+$")


def fits(base_op: str, target_op: str) -> bool:
    """Return whether one operator's output can be the other one's, as far as their types tell."""
    pair = {base_op, target_op}
    return not ((pair & _ACTIVATIONS and pair & _HEAVY) or (pair & _CLAMPS and pair & _ARITHMETIC))


def is_clamp(op_type: str) -> bool:
    """Return whether a zero point may do what the operator does."""
    return op_type in _CLAMPS


def split_quantised_name(name: str) -> tuple[str, int]:
    """Return the tensor that a quantised form holds, and the rank of the form, 0 first; the name itself and -1 for
    others."""
    bare = _DECORATION.sub("", name)
    for rank, form in enumerate(_FORMS):
        if bare.endswith(form) and len(bare) > len(form):
            return bare.removesuffix(form), rank
    return name, -1


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The baseline tensor that a target tensor is compared with, and how it was found.

    how: "exact", "rename map", "graph metadata", "fingerprint, confidence …", "graph neighbours …" or "outputs of the
    model …"."""

    base: TensorMeta
    target: TensorMeta
    how: Way


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Both lists and the pairs between them, by target name.

    rivals: target name to the name it lost against. refused: target name to why it was left alone. missing: the same
    of baseline names.
    """

    baseline: tuple[TensorMeta, ...]
    target: tuple[TensorMeta, ...]
    pairs: Mapping[str, Pair]
    rivals: Mapping[str, str]
    refused: Mapping[str, Reason] = field(default_factory=dict)
    missing: Mapping[str, Reason] = field(default_factory=dict)

    @classmethod
    def of(
        cls, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], pairs: Mapping[str, tuple[str, Way]],
        **rest: Any,
    ) -> Alignment:  # fmt: skip
        """Return what was decided before, by name: target name to (baseline name, how); of tensors that both lists
        have."""
        here, there = ({meta.name: meta for meta in side} for side in (target, baseline))
        found = {
            name: Pair(base=there[base], target=here[name], how=how)
            for name, (base, how) in pairs.items()
            if name in here and base in there
        }
        return cls(baseline=tuple(baseline), target=tuple(target), pairs=found, **rest)

    def partner(self, target_name: str) -> Pair | None:
        """Return the pair of a name that the target's hook was called with, iterations ("name@3") included."""
        pair = self.pairs.get(target_name)
        if pair is not None:
            return pair
        name = strip_iteration(target_name)
        pair = self.pairs.get(name)
        if name == target_name or pair is None:
            return None
        base = dataclasses.replace(pair.base, name=pair.base.name + target_name[len(name) :])
        return Pair(base=base, target=pair.target, how=pair.how)


_TURN = re.compile(r"[0-9]+(?:[.][0-9]+)*")


def strip_iteration(name: str) -> str:
    """Return a tensor's name without its iteration: "x@3", or "x@3.0" of a loop in a loop, to "x"; any other as it
    is."""
    before, at, iteration = name.rpartition("@")
    return before if at and _TURN.fullmatch(iteration) else name


def align(
    baseline: Sequence[TensorMeta],
    target: Sequence[TensorMeta],
    renames: Mapping[str, str] | None = None,
    matches: Matches | None = None,
    *,
    two_files: bool = False,
    recut: Mapping[str, tuple[str, Way]] | None = None,
) -> Alignment:
    """Pair two sessions' tensors by name.

    renames: target name to baseline name; a name that neither side has raises MarkError.
    matches: what their values said, where the two graphs come from different frameworks, or what a backend knows of
    two runs of its own; equal names mean nothing then. two_files: another exporter may have named what they share.
    recut: target name to (baseline name, how), of what is put together from pieces, or cut out of a whole.
    """
    pairing = _Pairing(baseline, target)
    pairing.by_recut(recut or {})
    pairing.by_rename_map(renames or {})
    if matches is not None:
        return pairing.by_matches(matches)
    pairing.by_origin()
    pairing.by_rounded_form()
    strangers = pairing.by_equal_name()
    pairing.by_quantised_form()
    if two_files:
        pairing.by_last_output()
    if two_files and not strangers:
        pairing.by_computation()
    return pairing.past_dropped_clamps(strangers)


class _Pairing:
    """The pairs of tensors found so far, and the ways to find more.

    Each way is a method, called in the order of what is known most surely; a baseline tensor goes to the first that
    claims it."""

    def __init__(self, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> None:
        self.baseline, self.target = tuple(baseline), tuple(target)
        self.by_name = {meta.name: meta for meta in baseline}
        self.by_source: dict[str, TensorMeta] = {}
        for meta in baseline:
            if meta.origin:
                self.by_source.setdefault(meta.origin, meta)
        self.by_source.update(self.by_name)
        self.pairs: dict[str, Pair] = {}
        self.rivals: dict[str, str] = {}
        self.taken: dict[str, str] = {}

    def claim(self, meta: TensorMeta, base: TensorMeta | None, how: Way = NO_WAY) -> None:
        """how: "" tells "exact" from "graph metadata" by the names."""
        if base is None or meta.name in self.pairs:
            return
        if base.name in self.taken:
            self.rivals.setdefault(meta.name, self.taken[base.name])
            return
        self.taken[base.name] = meta.name
        how = how or (way("exact") if base.name == meta.name else way("graph metadata"))
        self.pairs[meta.name] = Pair(base=base, target=meta, how=how)

    def by_rename_map(self, renames: Mapping[str, str]) -> None:
        """Raises MarkError for a name that its side does not have."""
        target_names = {meta.name for meta in self.target}
        for new, old in renames.items():
            if new not in target_names or old not in self.by_name:
                side, name = ("target", new) if new not in target_names else ("baseline", old)
                raise MarkError(f"the rename map names '{name}', which the {side} does not have", where="--rename")
        for meta in self.target:
            if meta.name in renames:
                self.claim(meta, self.by_name[renames[meta.name]], way("rename map"))

    def by_recut(self, recut: Mapping[str, tuple[str, Way]]) -> None:
        """By what was put together from pieces, or cut out of a whole."""
        for meta in self.target:
            base_name, how = recut.get(meta.name, ("", NO_WAY))
            self.claim(meta, self.by_name.get(base_name), how)

    def by_matches(self, matches: Matches) -> Alignment:
        """Pair by what the values, or a backend, decided: nothing else is asked then."""
        for meta in self.target:
            base_name, how = matches.found.get(meta.origin or meta.name, ("", NO_WAY))
            self.claim(meta, self.by_name.get(base_name), how)
        refused = {meta.name: text for meta in self.target if (text := matches.refused.get(meta.origin or meta.name))}
        return self.alignment(refused=refused, missing=matches.missing)

    def by_origin(self) -> None:
        """By the source model's tensor that the backend names."""
        for meta in self.target:
            if meta.origin:
                self.claim(meta, self.by_source.get(meta.origin))

    def by_rounded_form(self) -> None:
        """By the quantised form that all readers of a tensor get, where nobody reads it as it was before.

        What its scale loses is then an error of its own, and not of each that reads it."""
        read = {name for meta in self.target for name in meta.inputs}
        there = {
            split_quantised_name(meta.origin or meta.name)[0]
            for meta in self.target
            if not meta.view and not meta.unseen
        }
        clamped = {
            meta.inputs[0]: meta for meta in self.baseline
            if is_clamp(meta.op_type) and len(meta.inputs) == 1 and meta.name not in there
        }  # fmt: skip
        forms: dict[tuple[str, str, tuple[str, ...]], list[TensorMeta]] = {}
        for meta in self.target:
            if meta.node and not meta.unseen:
                forms.setdefault((meta.node, meta.op_type, meta.inputs), []).append(meta)
        for alike in forms.values():
            plain = [meta for meta in alike if not meta.origin and not meta.view and meta.name in self.by_source]
            rounded = [meta for meta in alike if meta not in plain and meta.name in read]
            rounded = [meta for meta in rounded if not {meta.name, meta.origin} & self.by_source.keys()]
            if len(plain) != 1 or not rounded or not any(meta.view for meta in alike):
                continue
            meta, base = plain[0], self.by_source[plain[0].name]
            base = clamped.get(base.name, base)
            made = fits(base.op_type, meta.op_type) or is_clamp(base.op_type)  # whose work the zero point does
            if made and meta.name not in read and not meta.is_output:
                self.claim(min(rounded, key=lambda one: bool(one.view)), base, way("graph metadata"))

    def by_equal_name(self) -> list[tuple[TensorMeta, TensorMeta]]:
        """Those whose names are equal though the one's producer cannot have made the other are returned,
        unpaired."""
        strangers: list[tuple[TensorMeta, TensorMeta]] = []
        for meta in self.target:
            base = None if meta.origin else self.by_source.get(meta.name)
            if base is not None and not meta.unseen and not fits(base.op_type, meta.op_type):
                strangers.append((meta, base))
            else:
                self.claim(meta, base)
        return strangers

    def by_quantised_form(self) -> None:
        """By the name without what a quantiser appends."""
        for meta, name in _list_quantised_forms(self.baseline, self.target):
            if meta.name not in self.pairs and not _is_raw_integers(meta, self.by_name.get(name)):
                self.claim(meta, self.by_name.get(name), way("graph metadata"))

    def by_last_output(self) -> None:
        """By being the only output without a partner on either side, where both are of one shape and type."""
        base = [meta for meta in self.baseline if meta.is_output and meta.name not in self.taken]
        ours = [meta for meta in self.target if meta.is_output and meta.name not in self.pairs]
        if len(base) == len(ours) == 1 and base[0].dtype == ours[0].dtype and _may_be_of_one_shape(base[0], ours[0]):
            self.claim(ours[0], base[0], way("outputs of the model, the only ones of this shape and type"))

    def by_computation(self) -> None:
        """Of two files that are one graph but for names: by what computes each tensor."""
        known = {name: pair.base.name for name, pair in self.pairs.items()}
        here_of = {meta.name: meta for meta in reversed(self.target)}  # of several of one name the first
        for name, there in pair_isomorphic(self.baseline, self.target, known).items():
            self.claim(here_of[name], self.by_name[there], way("graph neighbours"))

    def past_dropped_clamps(self, strangers: Sequence[tuple[TensorMeta, TensorMeta]]) -> Alignment:
        """A quantiser that drops a clamp leaves its name to what the clamp read; any other stranger is
        refused."""
        refused, missing = {}, {}
        for meta, base in strangers:
            before = self.by_name.get(base.inputs[0]) if is_clamp(base.op_type) and len(base.inputs) == 1 else None
            if before is not None and fits(before.op_type, meta.op_type):
                self.claim(meta, before, way("graph metadata"))
            refused[meta.name] = say("baseline_made_by", there=base.op_type, here=meta.op_type)
            missing[base.name] = say("target_made_by", there=meta.op_type, here=base.op_type)
        return self.alignment(
            refused={name: text for name, text in refused.items() if name not in self.pairs},
            missing={name: text for name, text in missing.items() if name not in self.taken},
        )

    def alignment(self, *, refused: Mapping[str, Reason], missing: Mapping[str, Reason]) -> Alignment:
        return Alignment(
            baseline=self.baseline, target=self.target, pairs=self.pairs, rivals=self.rivals, refused=refused,
            missing=missing,
        )  # fmt: skip


def _may_be_of_one_shape(first: TensorMeta, second: TensorMeta) -> bool:
    """Return whether two shapes are one, where a dynamic dimension may be of any size."""
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return first.shape == second.shape
    return all(a == b or str in (type(a), type(b)) for a, b in zip(first.shape, second.shape, strict=True))


def _is_raw_integers(meta: TensorMeta, base: TensorMeta | None) -> bool:
    """Return whether a quantised form is shown as its integers, whose scale is not known: they are no partner of
    floats."""
    return base is not None and "float" in base.dtype and meta.dtype.startswith(("int", "uint")) and not meta.view


def _list_quantised_forms(baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> list[tuple[TensorMeta, str]]:
    """Return the target's quantised forms, and the tensors that they hold; first what is shown, then what readers get.

    A clamp of the baseline that the target lacks is done by the zero point of what it read.
    """
    forms = [(meta, *split_quantised_name(meta.origin or meta.name)) for meta in target]
    there = {name for _, name, _ in forms}
    clamped = {
        meta.inputs[0]: meta.name for meta in baseline
        if is_clamp(meta.op_type) and len(meta.inputs) == 1 and meta.name not in there
    }  # fmt: skip
    ranked = [(bool(meta.unseen), rank, meta, clamped.get(name, name)) for meta, name, rank in forms if rank >= 0]
    ranked.sort(key=lambda item: item[:2])
    return [(meta, name) for _, _, meta, name in ranked]
