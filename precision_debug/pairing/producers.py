"""What the name of a tensor does not tell: whether its operator can have made it, and what it was before quantisation.

ONNX Runtime's quantiser drops a Relu, whose clamp the zero point does, and gives the Relu's name to what came before:
then equal names are different tensors. Only what can be told for sure is refused: a plain linear operator has not
computed an activation, nor the other way round; what a fusion or an engine calls its own may have.
"""

from __future__ import annotations

import re

__all__ = ["fits", "is_clamp", "plain_name"]

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


def plain_name(name: str) -> tuple[str, int]:
    """The tensor that a quantised form holds, and the rank of the form, 0 first; the name itself and -1 for others."""
    bare = _DECORATION.sub("", name)
    for rank, form in enumerate(_FORMS):
        if bare.endswith(form) and len(bare) > len(form):
            return bare.removesuffix(form), rank
    return name, -1
