"""Families of operators, in the words of ONNX, ATen, Paddle, OpenVINO and, in capitals, TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from ..records import Row, TensorMeta

__all__ = [
    "BODIES",
    "CANCEL",
    "CASTS",
    "JOIN",
    "MOVE",
    "REACH_FURTHER",
    "SELECT",
    "SQUARE_NOTHING",
    "SUM_UP",
    "TURNS",
    "find_reached",
    "find_rounded_numbers",
    "find_shape_makers",
    "plain_type",
    "split_words",
]  # fmt: skip

_T = TypeVar("_T")


def split_words(text: str) -> frozenset[str]:
    """Return a family, written as its words."""
    return frozenset(text.split())


MOVE = split_words("""
    Reshape Flatten Squeeze Unsqueeze Transpose Identity Slice Split Expand Tile Output Concat Dropout DepthToSpace
    SpaceToDepth Pad Shape Size ConstantOfShape Constant Cast view _unsafe_view reshape transpose permute unsqueeze
    squeeze expand select slice detach alias clone unbind split chunk contiguous t as_strided cat stack flatten to
    _to_copy copy copy_ reshape2 transpose2 squeeze2 unsqueeze2 concat assign fetch feed lift_fresh split_with_sizes
    _reshape_alias unfold unflatten repeat expand_as flip roll pixel_shuffle pixel_unshuffle constant_pad_nd _conj
    VariadicSplit StridedSlice Broadcast ShapeOf Convert ReverseSequence ShuffleChannels BatchToSpace SpaceToBatch
    view_as_real view_as_complex diagonal narrow Dropout1d Dropout2d Unflatten PixelShuffle ZeroPad2d
    RESHAPE TRANSPOSE SQUEEZE EXPAND_DIMS SLICE STRIDED_SLICE SPLIT SPLIT_V CONCATENATION PAD PADV2 MIRROR_PAD TILE
    BROADCAST_TO SPACE_TO_DEPTH DEPTH_TO_SPACE SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND PACK UNPACK CAST SHAPE RANK FILL
    REVERSE_V2 REVERSE_SEQUENCE
    add_grad assign_grad reshape_grad transpose_grad squeeze_grad unsqueeze_grad flatten_grad concat_grad stack_grad
    split_grad split_with_num_grad unbind_grad slice_grad getitem
""")
"""They only move numbers about, and never take blame."""

TURNS = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""They turn numbers into integers or back, and compute nothing else."""

REORDER = split_words("""
    Transpose transpose permute t flip roll transpose2 TRANSPOSE DepthToSpace SpaceToDepth pixel_shuffle pixel_unshuffle
    PixelShuffle ShuffleChannels BatchToSpace SpaceToBatch ReverseSequence SPACE_TO_DEPTH DEPTH_TO_SPACE
    SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND REVERSE_V2 REVERSE_SEQUENCE
""")
"""Those of them that put elements into another order."""

BODIES = split_words("Loop Scan If while if while_loop cond conditional_block TensorIterator IF WHILE CALL")
"""They have graphs inside, of which their results are."""

CASTS = split_words("_to_copy to Cast cast")
"""They change a floating-point type, and may do nothing else."""

JOIN = split_words("Concat concat cat stack CONCATENATION PACK")
"""Of these, quantised ones round again: all that they join gets one range."""

SELECT = split_words("""
    Gather GatherElements GatherND TopK MaxPool GlobalMaxPool ReduceMax ReduceMin Max Min Where Clip Relu Compress
    ScatterND ScatterElements ScatterUpdate Trilu gather index index_select embedding take_along_dim topk sort amax
    amin max min maximum minimum where clamp clip relu max_pool2d max_pool2d_with_indices scatter tril triu
    masked_fill gather_nd top_k_v2 tril_triu max_pool GatherTree Maximum Minimum Select Clamp
    GATHER GATHER_ND TOPK_V2 MAX_POOL_2D REDUCE_MAX REDUCE_MIN MAXIMUM MINIMUM RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1
    SELECT SELECT_V2 WHERE SCATTER_ND EMBEDDING_LOOKUP RESIZE_NEAREST_NEIGHBOR
""")
"""They choose among numbers and leave them as they are: rounded there again, they are as coarse again."""

REACH_FURTHER = split_words("""
    Exp Softmax LogSoftmax LayerNormalization InstanceNormalization GroupNormalization BatchNormalization Pow ReduceL2
    ReduceSumSquare ReduceLogSumExp SkipLayerNormalization SimplifiedLayerNormalization LpNormalization
    RMSNormalization Gelu FastGelu Cosh Sinh Softplus Attention native_layer_norm layer_norm softmax _softmax
    log_softmax exp pow norm rms_norm native_group_norm batch_norm _native_batch_norm_legit_no_training
    scaled_dot_product_attention logsumexp var gelu linalg_vector_norm _fused_rms_norm native_batch_norm var_mean std
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention cosh sinh softplus expm1
    BatchNormInference MVN NormalizeL2 SoftPlus ScaledDotProductAttention RMS Power
    _scaled_dot_product_efficient_attention cudnn_batch_norm LayerNorm RMSNorm GroupNorm BatchNorm1d BatchNorm2d
    InstanceNorm2d Softplus GELU MultiheadAttention
    SOFTMAX LOG_SOFTMAX EXP POW SQUARE L2_NORMALIZATION SQUARED_DIFFERENCE LOCAL_RESPONSE_NORMALIZATION
""")
"""They compute squares, exponentials or sums on the way that reach beyond their inputs and results."""

SQUARE_NOTHING = split_words("""
    BatchNormalization batch_norm _native_batch_norm_legit_no_training native_batch_norm BatchNormInference
    cudnn_batch_norm BatchNorm1d BatchNorm2d
""")
"""Of these, those that use statistics of the model's own: nothing reaches beyond their inputs and constants."""

