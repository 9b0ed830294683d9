#!/usr/bin/env bash
# ONNX Runtime: a model that scales float32 operands by constants and then multiplies them is changed into one that
# multiplies them as they are and scales the product, by the product of the constants in float32: what the model keeps
# in range becomes NaN, Inf or 0. This is the default, on a CPU, too, from the level ORT_ENABLE_EXTENDED on. At the
# level below, without the optimizer "MatMulScaleFusion", and of float64 operands, results are those of the model.
# seen: onnxruntime 1.32.0
# seen: float32, (Mul 2^100 2^-75) @ (Mul 2^100 2^-75): nan by FusedMatMul; basic level 2^50, without it 2^50
# seen: float32, (Mul 2^100 2^-75) @ 2^100: inf by FusedMatMul; basic level 2^125, without it 2^125
# seen: float32, (Mul 2^-100 2^100) @ 2^-100: 0 by FusedMatMul; basic level 2^-100, without it 2^-100
# seen: float32, (Div 2^100 2^75) @ 2^100: inf by FusedMatMul; basic level 2^125, without it 2^125
# seen: float64, (Mul 2^700 2^-525) @ (Mul 2^700 2^-525): 2^350 by Mul Mul MatMul; basic level 2^350, without it 2^350
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
"$folder/env/bin/python" -W ignore - "$folder/model.onnx" <<'PYTHON'
import math
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
BASIC = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


def product(dtype, operation, a, b, scales, level=None, disabled=()):
    """The product of 1 x 1 matrices 2^a and 2^b, scaled by powers of two, and the operations that ran."""
    nodes, factors, constants = [], [], []
    for name, scale in zip("ab", scales):
        if scale is not None:
            constants.append(numpy_helper.from_array(np.array(2.0**scale, dtype), "of " + name))
            nodes.append(helper.make_node(operation, [name, "of " + name], ["scaled " + name]))
        factors.append(name if scale is None else "scaled " + name)
    nodes.append(helper.make_node("MatMul", factors, ["c"]))
    inputs = [helper.make_tensor_value_info(name, TYPES[dtype], [1, 1]) for name in "ab"]
    result = [helper.make_tensor_value_info("c", TYPES[dtype], [1, 1])]
    graph = helper.make_graph(nodes, "scaled", inputs, result, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = sys.argv[1]
    if level is not None:
        options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled)
    )
    (c,) = session.run(None, {name: np.array([[2.0**x]], dtype) for name, x in (("a", a), ("b", b))})
    return c.item(), [node.op_type for node in onnx.load(sys.argv[1]).graph.node]


def shown(x):
    return f"2^{math.log2(x):g}" if 0 < x < math.inf else f"{x:g}"


print("onnxruntime", onnxruntime.__version__)
found = []
for case in (
    ("float32", "Mul", 100, 100, (-75, -75)),
    ("float32", "Mul", 100, 100, (-75, None)),
    ("float32", "Mul", -100, -100, (100, None)),
    ("float32", "Div", 100, 100, (75, None)),
    ("float64", "Mul", 700, 700, (-525, -525)),
):
    dtype, operation, a, b, scales = case
    by_default, operations = product(*case)
    basic, _ = product(*case, level=BASIC)
    without, _ = product(*case, disabled=["MatMulScaleFusion"])
    words = [f"2^{x}" if s is None else f"({operation} 2^{x} 2^{s})" for x, s in zip((a, b), scales)]
    print(f"{dtype}, {' @ '.join(words)}: {shown(by_default)} by {' '.join(operations)};", end=" ")
    print(f"basic level {shown(basic)}, without it {shown(without)}")
    signs = 1 if operation == "Mul" else -1
    model = 2.0 ** (a + b + signs * sum(s for s in scales if s is not None))
    assert basic == without == model
    found.append(by_default == model)
assert found == [False] * 4 + [True]
PYTHON
