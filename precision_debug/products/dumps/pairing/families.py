"""Operators of different frameworks that do the same: their family's name."""

from __future__ import annotations

__all__ = ["family"]

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


def family(op_type: str) -> str:
    """Return the family of an operator type, "linear" for "Gemm", "aten.addmm" and "matmul_v2".

    Of an operator that stands alone it is its own plain name."""
    plain = op_type.rpartition(".")[2].lower()
    plain = plain.rstrip("_") or plain
    return _OF.get(plain, plain)
