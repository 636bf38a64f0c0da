"""Names of operator calls and module calls: equal in every run mode of a model, whatever casts a mode inserts.

A module's call is its path, "@2" from its second call on. An operator's call is ``<module call>/<operator>``, "#2" from
the second one inside the same module call on. A cast is named after what it casts, ``<source>:to[float]``, so that the
casts which autocast inserts shift no other name.
"""

from __future__ import annotations

import collections
import functools
from typing import Any, NamedTuple

__all__ = ["QUANTISED", "ROOT", "Namer", "canonical_name", "is_bookkeeping", "op_type"]

ROOT = "(model)"

QUANTISED = ("int8.", "float8.", "int4.")
"""What operator types of quantised layers begin with."""

_SAME = {
    "cudnn_batch_norm": "batch_norm",
    "miopen_batch_norm": "batch_norm",
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_batch_norm_no_update": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "_fused_rms_norm": "rms_norm",
    "_convolution": "convolution",
    "cudnn_convolution": "convolution",
    "mkldnn_convolution": "convolution",
    "convolution_overrideable": "convolution",
    "_scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "_scaled_dot_product_efficient_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_cudnn_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_fused_attention_overrideable": "scaled_dot_product_attention",
    "_unsafe_view": "view",
    "_reshape_alias": "view",
    "_to_copy": "to",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
}
"""Kernels of one operator, which dtype and device choose between, under one name."""


def canonical_name(operator: str) -> str:
    """Return the name of an ATen operator without kernel and in-place marks: "relu_" and "relu" are "relu"."""
    plain = operator[:-1] if operator.endswith("_") and not operator.endswith("__") else operator
    return _SAME.get(plain, plain)


_FOR_BACKWARD = {
    "_embedding_bag", "_embedding_bag_forward_only", "_fused_dropout", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell",
    "log_sigmoid_forward", "native_dropout", "nll_loss2d_forward", "nll_loss_forward",
}  # fmt: skip


def is_bookkeeping(operator: str, place: int, function: str) -> bool:
    """Return whether a kernel's further result is only kept for a backward pass: statistics, indices, workspaces.

    function: torch's function that called the kernel, "" where none did; whoever calls the kernel itself, or asks for
    the indices, gets them and may read them.
    """
    if place == 0:
        return False
    if "max_pool" in operator:  # an operator that nobody called by a function may have been called for its indices
        return function != "" and "with_indices" not in function
    if function == operator or (operator, place) == ("_thnn_fused_lstm_cell", 1):
        return False
    one = _SAME.get(operator, operator)
    return one.endswith("_norm") or one == "scaled_dot_product_attention" or operator in _FOR_BACKWARD


def op_type(func: Any) -> str:
    """Return "aten.convolution", as torch calls it; "higher_order.flex_attention" where functions are among its
    arguments."""
    schema = getattr(func, "_schema", None)
    return schema.name.replace("::", ".") if schema is not None else f"higher_order.{func.name()}"


@functools.lru_cache(maxsize=4096)
def _plain_name(func: Any) -> str:
    return canonical_name(op_type(func).partition(".")[2])


class _Scope(NamedTuple):
    """What runs now, and how often it called each operator. family: its kind, where it is a call of a family."""

    scope: str
    family: str
    counts: collections.Counter[str]


class Namer:
    """Counts calls during one run. Not shared between threads.

    quantised: paths of modules whose operators are others than the baseline's; their ``type`` before them ("int8.")
    keeps them apart.
    """

    def __init__(self, quantised: frozenset[str] = frozenset(), type: str = "int8") -> None:
        self.prefix = ""
        self._quantised, self._mark = quantised, f"{type}."
        self._modules: collections.Counter[str] = collections.Counter()
        self._taken: collections.Counter[str] = collections.Counter()
        self._stack = [_Scope("", "", collections.Counter())]
        self._elsewhere: dict[str, collections.Counter[str]] = {}

    def begin(self, prefix: str) -> None:
        """All operators and modules that follow are another rank's, and are counted anew; what names begin with."""
        self.prefix = prefix
        self._modules.clear()
        self._elsewhere.clear()
        self._stack = [_Scope("", "", collections.Counter())]

    def enter(self, path: str) -> str:
        """A module is called; returns the call's name."""
        self._modules[path] += 1
        count = self._modules[path]
        name = (path or ROOT) if count == 1 else f"{path or ROOT}@{count}"
        self._stack.append(_Scope(name if path or count > 1 else "", "", collections.Counter()))
        return name

    def enter_family(self, name: str) -> str:
        """Return a call that torch may do by several operators; returns its name, which is that of its one kernel
        too."""
        call = self._counted(name)
        self._stack.append(_Scope(call, name, collections.Counter()))
        return call

    def leave(self) -> None:
        """The call of a module or family ended."""
        self._stack.pop()

    @property
    def family(self) -> str:
        """The name of the call whose operators run now; "" outside of such calls."""
        return self._stack[-1].scope if self._stack[-1].family else ""

    @property
    def module(self) -> str:
        """The name of the module call that runs now."""
        now = self._stack[-1]
        return self._stack[-2].scope if now.family else now.scope

    def operator(self, func: Any) -> str:
        """Return the name of an operator call inside the call that runs now."""
        now = self._stack[-1]
        name = _plain_name(func)
        if self._quantised and now.scope.partition("@")[0] in self._quantised:
            name = f"{self._mark}{name}"
        return self._unique(self.prefix + (now.scope if name == now.family else self._counted(name)))

    def is_own(self, name: str) -> bool:
        """Return whether a quantised layer's operators make it, which the model before quantisation does not have."""
        return bool(self._quantised) and name.rpartition("/")[2].startswith(self._mark)

    def operator_in(self, scope: str, func: Any) -> str:
        """Return the same inside a scope that is not a call of a module."""
        counts = self._elsewhere.setdefault(scope, collections.Counter())
        name = _plain_name(func)
        counts[name] += 1
        full = f"{self.prefix}{scope}/{name}"
        return self._unique(full if counts[name] == 1 else f"{full}#{counts[name]}")

    @property
    def in_module(self) -> bool:
        """Whether a module call runs now."""
        return len(self._stack) > 1

    def _counted(self, name: str) -> str:
        scope, counts = self._stack[-1].scope, self._stack[-1].counts
        counts[name] = count = counts[name] + 1
        call = name if count == 1 else f"{name}#{count}"
        return f"{scope}/{call}" if scope else call

    def further(self, func: Any, name: str, place: int) -> str:
        """Return the name of a further result; a kernel's own (a batch norm's saved mean, …) are named after the
        kernel."""
        kernel = op_type(func).partition(".")[2]
        if kernel not in _SAME or self._mark in name:
            return self._unique(f"{name}[{place}]")
        scope, _, call = name.rpartition("/")
        own = f"{kernel}#{call.partition('#')[2]}" if "#" in call else kernel
        return self._unique(f"{scope}/{own}[{place}]" if scope else f"{own}[{place}]")

    def cast(self, source: str, dtype: Any) -> str:
        """Return the name of a cast of a named tensor. Any floating type is "float": a run mode chooses which."""
        kind = "float" if dtype.is_floating_point else str(dtype).removeprefix("torch.")
        before = "" if source.startswith(self.prefix) else self.prefix
        return self._unique(f"{before}{source}:to[{kind}]")

    def plain(self, name: str) -> str:
        """Return a name as it is, unless it was given before."""
        return self._unique(name)

    def _unique(self, name: str) -> str:
        self._taken[name] = count = self._taken[name] + 1
        return name if count == 1 else f"{name}~{count}"
