"""`choose` as a table: for a question and facts, the plan, or the need of the fact that is asked next. No arrays."""

from dataclasses import dataclass, replace
from math import inf

import pytest

from ozaki import Accuracy, Plan
from ozaki.bounds.description import Least
from ozaki.bounds.undecided import ABOVE, Crossings
from ozaki.planning.asking import question_of
from ozaki.planning.choose import choose
from ozaki.planning.facts import (
    CutBound,
    Facts,
    InnerRange,
    LeastProduct,
    NativeInRange,
    Need,
    Overlap,
    Ratio,
    RowsBound,
    Sample,
    Spans,
    UndecidedShare,
    WorstRatio,
)
from ozaki.planning.ordinary import foresee
from ozaki.records.options import Options
from ozaki.records.shapes import shapes
from ozaki.schemes import PRESETS, Digits, Residues
from ozaki.schemes.formats import H100


@dataclass(frozen=True)
class Machine:
    """A machine whose products take these times in seconds: native, of words, and `each` for every slice product."""

    native: float = 1.0
    words: float = inf
    each: float = 0.1
    name: str = "table"
    finds_facts_on_device: bool = False
    entry_apart: float = 500.0
    foretelling: float = inf

    def core(self):
        return H100

    def obstacle(self, scheme, engine):
        return None

    def seconds(self, sizes, dtype, way):
        if way is None:
            return self.native
        return self.each * way.products if way.exact else self.words

    def fastest(self, sizes, dtype, ways):
        return min(ways, key=lambda way: self.seconds(sizes, dtype, way))


QUICK_SLICES, QUICK_WORDS = Machine(each=0.01), Machine(words=0.1)
QUICK_DIGITS = Machine(words=0.0065, each=0.001)
WIDE = 300, 300
"""Spans of rows whose images are not exact with as many slices as anything is proven by."""

SAMPLED_SMOOTH = {Sample(): (Least(384.0, 300.0, 0, True),) * 2}
SAMPLED_PEAKS = {Sample(): (Least(1.0, 1.0, 0, True),) * 2}
HARDLY_SMOOTH, HARDLY_PEAKS = ({Sample(): (Least(384.0, sums, 0, True),) * 2} for sums in (35.0, 33.0))
"""Samples whose estimate for 3 digits (E4) is 1.45 and 1.54 times below what digits have to prove, at k = 2560."""


APART = replace(QUICK_SLICES, foretelling=2.0**25)


def crossings(bits, zeros=0):
    """Of 1000 entries, all but `zeros` of which have a boundary so many bits nearer than the error reaches."""
    return Crossings(((-ABOVE, 1000, zeros), (-bits, 1000, 1000 - zeros)), 1000)


_OF_THE_PRODUCT = "native_obstacle", "native_fits", "for_operands", "multiprecision", "expression"


def question(dtype="float64", machine=QUICK_SLICES, k=2048, **options):
    chosen = {name: options.pop(name) for name in _OF_THE_PRODUCT if name in options}
    return question_of(shapes((300, k), (k, 200)), dtype, Options(**options), machine, **chosen)


def ratio(worst, spans=WIDE):
    return Ratio(worst, spans, min(spans))


def compared(scheme, worst, level="sampled", **options):
    of_scheme = worst if isinstance(worst, Ratio) else ratio(worst)
    return {WorstRatio(scheme, level, **options): of_scheme, InnerRange(): 0}


def slices(scheme):
    return lambda answer: answer.scheme == scheme


def native(answer):
    return answer.native


def needs(need):
    return lambda answer: answer == need


FP64 = {"accuracy": "fp64", "reproducible": True}
ROW = {"accuracy": Accuracy("row-column", 1e-15), "reproducible": True}
HALFHALF = PRESETS["halfhalf"]
SMALL, LARGE = 2.0**-75, 2.0**-55
"""Worst ratios, in units of the level, that prove "fp64" at k = 2048, and that do not."""


def proven_by(count):
    """Worst ratios of the narrow level that prove "fp64" of `count` residues, and hardly do not of fewer."""
    return {WorstRatio(Residues(n), "narrow"): ratio(2.0**-59 if n < count else SMALL) for n in range(14, count + 1)}


ALL_UNDECIDED = {UndecidedShare(Residues(17)): crossings(8, zeros=1000)}

