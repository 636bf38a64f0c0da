"""What torch_compile runs: the kernels of its graph, in order, with the operators that were fused into each."""

# ruff: noqa: E402

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.backend import open_model
from precision_debug_torch.engine.kernels import kernels_of, record_sources
from precision_debug_torch.model import example_feeds, from_module

ON_A_GPU = """
def call(self, args):
    buf0 = empty_strided_cuda((4, 32), (32, 1), torch.float32)
    # Topologically Sorted Source Nodes: [input_1], Original ATen: [aten.t, aten.addmm]
    extern_kernels.addmm(arg1_1, arg2_1, reinterpret_tensor(arg0_1, (16, 32), (1, 16), 0), alpha=1, beta=1, out=buf0)
    # Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.gelu, aten.native_layer_norm]
    triton_per_fused_gelu_native_layer_norm_0.run(buf4, arg3_1, arg4_1, 4, 32, stream=stream0)
    # Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.gelu, aten.native_layer_norm]
    triton_per_fused_gelu_native_layer_norm_0.run(buf5, arg3_1, arg4_1, 4, 32, stream=stream0)
    return (buf9, )

def benchmark_compiled_module(args):
    extern_kernels.addmm(None)
"""


def test_of_a_gpu() -> None:
    product = kernels_of([ON_A_GPU])[0]
    assert [(one.name, one.shape, one.dtype) for one in product.outputs] == [("buf0", (4, 32), "FP32")]
    assert [(one.name, one.layer_type, one.onnx_nodes) for one in kernels_of([ON_A_GPU])] == [
        ("extern_kernels.addmm", "library", ("aten.t", "aten.addmm")),
        ("triton_per_fused_gelu_native_layer_norm_0", "Triton", ("aten.gelu", "aten.native_layer_norm")),
        ("triton_per_fused_gelu_native_layer_norm_0#2", "Triton", ("aten.gelu", "aten.native_layer_norm")),
    ]


def test_of_this_machine() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).eval()
    model = from_module(module, {"input": torch.randn(4, 16)})
    session = open_model(model, "torch_compile", {"device": "cpu"}, [example_feeds(model)])
    assert not session.layers
    outputs = session.run(example_feeds(model))
    kinds = [one.layer_type for one in session.layers]
    fused = [one for one in session.layers if one.layer_type == "C++"]
    assert "library" in kinds, "the product"
    assert any("gelu" in one.onnx_nodes[0] and "layer_norm" in one.onnx_nodes[0] for one in fused)
    assert {one.outputs[0].dtype for one in session.layers} == {"FP32"}
    before = session.layers
    again = session.run(example_feeds(model), lambda _kind, _name, _tensor: None)
    assert session.layers == before, "what is compiled to be shown is another graph"
    np.testing.assert_array_equal(again["output"], outputs["output"])
    session.close()


def test_nobody_listens_afterwards() -> None:
    from torch._inductor.graph import GraphLowering

    before = GraphLowering.save_output_code
    with record_sources():
        assert GraphLowering.save_output_code is not before
    assert GraphLowering.save_output_code is before
