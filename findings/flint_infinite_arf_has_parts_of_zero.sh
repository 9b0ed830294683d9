#!/usr/bin/env bash
# python-flint: man_exp() of an arf that is Inf or NaN is (0, 0), the parts of zero, without an error, where
# Python's float.as_integer_ratio raises.
# seen: inf (0, 0) finite: False
# seen: -inf (0, 0) finite: False
# seen: nan (0, 0) finite: False
# seen: 0 (0, 0) finite: True
# seen: float: OverflowError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check python-flint==0.9.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import flint

for value in ("inf", "-inf", "nan", 0):
    print(value, flint.arf(value).man_exp(), "finite:", flint.arf(value).is_finite())
try:
    float("inf").as_integer_ratio()
except OverflowError as error:
    print("float:", type(error).__name__)
assert tuple(map(int, flint.arf("inf").man_exp())) == (0, 0)
PYTHON