TABLE = {
    # No facts are asked.
    "a count": (question(scheme="residues", slices=9), {}, slices(Residues(9))),
    "native, by name": (question(scheme="native"), {}, native),
    "native is fastest": (question(machine=Machine()), {}, native),
    "native is fastest and proves enough, in range": (
        question(machine=Machine(native=0.5), accuracy=1e-9),
        {NativeInRange(): True},
        native,
    ),
    "whether it is in range is asked": (
        question(machine=Machine(native=0.5), accuracy=1e-9),
        {},
        needs(NativeInRange()),
    ),
    "an empty product": (question(k=0, **FP64), {}, lambda plan: plan.bound <= 2.0**-53),
    # Slices: the proof begins with those that ordinary operands need.
    "the first ratio": (question(**FP64), {}, needs(WorstRatio(Residues(14), "sampled"))),
    "proven": (question(**FP64), compared(Residues(14), SMALL), slices(Residues(14))),
    "not proven by a sample: all indices are read": (
        question(**FP64),
        compared(Residues(14), LARGE),
        needs(WorstRatio(Residues(14), "narrow")),
    ),
    "not proven by all indices: the next count that may do": (
        question(**FP64),
        compared(Residues(14), LARGE) | compared(Residues(14), LARGE, "narrow"),
        lambda need: isinstance(need, WorstRatio) and need.scheme.count > 14 and need.level == "narrow",
    ),
    "the wide level would save 29 slice products: not worth it": (
        question(scheme="residues", **FP64),
        compared(Residues(14), LARGE) | proven_by(14 + 29) | ALL_UNDECIDED,
        slices(Residues(14 + 29)),
    ),
    "the wide level would save 30": (
        question(scheme="residues", **FP64),
        compared(Residues(14), LARGE) | proven_by(14 + 30) | ALL_UNDECIDED,
        needs(WorstRatio(Residues(14), "wide")),
    ),
    "with 21 residues all images are exact, and nothing proves fewer: no level that may save 7 is asked": (
        question(scheme="residues", **FP64),
        compared(Residues(14), ratio(inf, (70, 60))) | compared(Residues(14), ratio(inf, (70, 60)), "narrow"),
        slices(Residues(21)),
    ),
    "with 19 residues all images are exact: a bound that may save some of them is asked for": (
        question(scheme="residues", **FP64),
        compared(Residues(14), ratio(LARGE, (60, 60))) | compared(Residues(14), ratio(LARGE, (60, 60)), "narrow"),
        lambda need: isinstance(need, WorstRatio) and 14 < need.scheme.count < 18,
    ),
    "residues are proven, and 2 digits fewer than usual would be faster: their proof begins": (
        question(accuracy=Accuracy("componentwise", 2.0**-36), reproducible=True),
        compared(Residues(11), 2.0**-51),
        needs(WorstRatio(Digits(4), "sampled", few_rows=True)),
    ),
    "3 digits fewer than usual would be: no proof of these is tried": (
        question(accuracy=Accuracy("componentwise", 2.0**-44), reproducible=True),
        compared(Residues(13), 2.0**-59),
        slices(Residues(13)),
    ),
    "exact images need no more": (
        question(**FP64),
        compared(Residues(14), ratio(0.0, (10, 10)))
        | compared(Residues(6), ratio(0.0, (10, 10)))
        | compared(Residues(5), LARGE),
        slices(Residues(6)),
    ),
    "digits dropped for nothing are not counted": (
        question(scheme="digits", slices=4, accuracy="fp32", k=500),
        {
            WorstRatio(Digits(4), "narrow"): ratio(LARGE, (5, 5)),
            WorstRatio(Digits(4), "narrow", drops=False): ratio(0.0, (5, 5)),
        },
        lambda plan: plan.bound == 2.0**-53,
    ),
    "more than ordinary operands need, where native is faster than so many": (
        question(machine=Machine(native=1.55)),
        {Overlap(): 1.0}
        | compared(Residues(14), LARGE)
        | compared(Residues(14), LARGE, "narrow")
        | compared(Residues(15), LARGE, "narrow")
        | compared(Residues(16), SMALL, "narrow"),
        native,
    ),
    "nothing has to be proven: a sample first": (question(), {}, needs(Overlap())),
    "a sample shows that slices will not be proven": (question(), {Overlap(): 0.05}, native),
    "a sample lets expect that they are": (question(), {Overlap(): 0.9}, needs(WorstRatio(Residues(14), "sampled"))),
    "it hardly does": (question(), {Overlap(): 0.063}, needs(WorstRatio(Residues(14), "sampled"))),
    "it hardly shows that they will not be": (question(), {Overlap(): 0.062}, native),
    # Bounds in other measures come from the descriptions of rows.
    "spans first": (question(**ROW), {}, needs(Spans())),
    "then the bound": (question(**ROW), {Spans(): WIDE}, lambda need: need.measure == "row-column"),
    "row-column": (
        question(scheme="residues", **ROW),
        {Spans(): WIDE, RowsBound(Residues(15), "row-column"): 0.9e-15},
        slices(Residues(15)),
    ),
    # Words: proven by the cheapest evidence, then by the least product.
    "words are asked": (question("float32", QUICK_WORDS), {}, needs(CutBound(HALFHALF))),
    "words prove enough": (
        question("float32", QUICK_WORDS),
        {CutBound(HALFHALF): 1e-5},
        slices(HALFHALF),
    ),
    "a product of magnitudes is asked": (
        question("float32", QUICK_WORDS),
        {CutBound(HALFHALF): inf},
        needs(LeastProduct()),
    ),
    "words that lose too much": (
        question("float32", QUICK_WORDS),
        {CutBound(HALFHALF): inf, LeastProduct(): 2.0**-100},
        needs(CutBound(PRESETS["tf32tf32"])),
    ),
    "no words prove enough, and slices are faster than the native product": (
        question("float32", Machine(words=0.1, native=2.0)),
        {CutBound(HALFHALF): inf, CutBound(PRESETS["tf32tf32"]): inf, LeastProduct(): 2.0**-100},
        needs(Overlap()),
    ),
    # Digits in place of words, where a sample finds the operands ordinary.
    "a sample is asked": (question("float32", QUICK_DIGITS, k=2560), {}, needs(Sample())),
    "ordinary: the proof begins": (
        question("float32", QUICK_DIGITS, k=2560),
        SAMPLED_SMOOTH,
        needs(WorstRatio(Digits(3), "sampled")),
    ),
    "not ordinary: words": (question("float32", QUICK_DIGITS, k=2560), SAMPLED_PEAKS, needs(CutBound(HALFHALF))),
    "hardly ordinary": (
        question("float32", QUICK_DIGITS, k=2560),
        HARDLY_SMOOTH,
        needs(WorstRatio(Digits(3), "sampled")),
    ),
    "hardly not": (question("float32", QUICK_DIGITS, k=2560), HARDLY_PEAKS, needs(CutBound(HALFHALF))),
    # Every bit is asked for.
    "exact: spans first": (question(accuracy="exact"), {}, needs(Spans())),
    "as few residues as hold every bit": (
        question(accuracy="exact"),
        {Spans(): (60, 50)},
        lambda plan: plan.scheme == Residues(19) and plan.unrounded_bound == 0,
    ),
    "how many entries fewer residues would leave undecided": (
        question(machine=APART, accuracy="exact"),
        {Spans(): (90, 90), InnerRange(): 0},
        needs(UndecidedShare(Residues(17))),
    ),
    "so few residues that hardly an entry is undecided": (
        question(machine=APART, accuracy="exact"),
        {Spans(): (90, 90), InnerRange(): 0, UndecidedShare(Residues(17)): crossings(8)},
        lambda plan: plan.undecided_apart and 18 <= plan.slices <= 22 and plan.unrounded_bound == 0,
    ),
    "every bit, where most entries would be": (
        question(machine=APART, accuracy="exact"),
        {Spans(): (90, 90), InnerRange(): 0, UndecidedShare(Residues(17)): crossings(8, zeros=500)},
        lambda plan: plan.scheme == Residues(27) and not plan.undecided_apart,
    ),
    "any range, if undecided entries are computed apart": (
        question(machine=APART, accuracy="exact"),
        {Spans(): (3000, 90), InnerRange(): 0, UndecidedShare(Residues(17)): crossings(8)},
        lambda plan: plan.undecided_apart and plan.slices <= 22,
    ),
    "not within an expression": (
        question(machine=APART, accuracy="exact", expression=True),
        {Spans(): (60, 50)},
        lambda plan: plan.scheme == Residues(19) and not plan.undecided_apart,
    ),
    "not where it would save nothing": (
        question(machine=APART, accuracy="exact"),
        {Spans(): (50, 40)},
        lambda plan: plan.scheme == Residues(16) and not plan.undecided_apart,
    ),
    "rather than far more residues than ordinary ones": (
        question(scheme="residues", **FP64),
        compared(Residues(14), LARGE) | proven_by(14 + 12) | {UndecidedShare(Residues(17)): crossings(8)},
        lambda plan: plan.undecided_apart and plan.slices <= 22 and plan.unrounded_bound == 0,
    ),
    "not rather than a few more": (
        question(scheme="residues", **FP64),
        compared(Residues(14), LARGE) | proven_by(14 + 7) | {UndecidedShare(Residues(17)): crossings(8)},
        slices(Residues(14 + 7)),
    ),
    "not where more is asked for than the format shows": (
        question(scheme="residues", accuracy=Accuracy("componentwise", 2.0**-80), reproducible=True),
        proven_by(40),
        lambda answer: not isinstance(answer, UndecidedShare),
    ),
    "as few digits, if these are named": (
        question(accuracy="exact", scheme="digits"),
        {Spans(): (60, 50)},
        slices(Digits(14)),
    ),
    "more digits than need be": (
        question(accuracy="exact", scheme="digits", slices=15),
        {Spans(): (60, 50)},
        slices(Digits(15)),
    ),
    "a setting makes the native product less than IEEE's": (
        question(machine=Machine(), native_obstacle="native product ruled out: a variable"),
        {},
        needs(WorstRatio(Residues(14), "sampled")),
    ),
}


