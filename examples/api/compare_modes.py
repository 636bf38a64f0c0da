"""compare() from Python: two run modes of the digits model, and the rows of the table.

The command line does the same with a supervised child process around it; see the README for the difference.
"""

from __future__ import annotations

from pathlib import Path

import precision_debug

DIGITS = Path(__file__).parent.parent / "digits"


def main() -> None:
    for mode in ("ort_opt", "ort_int8"):
        report = precision_debug.compare(
            DIGITS / "digits.onnx",
            run_mode=mode,
            inputs=DIGITS / "test_images.npz",
            labels=DIGITS / "test_labels.npy",
            atol=1e-3,
            rtol=1e-3,
            output=f"output/digits_{mode}.xlsx",
        )
        first = report.first_mismatch
        print(f"{mode}: {report.verdict}; first mismatch: {first.name if first else 'none'}; {dict(report.scores)}")
        for row in report.rows:
            error = "" if row.relative_l2 is None else f"{row.relative_l2:.3g}"
            print(f"  {row.op_type:20s} {row.name:24s} {row.status:16s} {error}")


if __name__ == "__main__":
    main()
