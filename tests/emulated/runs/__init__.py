"""The names of the cases that run on an emulated device: of Hopper if the name begins with `HOPPER`, else of Ampere.

No case is imported here: its module imports CuPy, which must be the emulation by then.
"""

from __future__ import annotations

HOPPER = "hopper-"

FUNCTIONS = {
    "describing": ("descriptions", "magnitudes", "hopper-samples"),
    "proving": ("proofs", "exponents", "hopper-fused-proofs", "least-products", "hopper-least-products", "crossings"),
    "of_stacks": (
        *("found-of-stacks", "hopper-found-of-stacks", "products-of-stacks", "hopper-products-of-stacks"),
        "hopper-launches-of-stacks",
    ),
    "one_read": ("hopper-one-read", "hopper-words-in-one-read", "hopper-one-read-chosen"),
    "products": (
        "rows-for-cublas",
        "fp16-sums",
        "far",
        "many-blocks",
        "hopper-many-blocks",
        "matrices-in-turn",
        "hopper-matrices-in-turn",
        "kept-and-finished",
        "hopper-kept-and-finished",
        "out-that-shares-memory",
    ),
    "stacks": (
        "stacks",
        "hopper-stacks",
        "hard-stacks",
        "complex-stacks",
        "long-images",
        "tiles-in-turn",
        "stacks-at-the-end-of-memory",
    ),
    "tiles": (
        "hopper-together",
        "hopper-split-along-k",
        "hopper-column-tiles",
        "hopper-halves",
        "hopper-side-by-side",
        "hopper-fair-shares",
        "hopper-triangles",
    ),
    "thin": ("hopper-thin-products", "hopper-thin-in-rounds", "hopper-thin-otherwise", "hopper-thin-to-an-accuracy"),
    "bounding": ("bounds-of-entries", "hopper-bounds-of-products", "bounds-of-numbers", "bounds-within-limits"),
    "apart": (
        "values",
        "listed",
        "hopper-listed",
        "small-listed",
        "hopper-small-listed",
        "hopper-triangles-listed",
        "products-apart",
        "hopper-products-apart",
    ),
    "sixteen": (
        *("kinds-of-rows", "hopper-kinds-of-rows", "many-tiles", "hopper-many-tiles"),
        *("of-callers", "hopper-of-callers", "rows-within-limits", "hopper-rows-within-limits"),
        *("sixteen-expressions", "hopper-sixteen-expressions"),
    ),
    "inner": ("inner-scaling", "hopper-inner-scaling", "out-of-reach", "beside-prepared"),
    "verifying": (
        *("right-products", "hopper-right-products", "hopper-quadrants-projected", "refused"),
        *("flipped", "hopper-flipped", "hopper-flipped-quadrants", "lasting-faults", "hopper-lasting-faults"),
    ),
    "quadrants": ("hopper-quadrants", "hopper-winograd"),
    "several": (
        "several-devices",
        "hopper-several-devices",
        "through-one-device",
        "strips-of-devices",
        "given-plans",
        "refused-of-devices",
        *("memory-of-blocks", "interrupted", "unfinished-memory", "nothing-to-multiply", "refused-strips"),
        "command-line",
        "measured",
    ),
    "processes": (
        *(
            "shares-on-devices",
            "hopper-shares-on-devices",
            "through-memory-of-the-host",
            "refused-on-devices",
            "current-devices",
        ),
        *("panels-on-devices", "hopper-panels-on-devices", "panels-of-many-bits", "hopper-panels-of-many-bits"),
        *("panels-of-complex", "hopper-panels-of-complex", "panels-at-the-edges", "panels-of-transposes"),
        *("single-panels", "hopper-single-panels"),
        *("panels-within-limits", "hopper-panels-within-limits"),
    ),
    "in_parts": (*("added-on-devices", "hopper-added-on-devices", "planned-on-devices", "refused-parts"),),
    "dask_on_devices": (
        *("chunks-on-devices", "hopper-chunks-on-devices", "chunks-to-an-accuracy", "hopper-chunks-to-an-accuracy"),
        *("chunks-on-another-device", "refused-chunks"),
    ),
    "streams_of_programs": ("streams-of-threads", "threads-at-once"),
    "workspaces": (
        "hopper-within-limits",
        "hopper-panels",
        "hopper-workspaces",
        "planned-within-limits",
        "hopper-planned-within-limits",
    ),
    "wide": (
        *("leading-bits", "listed-programs", "hopper-listed-programs"),
        *("three-digits", "parts-of-k", "hopper-parts-of-pairs", "narrow-blocks", "panels-of-numbers", "hard-numbers"),
        "refusals",
    ),
    "limbs": ("zeros-and-windows", "sums-and-roundings", "floats"),
    "words": ("parts", "little-memory", "hopper-pairs", "hopper-pair-columns", "hopper-columns", "hopper-widths"),
    "choosing": (
        "plans",
        *("foretold", "hopper-foretold"),
        "empty-products",
        "hopper-empty-products",
        "hopper-engines",
        "hopper-fastest",
        "hopper-no-worse-than-native",
        "hopper-digits-where-ordinary",
        "hopper-words-for-a-target",
        "plans-of-other-operands",
        "hopper-plans-of-other-operands",
    ),
    "programs": (
        *("facts", "facts-within-limits", "facts-begun", "words-cut", "native-programs", "programs-of-one-array"),
        *("runs-at-once", "too-little-memory", "wide-magnitudes-on-host", "ends-of-products"),
        *("hopper-facts", "hopper-facts-begun", "hopper-words-cut"),
    ),
    "caches": (
        *("caches-cleared", "hopper-caches-cleared", "cleared-in-a-call", "programs-dropped", "runs-of-threads"),
    ),
    "repeated": (
        "batches-repeated",
        "expressions-repeated",
        "native-repeated",
        "native-views",
        "plans-repeated",
        "alternating-plans-repeated",
        "converted-operands",
        "other-plans-repeated",
        "heavy-plans-repeated",
        "memory-is-held",
        "refused-calls-hold-nothing",
        "programs-outlive-first-calls",
        "too-little-memory-repeated",
        "equal-choices-repeated",
        "hopper-listing-of-design",
    ),
}
"""Names of cases by module. A case is the function of that name, without `HOPPER` and with `_` for `-`."""

CASES = tuple(name for names in FUNCTIONS.values() for name in names)
