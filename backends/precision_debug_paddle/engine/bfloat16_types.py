"""Which operator types oneDNN runs in BF16 in a legacy program, by the names that they have when the pass sees them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["LOWERED", "all_but", "lowered_as"]

LOWERED = frozenset({
    "bilinear_interp_v2", "cast", "clip", "concat", "conv2d", "conv2d_transpose", "elementwise_add",
    "elementwise_mul", "expand_v2", "fc", "fused_conv2d", "fused_elementwise_add", "fused_elementwise_mul",
    "fused_matmul", "fusion_gru", "fusion_lstm", "gelu", "layer_norm", "matmul", "matmul_v2", "multi_gru",
    "pool2d", "prelu", "relu", "reshape2", "scale", "sigmoid", "slice", "softmax", "split", "squeeze",
    "squeeze2", "sum", "transpose2", "fused_transpose",
})  # fmt: skip
"""What oneDNN computes in BF16 where nobody names types: patterns::Bfloat16Placement in Paddle's
graph_pattern_detector.cc, and the names that its fusions give these operators. A list that is given takes the place of
this one as it is: a type in it that has no such kernel (batch_norm) makes Paddle fail, and one that is missing because
the pass sees it under its fused name leaves the operator in FP32."""

_SEEN_AS = {
    "conv2d": ("conv2d", "fused_conv2d"), "depthwise_conv2d": ("conv2d", "fused_conv2d"),
    "matmul": ("matmul", "fused_matmul"), "matmul_v2": ("matmul_v2", "fused_matmul", "fc"), "mul": ("mul", "fc"),
    "elementwise_add": ("elementwise_add", "fused_elementwise_add"),
    "elementwise_mul": ("elementwise_mul", "fused_elementwise_mul"), "transpose2": ("transpose2", "fused_transpose"),
    "gru": ("fusion_gru", "multi_gru"), "lstm": ("fusion_lstm",),
}  # fmt: skip
"""The names that an operator of the program may have when the pass that places BF16 sees it."""


def lowered_as(kind: str) -> tuple[str, ...]:
    """The names under which an operator of the program may be run in BF16; () where it never is."""
    return tuple(name for name in _SEEN_AS.get(kind, (kind,)) if name in LOWERED)


def all_but(kept: Collection[str], named: Sequence[str] = ()) -> tuple[str, ...]:
    """What to hand to ``set_bfloat16_op`` so that the types ``kept`` stay in FP32, and nothing else does.

    named: a list that the user has already, in place of all.
    """
    gone = {name for kind in kept for name in (kind, *lowered_as(kind))}
    return tuple(name for name in (named or sorted(LOWERED)) if name not in gone)
