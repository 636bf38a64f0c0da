"""Every tensor of a model as Paddle-TRT computes it, beside Paddle FP32 without IR optimisation, in output.xlsx."""

import argparse

import precision_debug
from precision_debug.errors import PrecisionDebugError
from precision_debug.records import ModelFiles


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_file", default="", help="program of a combined model: .pdmodel, or .json of Paddle 3")
    parser.add_argument("--params_file", default="", help="its parameters: .pdiparams")
    parser.add_argument("--model_dir", default="", help="folder of a model, in place of the two files")
    parser.add_argument("--run_mode", required=True, help="trt_fp32, trt_fp16, trt_int8, gpu_fp16, onednn_bf16, ...")
    parser.add_argument("--baseline", default="paddle_fp32", help="the mode to compare with: cpu_fp32, gpu_fp32, ...")
    parser.add_argument("--inputs", default="", help="an .npz with an array for each input (default: seeded random)")
    parser.add_argument("--input_shapes", nargs="+", help="shapes of the random inputs: inputs:[1,3,224,224]")
    for name in ("atol", "rtol"):
        parser.add_argument(f"--{name}", type=float, default=1e-4, help="of numpy.isclose (default: 1e-4)")
    for name in ("min", "opt", "max"):
        parser.add_argument(f"--{name}_shapes", nargs="+", help="with --use_dynamic_shape 1: inputs:[1,3,112,112]")
    parser.add_argument("--use_dynamic_shape", type=int, help="1: build TensorRT for a range of shapes")
    parser.add_argument("--fused_only", type=int, help="1: only what the fused engine computes, its fusion untouched")
    parser.add_argument("--marks_between", nargs=2, metavar=("START", "END"), help="only the tensors from START to END")
    return parser.parse_args()


if __name__ == "__main__":
    args = {name: value for name, value in vars(parse_args()).items() if value is not None}
    model = ModelFiles(**{name: args.pop(name) for name in ("model_file", "params_file", "model_dir")})
    try:  # in a child process: where TensorRT ends it, what was finished is in the report
        report = precision_debug.compare(model, demo_sheet=True, output="output.xlsx", isolated=True, **args)
    except PrecisionDebugError as error:
        raise SystemExit(f"{error}") from error
    first = report.first_mismatch
    print(f"{report.verdict}: {len(report.compared)} compared, first mismatch: {first.name if first else 'none'}")
