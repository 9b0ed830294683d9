"""Each promise of docs/explanation/guarantees.md has a test by name."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "explanation" / "guarantees.md"

PROMISES = {
    "`report.bound` is an upper bound": [
        "test_bound.py::test_bounds_of_random_data",
        "test_bound.py::test_bounds_of_adversarial_data",
        "test_bound.py::test_a_native_product_without_a_bound_says_so",
    ],
    "entries that NaN or Inf touch": ["test_relative.py::test_entries_that_nan_touches_do_not_count"],
    "entries that overflow, which are Inf": ["shared/test_values.py::test_overflow_gives_infinity"],
    "errors that A and B had before": [],  # no promise
    "So `report.bound * (abs(a) @ abs(b))` bounds": [
        "test_entry_bounds.py::test_the_one_bound_is_one_of_each_entry",
        "test_entry_bounds.py::test_no_bound_is_broken",
    ],
    "If you name an accuracy": [
        "test_bound.py::test_a_named_accuracy_is_met_whatever_runs",
        "test_plan.py::test_a_plan_is_refused_for_operands_that_it_does_not_suit",
        "test_plan.py::test_a_plan_serves_other_operands_and_the_report_proves_anew",
    ],
    "A plan that was made from shapes": ["test_bound.py::test_the_a_priori_bound_is_sharp"],
    "The same plan by slices gives the same bits": [
        "shared/test_products.py::test_the_bits_are_those_of_the_definition",
        "shared/test_published_bits.py::test_bits",
        "test_bits.py::test_tiles_and_panels_change_nothing",
        "shared/test_limits.py::test_a_limit_changes_nothing",
    ],
    "A new version of the library": [],  # a promise about people
    "With `workspace_limit=`": [
        "test_workspace.py::test_no_more_is_held_than_the_report_says_and_the_limit_allows",
        "test_workspace.py::test_a_plan_is_made_within_the_limit",
        "test_bits.py::test_no_more_memory_is_held_than_the_report_says",
    ],
    "What is cached between calls has a bound": [
        "shared/test_calls.py::test_nothing_of_a_product_is_kept_until_the_collector_runs",
        "test_caches.py::test_every_cache_has_a_name",
        "test_caches.py::test_results_are_the_same_once_caches_are_cleared",
        "test_caches.py::test_many_counts_keep_within_a_bound",
    ],
    "NaN and Inf in an operand reach exactly": [
        "shared/test_values.py::test_nonfinite_values_follow_ieee",
        "shared/test_values.py::test_nonfinite_elements_leave_all_other_entries_alone",
        "shared/test_values.py::test_the_accuracy_is_met_beside_nan_and_inf",
    ],
    "A result too large for its format": [
        "shared/test_values.py::test_overflow_gives_infinity",
        "shared/test_values.py::test_underflow_rounds_once",
    ],
    "All this holds also if another library": [
        "test_environment.py::test_bits_and_bounds_are_those_of_the_default_environment",
        "test_environment.py::test_an_error_gives_the_environment_back",
    ],
    "Operands are never modified": [
        "shared/test_calls.py::test_inputs_are_never_modified",
        "shared/test_calls.py::test_out_may_overlap_an_input",
    ],
    "A bad argument is an error": [
        "shared/test_refusals.py::test_bad_input",
        "test_errors.py::test_bad_input",
        "shared/test_values.py::test_reports_count_entries_out_of_range",
    ],
    "`verify=True` also checks what is computed": [
        "test_verify.py::test_a_flipped_bit_changes_no_result",
        "test_verify.py::test_a_lasting_fault_ends_the_product",
    ],
}
"""How each paragraph and item of the page begins, and the tests that would fail if it did not hold."""


def promises():
    """The paragraphs and items of the page, each in one line, without blocks and what is not guaranteed."""
    text = PAGE.read_text(encoding="utf-8").partition("## What is not guaranteed")[0]
    text = text[text.index("## ") :]
    text = re.sub(r"^```.*?^```$|^## [^\n]*$", "", text, flags=re.M | re.S)
    parts = re.split(r"\n\s*\n|^- ", text, flags=re.M)
    return [" ".join(part.split()) for part in parts if part.strip()]


@pytest.mark.parametrize("promise", promises())
def test_each_promise_has_tests(promise):
    begins = [start for start in PROMISES if promise.startswith(start)]
    assert len(begins) == 1, f"PROMISES lacks: {promise}"
    for name in PROMISES[begins[0]]:
        file, _, function = name.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_each_entry_is_of_a_promise():
    assert all(any(promise.startswith(start) for promise in promises()) for start in PROMISES)