SUM_UP = split_words("""
    matmul_grad conv2d_grad embedding_grad
    MatMul Gemm Conv ConvTranspose ReduceSum ReduceMean CumSum GlobalAveragePool Einsum QLinearMatMul QLinearConv
    Convolution GroupConvolution ConvolutionBackpropData GroupConvolutionBackpropData FullyConnected
    FusedConv FusedMatMul mm addmm bmm baddbmm matmul linear convolution conv2d sum mean cumsum matmul_v2 reduce_sum
    reduce_mean Linear Conv1d Conv2d Conv3d ConvTranspose2d dot mv mkldnn_linear logcumsumexp cumprod prod
    CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV CONV_3D FULLY_CONNECTED BATCH_MATMUL SUM MEAN AVERAGE_POOL_2D CUMSUM
""")

CANCEL = split_words("""
    Sub Add Sum Subtract sub add subtract elementwise_sub elementwise_add add_ sub_ ReduceSum ReduceMean sum mean rsub
    scale SUB ADD ADD_N SUM MEAN
""")
"""What they give can be far smaller than what they are given."""


def plain_type(op_type: str) -> str:
    """Return "aten.add.Tensor", "aten.add_" and "pd_op.add:3" to "add"; ONNX's own as they are."""
    text = op_type.partition(":")[0]
    for prefix in ("aten.", "aten::", "pd_op.", "onednn_op."):
        if text.startswith(prefix):
            text = text.removeprefix(prefix).partition(".")[0]
            return text if text.endswith("__") else text.removesuffix("_")
    return text


# Tensors that decide other tensors' shapes: rounded like the rest, they would make another model of it.

_BY_SHAPE = split_words("""
    Range arange range RANGE Resize Upsample Interpolate interpolate Expand expand expand_v2 Tile tile Reshape reshape
    reshape2 Slice slice StridedSlice strided_slice Pad pad pad3d ConstantOfShape full Broadcast TopK topk OneHot
    one_hot Split split BROADCAST_TO FILL TILE RESHAPE SLICE STRIDED_SLICE PAD PADV2 RESIZE_BILINEAR
    RESIZE_NEAREST_NEIGHBOR linspace eye EyeLike
""")
"""Operators whose results' shapes follow from values that they read."""

_FEW = 16
"""Elements up to which a tensor may be such values: dimensions, scales, limits."""


def find_reached(
    begin: Iterable[_T], next_of: Callable[[_T], Iterable[_T]], passes: Callable[[_T], bool] | None = None
) -> list[_T]:  # fmt: skip
    """Return what comes after some, one after the other; nothing is reached through what does not pass."""
    found, waiting = dict[_T, None](), list(begin)
    while waiting:
        for one in next_of(waiting.pop()):
            if one not in found:
                found[one] = None
                if passes is None or passes(one):
                    waiting.append(one)
    return [*found]


def find_shape_makers(tensors: Sequence[TensorMeta], row_of: Mapping[str, Row]) -> Collection[str]:
    """Return names of small tensors that such operators read, and of small ones that these are made from."""
    meta_of = {meta.name: meta for meta in tensors}

    def small(name: str) -> bool:
        row = row_of.get(name)
        if row is not None and row.comparison is not None:
            return row.comparison.base.elements <= _FEW
        count = 1
        for size in meta_of[name].shape or ():
            count *= size if isinstance(size, int) else _FEW + 1
        return count <= _FEW

    def read(meta: TensorMeta) -> list[str]:
        return [name for name in meta.inputs if name in meta_of and small(name)]

    first = [name for meta in tensors if plain_type(meta.op_type) in _BY_SHAPE for name in read(meta)]
    return {*first, *find_reached(first, lambda name: read(meta_of[name]))}


# Whole numbers that are floats, rounded: pixels of a picture, say.
#
# What they are off by is the error of a number. A class, an index or a truth value that is another one is another
# answer, however near: what compares, chooses or counts makes no rounded numbers, and nor does what is computed of
# these alone.

_ROUND = split_words("""
    Round Floor Ceil Ceiling Clip Min Max Relu round floor ceil trunc clamp clip relu minimum maximum Minimum Maximum
    Clamp
""")
"""They make whole numbers of floats, or keep numbers within limits."""

_PART_BY_PART = split_words("""
    Mul Add Sub Div Neg Abs mul add sub div rsub neg abs multiply subtract divide elementwise_mul elementwise_add
    elementwise_sub elementwise_div scale Multiply Subtract Divide
""")
"""Arithmetic that leaves a class what it is: twice a class is a class."""


def find_rounded_numbers(tensors: Mapping[str, TensorMeta]) -> frozenset[str]:
    """Return the names of those, of a graph's tensors by name; a tensor whose type is not known is none."""
    return frozenset(
        name for name, meta in tensors.items() if _is_whole_number_type(meta) and _is_rounded(name, tensors)
    )


def _is_whole_number_type(meta: TensorMeta) -> bool:
    return meta.dtype.startswith(("int", "uint"))


def _is_rounded(name: str, tensors: Mapping[str, TensorMeta]) -> bool:
    waiting, seen, made = [name], {name}, False
    while waiting:
        meta = tensors.get(waiting.pop())
        if meta is None or meta.op_type == "Constant":
            continue  # a limit, a factor
        is_float, kind = "float" in meta.dtype, plain_type(meta.op_type)
        if kind in MOVE or kind in _ROUND or (is_float and kind in _PART_BY_PART):
            waiting += [one for one in meta.inputs if one not in seen]
            seen |= {*meta.inputs}
        elif not is_float:
            return False
        else:
            made = True
    return made