@pytest.mark.parametrize("case", list(TABLE))
def test_table(case):
    asked, facts, expected = TABLE[case]
    answer = choose(asked, Facts(facts))
    assert isinstance(answer, Plan | Need)
    assert expected(answer), answer


@pytest.mark.parametrize("case", list(TABLE))
def test_the_same_answer_each_time(case):
    asked, facts, _ = TABLE[case]
    assert choose(asked, Facts(facts)) == choose(replace(asked), Facts(dict(reversed(facts.items()))))


@pytest.mark.parametrize("case", list(TABLE))
def test_other_facts_do_not_matter(case):
    """Facts that are not asked for change no answer, so a repeated call may have more facts than `choose` needs."""
    asked, facts, _ = TABLE[case]
    more = compared(Residues(30), inf) | compared(Digits(9), 0.0) | {RowsBound(Residues(31), "normwise"): 0.0}
    assert choose(asked, Facts(facts)) == choose(asked, Facts(more | facts))


def test_what_ordinary_operands_would_need():
    """`foresee` makes the choice with estimates for facts: the plan, and the needs of the facts that it asks for."""
    plan, asked = foresee(question(**FP64), Facts())
    assert plan.scheme == Residues(14)
    assert asked[0] == WorstRatio(Residues(14), "sampled")
    plan, asked = foresee(question(**ROW, scheme="residues"), Facts())
    assert asked[0] == Spans() and RowsBound(plan.scheme, "row-column") in asked
    plan, asked = foresee(question("float32", QUICK_DIGITS, k=2560), Facts(SAMPLED_SMOOTH))
    assert plan.scheme == Digits(3) and Sample() not in asked
    plan, asked = foresee(question("float32", QUICK_WORDS), Facts())
    assert plan.scheme == HALFHALF


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slices": 9}, r"^slices: 9 slices of scheme 'auto'"),
        ({"scheme": "residues", "slices": 0}, r"^slices: 0"),
        ({"scheme": "residues", "slices": 0, "accuracy": "exact"}, r"^slices: 0"),
        ({"scheme": "halfhalf"}, r"^scheme: halfhalf multiplies float32"),
        ({"scheme": "complex-residues"}, r"^scheme: 'complex-residues'"),
        ({"scheme": "digits", "multiprecision": True}, r"^scheme: 'digits' has no slices"),
        ({"scheme": "native", "reproducible": True}, r"^scheme: 'native' is not reproducible"),
        ({"scheme": "native", "accuracy": 1e-30}, r"^accuracy: 1e-30 is asked for, but the native product"),
        ({"scheme": "native", "accuracy": "exact"}, r"^accuracy: the native product is rounded on the way"),
        ({"scheme": "halfhalf", "accuracy": "exact", "dtype": "float32"}, r"^accuracy: .* halfhalf are rounded"),
    ],
)
def test_options_are_refused_with_the_question(options, message):
    """What no fact can make right is refused before a fact is asked for, and `choose` checks no option."""
    with pytest.raises(ValueError, match=message):
        question(**options)


def test_digits_that_leave_out_a_pair_are_not_exact():
    """13 digits hold the images of rows of 60 and 50 bits, but not all products of their digits."""
    asked = question(accuracy="exact", scheme="digits", slices=13)
    assert Digits(13).scaling(2048).base >= 60
    with pytest.raises(ValueError, match=r"^slices: 13 digits do not hold every bit"):
        choose(asked, Facts({Spans(): (60, 50)}))
