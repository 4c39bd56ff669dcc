"""Formulas evaluate what is on the list and nothing else."""

from __future__ import annotations

import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import softmargin
from softmargin.estimators.formula._terms import learned

pytest.importorskip("formulae")
from formulae.categorical import ENCODINGS
from formulae.terms import call_resolver
from formulae.transforms import TRANSFORMS


def table(n=12):
    rng = np.random.default_rng(0)
    columns = {"y": np.arange(n) % 2, "x": rng.normal(size=n), "z": rng.uniform(1, 2, n)}
    return pd.DataFrame({**columns, "a": list("pqr") * (n // 3), "g": np.arange(n) % 4})


DANGEROUS = [
    "np.f2py.os.system('touch pwned')",
    "np.load('pwned.npy', allow_pickle=True)",
    "np.savetxt('pwned', x)",
    "np.save('pwned', x)",
    "np.memmap('pwned', mode='w+', shape=3)",
    "np.fromfile('pwned')",
    "np.vectorize(np.log)(x)",
    "np.frompyfunc(print, 1, 1)",
    "np.add.reduce(x)",
    "np.log.__call__(x)",
    "np.log(x, out=z)",
    "np.log(x, z)",
    "np.clip(x, 0, 1, z)",
    "np.add(x, 'touch pwned')",
    "np.modf(x)",
    "np.matmul(x, z)",
    "np.mean(x)",
    "np.__class__(x)",
    "x.to_csv('pwned')",
    "a.str.upper(x)",
    "eval('1')",
    "exec('1')",
    "open('pwned', 'w')",
    "getattr(x, 'to_csv')",
    "softmargin.fit(x)",
    "log(x)(z)",
    "center(x, eval('1'))",
    "C(a, levels=eval('1'))",
    "bs(x, df=np.load('pwned'))",
    "I(table())",
    "center('x')",
    "C(a['p'])",
    "C(data=a)",
]


@pytest.mark.parametrize("term", DANGEROUS)
@pytest.mark.parametrize("place", ["y ~ x + {}", "y ~ x + (1 | {})", "y ~ x + ({} | g)", "{} ~ x", "y ~ C(center({}))"])
def test_what_is_not_on_the_list_is_refused(term, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = table()
    with (
        mock.patch.object(call_resolver, "get_function_from_module") as found,
        pytest.raises(ValueError, match="may not do") as caught,
    ):
        softmargin.fit(place.format(term), data)
    assert not found.called and not list(tmp_path.iterdir())
    message = str(caught.value)
    assert "which formulas may not do; they may call log, exp" in message and message.endswith("first.")
    pd.testing.assert_frame_equal(data, table())


def test_the_refusal_names_the_call():
    with pytest.raises(
        ValueError, match=r"^the formula .* calls 'np.f2py.os.system', which formulas may not do; .*\.$"
    ):
        softmargin.fit("y ~ x + np.f2py.os.system('touch pwned')", table())


@pytest.mark.parametrize(
    ("term", "want"),
    [
        ("log(z)", lambda d: np.log(d["z"])),
        ("np.log1p(z)", lambda d: np.log1p(d["z"])),
        ("abs(x)", lambda d: np.abs(d["x"])),
        ("np.where(x > 0, x, 0)", lambda d: np.maximum(d["x"], 0)),
        ("clip(x, 0, 1)", lambda d: np.clip(d["x"], 0, 1)),
        ("power(z, 2) ", lambda d: d["z"] ** 2),
        ("np.hypot(x, z)", lambda d: np.hypot(d["x"], d["z"])),
        ("{exp(x) / sqrt(z)}", lambda d: np.exp(d["x"]) / np.sqrt(d["z"])),
        ("{a == 'p'}", lambda d: (d["a"] == "p").astype(float)),
        ("log", lambda d: d["log"]),
        ("x.1", lambda d: d["x.1"]),
    ],
)
def test_what_is_on_the_list_is_evaluated(term, want):
    data = table().assign(**{"log": lambda d: d["x"] + 1.0, "x.1": lambda d: d["x"] - 1.0})
    made = learned(f"y ~ {term}", data)[0].frame(data)
    np.testing.assert_allclose(made.iloc[:, 0], want(data), rtol=0, atol=1e-12)


def test_names_of_the_caller_are_not_columns():
    secret = table()["x"]  # in the frame that calls
    with pytest.raises(ValueError, match="no column 'secret'"):
        softmargin.fit("y ~ x + secret", table())
    with pytest.raises(ValueError, match="no column 'np'"):
        softmargin.fit("y ~ I(np)", table())
    assert len(secret) == 12


HARMLESS = [
    "np.log1p({})", "abs({})", "center({})", "scale({})", "{{{} > 0}}", "I({} * {})", "np.where({} > 0, {}, 1)", "({})",
    "clip({}, 0, 1)", "poly({}, 2)", "bs({}, df=4)", "C({})", "T({})", "I(C({}))", "{} + {}", "{} + {}", "{}:{}",
    "{} * {}",
]  # fmt: skip
WILD = [
    "np.load({}, allow_pickle={})", "np.f2py.os.system({})", "np.savetxt({}, {})", "np.vectorize({})({})", "eval({})",
    "np.log.reduce({})", "np.log({}, out={})", "np.__class__({})", "open({}, 'w')", "getattr({}, {})", "{}.to_csv({})",
    "__import__({})", "s({})", "s({}, knots={})", "B({}, {})", "p({}, {})", "offset({})", "bs({}, knots={})", "{}({})",
    "C({}, levels={})", "T({}, ref={})", "{}[{}]", "(1 | {})", "({} | {})", "{} == {}", "{} = {}", "{} {}", "{}, {}",
    "{}.{}", "-{}", "{} - {}", "{} / {}", "({})**{}", "{{{}}}", "np.frompyfunc({}, 1, 1)", "np.fromfile({})",
    "{{{}**{}}}",
]  # fmt: skip
COLUMNS = st.sampled_from(["x", "z", "g", "`x`"])
ATOMS = st.sampled_from(
    ["x", "a", "'p'", "'pwned'", "1", "0", "2", "0.5", "True", "None", "np", "Sum", "secret", "__x__"]
)


def filled(templates):
    """Templates with something in their holes."""
    hole = st.sampled_from(templates)
    return lambda inner: st.builds(lambda form, parts: form.format(*parts), hole, st.tuples(inner, inner, inner))


TAME = st.recursive(COLUMNS, filled(HARMLESS), max_leaves=4)
EXPRESSIONS = TAME | st.recursive(COLUMNS | ATOMS, filled(HARMLESS + WILD), max_leaves=6)


def allowed(function):
    """Whether a function is one that formulas may call."""
    own = [*TRANSFORMS.values(), *ENCODINGS.values(), np.where, np.clip]
    return isinstance(function, np.ufunc) or function in own


@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(st.sampled_from(["y", "C(y)"]) | st.just("y") | EXPRESSIONS, EXPRESSIONS)
def test_any_formula_is_evaluated_by_the_list_or_refused_in_a_sentence(left, right):
    called, look_up, data = [], call_resolver.get_function_from_module, table()

    def seen(name, env):
        called.append(look_up(name, env))
        return called[-1]

    with mock.patch.object(call_resolver, "get_function_from_module", seen), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            learned(f"{left} ~ {right}", data)[0].frame(data)
        except ValueError as error:
            assert str(error).endswith(".") and len(str(error)) > 20  # noqa: PT017
    assert all(map(allowed, called))
    pd.testing.assert_frame_equal(data, table())


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.text(alphabet="xza1'\"`()[]{}|~+-*/:.,=_ snplogC", max_size=30))
def test_any_text_is_a_formula_or_refused_in_a_sentence(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            learned(f"y ~ {text}", table())
        except ValueError as error:
            assert str(error).endswith(".")  # noqa: PT017


@pytest.mark.parametrize("call", ["B(a, 'p')", "B(a)", "binary(a)", "I(B(a, 'p'))"])
def test_a_coding_that_depends_on_the_rows_is_refused(call):
    for formula in (f"y ~ x + {call}", f"{call} ~ x"):
        with pytest.raises(
            ValueError, match=r"would change with the rows .* write a comparison .* '\{g == \"a\"\}'\.$"
        ):
            learned(formula, table())
    for kind in ("object", "category"):
        data = table().astype({"a": kind})
        made = learned("y ~ {a == 'p'}", data)[0]
        np.testing.assert_array_equal(made.frame(data[data["a"] != "p"]), 0.0)
        np.testing.assert_array_equal(made.frame(data[data["a"] == "p"]), 1.0)


@pytest.mark.parametrize(
    ("unclear", "clear"),
    [
        ("-z**2", {"-(z**2)": lambda z: -(z**2), "(-z)**2": lambda z: z**2, "1 - z**2": lambda z: 1 - z**2}),
        ("1 + +z**2", {"1 + (+z)**2": lambda z: 1 + z**2, "z**-2": lambda z: z**-2.0}),
        ("z**2**3", {"(z**2)**3": lambda z: z**6, "z**(2**3)": lambda z: z**8, "2**z": lambda z: 2**z}),
    ],
)
def test_powers_of_unclear_order_need_brackets(unclear, clear):
    data = table()
    for formula in (f"y ~ {{{unclear}}}", f"y ~ np.log({unclear})", f"{{{unclear}}} ~ x"):
        with pytest.raises(ValueError, match=r"power; write brackets, as in '.*' or '.*'\.$"):
            learned(formula, data)
    for term, want in clear.items():
        made = learned(f"y ~ {{{term}}}", data)[0].frame(data)
        np.testing.assert_allclose(made.iloc[:, 0], want(data["z"]), rtol=1e-14)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("{x*9**(9**9)}", "exponent outside -20 to 20"),
        ("{x**21}", "exponent outside -20 to 20"),
        ("{x**(-7*3)}", "exponent outside -20 to 20"),
        ("{x*9**20}", "an integer above 9007199254740992"),
        ("{x*12345678901234567890}", "an integer above"),
        ("{x*(999999999*999999999)}", "an integer above"),
        ("{x*(I(999999999)*(1 == 1)*999999999)}", "an integer above"),
        ("{x + 1/0}", r"numbers that cannot be computed \(division by zero\)"),
        ("poly(x, 1000000)", r"needs degree of poly\(\) as a number of at most 100"),
        ("poly(x, degree=np.abs(3))", "needs degree of poly"),
        ("bs(x, df=1000000000)", r"needs df of bs\(\) as a number of at most 100"),
        ("I(bs(x, 4, None, 101))", "needs degree of bs"),
        ("cc(x, 1, 101)", "needs df of cc"),
        ("s(x, knots=100000)", "at most 1000 knots"),
        ("(x + z + a)**30", "exponent outside"),
        ("(x + z)**2**3", "a power of a power"),
        ("*".join("abcdefghijklmnop"), "expands to more than 5000 terms"),
        (f"({'+'.join('abcdefghijklmnopqrstuvw')})**8", "expands to more than 5000 terms"),
        (f"{{{'x+' * 60}x}}", "more than 50 operations in each other"),
        (f"{{{'-' * 1000}x}}", "nested too deeply, or too many"),
        (f"{'(' * 1000}x{')' * 1000}", "nested too deeply, or too many"),
        (f"{'x+' * 1000}x", "nested too deeply, or too many"),
        (f"(1 | {'x:' * 1000}x)", "nested too deeply, or too many"),
        (f"{'x+' * 3000}x", r"has 60\d\d characters, more than 5000"),
        ("x*" + "9" * 4800, "cannot be read"),
    ],
)
def test_what_is_too_large_is_refused_in_a_short_sentence(term, message):
    for formula in (f"y ~ {term}", f"y ~ z + {term}"):
        with pytest.raises(ValueError, match=message) as caught:
            learned(formula, table())
        assert str(caught.value).endswith(".") and len(str(caught.value)) < 600


def test_what_is_large_and_of_use_is_evaluated():
    data = table()
    terms = (
        "(x + z + g)**3 + {z**20} + {z**(2**3)} + {x * 12345678901234567890.0} + bs(x, df=4, degree=2) + s(z, knots=5)"
    )
    assert learned(f"y ~ {terms}", data)[0].frame(data).shape == (12, 7 + 3 + 4)
