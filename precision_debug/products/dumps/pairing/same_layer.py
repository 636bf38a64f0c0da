"""Two models with the same layers, as a port has them: pairs what values cannot, where the port is wrong.

From the first wrong operator on no value is equal, but the layers keep the names under which their weights were carried
over. A tensor's partner is the first of these that is the only one on both sides: what the layer of the same name hands
on; the tensor of its family and shape in that layer; what an operator of the same family computes from the partners of
its inputs. Pairs by value come before all of them. What has no such partner stays unpaired.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ....reasons.ways import Way, way
from ....records import TensorMeta
from .graph import find_nearest_known

__all__ = ["family_of_type", "pair_layers"]


# Operators of different frameworks that do the same: their family's name.

_FAMILIES = {
    "linear": "gemm matmul addmm mm linear bmm baddbmm matmul_v2 fc fully_connected batch_matmul",
    "conv": "conv convolution conv1d conv2d conv3d depthwise_conv2d groupconvolution "
            "conv_2d depthwise_conv_2d conv_3d",
    "deconv": "convtranspose conv_transpose2d conv2d_transpose convolutionbackpropdata groupconvolutionbackpropdata "
              "transpose_conv",
    "batch_norm": "batchnormalization batch_norm native_batch_norm _native_batch_norm_legit_no_training "
                  "cudnn_batch_norm batchnorminference",
    "layer_norm": "layernormalization layer_norm native_layer_norm",
    "group_norm": "groupnormalization group_norm native_group_norm",
    "instance_norm": "instancenormalization instance_norm",
    "rms_norm": "rmsnormalization rms_norm _fused_rms_norm simplifiedlayernormalization",
    "view": "reshape view _unsafe_view _reshape_alias flatten squeeze unsqueeze squeeze2 unsqueeze2 reshape2 identity "
            "alias expand contiguous clone detach",
    "turn": "transpose permute t transpose2",
    "cat": "concat cat stack concatenation",
    "add": "add elementwise_add sum",
    "sub": "sub subtract elementwise_sub rsub",
    "mul": "mul multiply elementwise_mul scale",
    "div": "div divide elementwise_div true_divide",
    "take": "gather embedding index_select lookup_table_v2 select gathernd index",
    "softmax": "softmax _softmax",
    "log_softmax": "logsoftmax log_softmax _log_softmax",
    "mean": "reducemean mean globalaveragepool adaptive_avg_pool2d _adaptive_avg_pool2d avg_pool2d averagepool pool2d "
            "average_pool_2d",
    "max": "reducemax amax max maxpool max_pool2d max_pool2d_with_indices max_pool_2d reduce_max",
    "cast": "cast to _to_copy",
    "argmax": "argmax arg_max",
    "attention": "attention scaled_dot_product_attention",
}  # fmt: skip
_OF = {name: key for key, names in _FAMILIES.items() for name in names.split()}


def family_of_type(op_type: str) -> str:
    """Return the family of an operator type, "linear" for "Gemm", "aten.addmm" and "matmul_v2".

    Of an operator that stands alone it is its own plain name."""
    plain = op_type.rpartition(".")[2].lower()
    plain = plain.rstrip("_") or plain
    return _OF.get(plain, plain)


_HANDS_ON = way("graph neighbours: what the layer of the same name hands on")
_ONLY_ONE = way("graph neighbours: the only one of its family and shape in the layer of the same name")
_COMPUTED = way("graph neighbours: the same family of operator, inputs and shape")
_MOVES = frozenset({"view", "turn"})
"""Families that only move numbers: frameworks insert them at will, and being alone in a layer says nothing of them."""


def pair_layers(
    baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], known: Mapping[str, str],
    base_layer: Callable[[TensorMeta], str], target_layer: Callable[[TensorMeta], str],
) -> dict[str, tuple[str, Way]]:  # fmt: skip
    """Target name to (baseline name, how) of what is not known yet.

    baseline, target: in execution order, with those that were not seen. known: target name to baseline name, of pairs
    that values decided. base_layer, target_layer: the layer that a tensor was made in, "" not known.
    """
    ours, theirs = _Side(baseline, base_layer), _Side(target, target_layer)
    partner, found = dict(known), dict[str, tuple[str, Way]]()

    def pair(pairs: Iterable[tuple[str, str]], how: Way) -> bool:
        count = len(found)
        taken = set(partner.values())
        for name, base in pairs:
            if name not in partner and base not in taken and ours.shape(base) == theirs.shape(name):
                partner[name], found[name] = base, (base, how)
                taken.add(base)
        return len(found) > count

    handed = ours.handed_on(), theirs.handed_on()
    pair([(name, handed[0][layer]) for layer, name in handed[1].items() if layer in handed[0]], _HANDS_ON)
    alone = ours.alone(), theirs.alone()
    pair([(name, alone[0][key]) for key, name in alone[1].items() if key in alone[0]], _ONLY_ONE)
    while True:
        bases = {base: name for name, base in partner.items()}
        made = ours.computed(bases, bases), theirs.computed(partner, {name: name for name in partner})
        if not pair([(name, made[0][key]) for key, name in made[1].items() if key in made[0]], _COMPUTED):
            return found


class _Side:
    """seen: tensors with values, by name, in execution order."""

    def __init__(self, metas: Sequence[TensorMeta], layer_of: Callable[[TensorMeta], str]) -> None:
        self.inputs = {meta.name: meta.inputs for meta in metas}
        self.seen = {meta.name: meta for meta in metas if not meta.unseen}
        self.layer = {meta.name: layer_of(meta) for meta in metas}

    def shape(self, name: str) -> tuple[int | str, ...] | None:
        return self.seen[name].shape

    def handed_on(self) -> dict[str, str]:
        """Map each layer to its result: the only tensor made in it or below it that nothing in there reads.

        A layer that is called twice has two, and is not in it."""
        made: dict[str, dict[str, None]] = collections.defaultdict(dict)
        for name in self.seen:
            for layer in _list_enclosing_layers(self.layer[name]):
                made[layer][name] = None
        read: dict[str, set[str]] = collections.defaultdict(set)
        for name, inputs in self.inputs.items():
            for layer in _list_enclosing_layers(self.layer[name]):
                read[layer].update(inputs)
        found = {layer: [name for name in names if name not in read[layer]] for layer, names in made.items()}
        return {layer: ends[0] for layer, ends in found.items() if len(ends) == 1}

    def alone(self) -> dict[object, str]:
        """Return the only tensor of a family and shape in a layer, by these."""
        return _keep_unambiguous(
            ((self.layer[name], kind, meta.shape), name) for name, meta in self.seen.items()
            if (kind := family_of_type(meta.op_type)) not in _MOVES and not meta.is_output
        )  # fmt: skip

    def computed(self, paired: Collection[str], shared: Mapping[str, str]) -> dict[object, str]:
        """Return what is the only one of a family and shape that is computed from the same nearest pairs, by these.

        shared: a pair's name on the target's side.
        """
        return _keep_unambiguous(
            ((frozenset(shared[one] for one in sources), family_of_type(meta.op_type), meta.shape), name)
            for name, meta in self.seen.items()
            if name not in paired
            and (sources := find_nearest_known(lambda one: self.inputs.get(one, ()), name, paired))
        )


def _keep_unambiguous(named: Iterable[tuple[object, str]]) -> dict[object, str]:
    found: dict[object, list[str]] = collections.defaultdict(list)
    for key, name in named:
        found[key].append(name)
    return {key: names[0] for key, names in found.items() if len(names) == 1}


def _list_enclosing_layers(layer: str) -> list[str]:
    """Return a layer and all layers around it: "a", "a.b" and "a.b.c" of "a.b.c"; none of "", which is the model."""
    parts = layer.split(".") if layer else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]
