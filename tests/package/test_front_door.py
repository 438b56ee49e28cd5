"""What people pass is taken as it is: float64 without x64, lists, frames, masks and numbers; and
what comes back can be read, compared and shown.
"""

import copy
import html.parser
import importlib.util
import math
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pytest

import proxlin as px
from proxlin.precision import PrecisionWarning
from proxlin.run.progress import Progress

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
Y = X @ np.array([1.0, -2.0, 3.0]) + 0.1 * RNG.normal(size=24)
W = np.array([0.1, 0.2, -0.3])
WEIGHTS = np.arange(1.0, 25.0)


def predict(w, x):
    return x @ w


def problem(data=None, outer=None, **settings):
    return px.MeanOfLosses(
        px.residual(predict),
        px.Huber(0.3) if outer is None else outer,
        (X, Y) if data is None else data,
        **settings,
    )


@pytest.fixture
def x32():
    """JAX as it is set by default, while the other tests have x64."""
    with jax.enable_x64(False):
        yield


# ------------------------------------------------------------------------- float64 without x64

SOLVERS = {
    "auto": lambda: "auto",
    "sgd": lambda: px.sgd(px.InverseSqrt(0.03)),
    "prox_linear": px.prox_linear,
    "prox_linear(0.7)": lambda: px.prox_linear(0.7),
    "pli": lambda: px.pli(0.7),
    "pli smoothed": lambda: px.pli(0.7, nu=0.1),
    "lbfgs": px.lbfgs,
    "averaged": lambda: px.Averaged(px.truncated(0.1)),
}


@pytest.mark.law
@pytest.mark.parametrize("name", SOLVERS)
def test_numpy_float64_gives_the_bits_of_x64(name):
    """Law: without x64, all that is float64 of NumPy gives what x64 gives, bit for bit."""

    def run() -> px.Solution:
        p = problem(ridge=0.1, weights=WEIGHTS)
        return px.minimize(p, W, SOLVERS[name](), steps=30, seed=3)

    with jax.enable_x64(True):
        wanted = run()
    with jax.enable_x64(False):
        found = run()
    assert isinstance(found.w, np.ndarray) and found.w.dtype == np.float64
    assert found.w.tolist() == np.asarray(wanted.w).tolist()
    assert found.history["value"].tolist() == wanted.history["value"].tolist()


ANSWERS = {
    "value": lambda p: p.value(W),
    "subgradient": lambda p: p.subgradient(W),
    "both": lambda p: p.value_and_subgradient(W),
    "a sample": lambda p: p[3].value(W),
    "a batch": lambda p: p[np.array([1, 5])].value(W),
    "a slice": lambda p: p[2:9].subgradient(W),
    "smooth": lambda p: p.smooth(0.1).value(W),
    "regularize": lambda p: p.regularize(0.1, W + 1).regularize(0.3, W).value(W),
    "linearize": lambda p: p.linearize(W + 0.1).value(W),
    "stack": lambda p: p.stack(W),
    "push": lambda p: p.push(W, W),
    "pull": lambda p: p.pull(W, p.stack(W)),
    "expand": lambda p: p.expand(W).jacobian,
    "the exact step": lambda p: px.solve_subproblem(p, W, 0.1).w,
    "the noise": lambda p: px.theory.held_out_noise_level(p, W).value,
    "the singular value": lambda p: px.theory.constants.least_singular(p, W),
    "shards": lambda p: problem(px.shard((X, Y))).value(W),
    "an update": lambda p: px.as_optax(
        px.sgd(0.1), px.residual(predict), px.L2()
    ).update(None, jnp.zeros((), jnp.int32), W, batch=(X, Y))[0],
    "a race": lambda p: px.tune(p, W, [px.sgd(0.01), px.sgd(0.03)], p, 2).table[0][
        "validation"
    ],
}


# for a mean of losses alone
OF_MEANS = ("a race", "the noise")


@pytest.mark.law
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, px.MeanOfLosses) for name in ANSWERS]
    + [(name, px.LossOfMean) for name in ANSWERS if name not in OF_MEANS],
)
def test_every_entrance_takes_numpy_float64(name, kind):
    """Law: the answer is that of x64, it is float64, and it needs no scope of x64 around it."""

    def run():
        p = kind(
            px.residual(predict), px.Huber(0.3), (X, Y), ridge=0.1, weights=WEIGHTS
        )
        return ANSWERS[name](p)

    with jax.enable_x64(True):
        wanted = run()
    with jax.enable_x64(False):
        found = run()
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert isinstance(a, float) or (
            isinstance(a, np.ndarray) and a.dtype == np.float64
        )
        assert np.array_equal(a, np.asarray(b))


def test_a_run_goes_on_and_is_saved_in_float64(x32, tmp_path):
    p = problem(ridge=0.1)
    whole = px.minimize(p, W, px.prox_linear(), steps=6)
    half = px.minimize(p, W, px.prox_linear(), steps=3)
    half.save(tmp_path / "half.npz")
    loaded = px.load_solution(tmp_path / "half.npz")
    assert loaded == half and loaded.w.dtype == np.float64
    for resume in (half, loaded):
        on = px.minimize(p, W, px.prox_linear(), steps=6, resume=resume)
        assert on.w.tolist() == whole.w.tolist()
    half.w[0] = 7.0  # the user's own array, which can be written to


def test_what_comes_back_stays_float64_in_a_loop_of_ones_own(x32):
    p = problem()
    w = W
    for _ in range(3):
        w = w - 0.1 * p.subgradient(w)
    assert isinstance(w, np.ndarray) and w.dtype == np.float64


def test_the_setting_of_jax_is_left_as_it_was(x32):
    problem().value(W)
    assert jnp.ones(2).dtype == np.float32
    with pytest.raises(ValueError, match="not finite"):
        problem((X * np.nan, Y))
    with pytest.raises(TypeError):
        problem().value(W.astype(int))
    assert jnp.ones(2).dtype == np.float32


MIXED = {
    "w of jax": (lambda: problem(), lambda: jnp.asarray(W), "w is", "data[0]"),
    "data of jax": (
        lambda: problem((jnp.asarray(X), jnp.asarray(Y))),
        lambda: W,
        "data[0] is",
        "of w",
    ),
    "w of NumPy float32": (
        lambda: problem(),
        lambda: W.astype(np.float32),
        "w is",
        "data[0]",
    ),
    "a leaf of w of jax": (
        lambda: px.MeanOfLosses(
            px.residual(lambda w, x: x @ w["a"] + w["b"]), px.L1(), (X, Y)
        ),
        lambda: {"a": W, "b": jnp.zeros(())},
        "w['b'] is",
        "w['a']",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_float64_that_meets_float32_is_cut_with_one_warning(name, x32):
    make, start, because, cut = MIXED[name]
    p = make()
    w = start()
    with pytest.warns(PrecisionWarning) as caught:
        solution = px.minimize(p, w, px.sgd(0.01), passes=2)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert because in message and cut in message and "float32" in message
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(solution.w))
    with pytest.warns(PrecisionWarning):
        assert p.value(w).dtype == np.float32


def test_float32_alone_is_silent_and_stays_float32(x32):
    data = (X.astype(np.float32), jnp.asarray(Y, jnp.float32))
    p = problem(data, ridge=0.1, weights=[1] * 24)
    for w in (jnp.zeros(3), np.zeros(3, np.float32)):
        assert px.minimize(p, w, px.prox_linear(), steps=2).w.dtype == np.float32
    assert isinstance(p.value(jnp.zeros(3)), jax.Array)


def test_numbers_take_the_width_of_the_data(x32):
    line = px.residual(lambda w, x: w["slope"] * x[0] + w["shift"])
    start = {"slope": 1.0, "shift": 0.0}
    wide = px.minimize(px.MeanOfLosses(line, px.L1(), (X, Y)), start, steps=2)
    narrow = tuple(x.astype(np.float32) for x in (X, Y))
    short = px.minimize(px.MeanOfLosses(line, px.L1(), narrow), start, steps=2)
    assert wide.w["slope"].dtype == np.float64 and short.w["slope"].dtype == np.float32


def test_arrays_in_a_map_are_float64_too(x32):
    class Scaled(eqx.Module):
        scale: np.ndarray

        def __call__(self, w, x):
            return (x * self.scale) @ w

    third = np.full(3, 1 / 3)
    p = px.MeanOfLosses(px.residual(Scaled(third)), px.L1(), (X, Y))
    assert abs(float(p.value(W)) - np.abs(X @ (W / 3) - Y).mean()) < 1e-15


def test_traces_of_ones_own_are_of_the_precision_of_jax(x32):
    """Inside of jit there is no other precision than that of JAX: float64 is cut, and a warning says
    so."""
    p = problem()
    with pytest.warns(PrecisionWarning):
        value = jax.jit(lambda w: p.value(w))(jnp.asarray(W))
    assert value.dtype == np.float32


def test_whole_numbers_beyond_32_bits_are_refused(x32):
    with pytest.raises(ValueError, match="beyond 32 bits"):
        problem((np.array([[1, 2**40]]), np.ones(1)))


# ------------------------------------------------------------------------------ lists and frames

FRAME = pandas.DataFrame(X, columns=["a", "b", "c"])
TABLES = {
    "lists": (X.tolist(), Y.tolist()),
    "a list of tuples": ([tuple(row) for row in X.tolist()], tuple(Y.tolist())),
    "pandas": (FRAME, pandas.Series(Y)),
    "pandas of another index": (FRAME.set_index(FRAME.index[::-1]), pandas.Series(Y)),
    "pandas of nullable numbers": (FRAME.convert_dtypes(), pandas.array(Y)),
    "polars": (polars.DataFrame(X, schema=["a", "b", "c"]), polars.Series(Y)),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("x64", [False, True])
def test_tables_are_arrays(name, x64):
    with jax.enable_x64(x64):
        found = problem(TABLES[name])
        wanted = problem()
        assert found.data[0].shape == (24, 3) and found.data[1].shape == (24,)
        assert float(found.value(W)) == float(wanted.value(W))


@pytest.mark.parametrize("make", [lambda f: dict(f), lambda f: f.to_dict("list")])
def test_a_dict_of_columns_is_a_dict_of_numbers_by_name(make):
    def by_name(w, x):
        assert {name: value.shape for name, value in x.items()} == dict.fromkeys(
            "abc", ()
        )
        return w[0] * x["a"] + w[1] * x["b"] + w[2] * x["c"]

    p = px.MeanOfLosses(px.residual(by_name), px.Huber(0.3), (make(FRAME), Y))
    assert float(p.value(W)) == pytest.approx(float(problem().value(W)), rel=1e-14)


def test_whole_numbers_and_truth_values_of_a_frame_are_numbers():
    frame = pandas.DataFrame({"a": [1, 2], "b": [True, False], "c": [0.5, 1.5]})
    p = problem((frame, [1, 2]))
    assert np.asarray(p.data[0]).tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5]]


FRAMES = {
    "text": (FRAME.assign(d="x"), TypeError, ["'d'", "data[0]", "numbers"]),
    "a date": (FRAME.assign(d=pandas.Timestamp("2020")), TypeError, ["'d'"]),
    "a category": (
        FRAME.assign(d=pandas.Categorical(["x"] * 24)),
        TypeError,
        ["'d'", "category"],
    ),
    "what is missing": (
        FRAME.assign(d=[1] * 23 + [None]),
        ValueError,
        ["'d'", "row 23", "missing"],
    ),
    "what is missing in polars": (
        polars.DataFrame({"a": [1, None] * 12}),
        ValueError,
        ["'a'", "row 1"],
    ),
    "no columns": (pandas.DataFrame(), ValueError, ["without columns"]),
    "two columns of one name": (
        pandas.concat([FRAME, FRAME], axis=1),
        ValueError,
        ["one name"],
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_column_that_holds_no_numbers_is_named(name):
    frame, error, words = FRAMES[name]
    with pytest.raises(error) as caught:
        problem((frame, Y))
    message = str(caught.value)
    assert message.endswith(".") and all(word in message for word in words), message


def test_a_list_of_arrays_is_a_tree_as_before():
    p = px.MeanOfLosses(lambda w, s: s[0] @ w - s[1], px.L1(), [X, Y])
    assert float(p.value(W)) == float(problem(outer=px.L1()).value(W))


def test_sparse_matrices_of_scipy_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"SparseRows.*toarray"):
        problem((sparse.csr_matrix(X), Y))


@pytest.mark.parametrize(
    "mask",
    [
        Y > 0,
        (Y > 0).tolist(),
        jnp.asarray(Y > 0),
        pandas.Series(Y > 0),
        polars.Series(Y > 0),
    ],
)
def test_a_mask_is_weights(mask):
    chosen = problem((X[Y > 0], Y[Y > 0]))
    masked = problem(weights=mask)
    assert float(masked.value(W)) == pytest.approx(float(chosen.value(W)), rel=1e-12)


@pytest.mark.parametrize("kind", [px.MeanOfLosses, px.LossOfMean])
def test_one_number_is_a_vector_of_one(kind):
    """A phi of one number and targets (n,) are a phi of (1,) and targets (n, 1)."""
    flat = kind(px.residual(predict), px.L1(), (X, Y))
    column = kind(px.residual(lambda w, x: (x @ w)[None]), px.L1(), (X, Y[:, None]))
    assert flat.outputs(W) == 1 and flat.stack(W).shape == column.stack(W).shape
    for a, b in (
        (flat.value(W), column.value(W)),
        (flat.subgradient(W), column.subgradient(W)),
        (flat[3].value(W), column[3].value(W)),
        (flat.linearize(W).value(W + 1), column.linearize(W).value(W + 1)),
    ):
        assert np.array_equal(a, b)


def test_the_estimators_take_frames_and_masks():
    sklearn = pytest.importorskip("proxlin.sklearn")
    wanted = sklearn.CompositeRegressor("l1").fit(X[Y > 0], Y[Y > 0]).predict(X)
    for x, y in TABLES.values():
        if isinstance(x, list | pandas.DataFrame | polars.DataFrame):
            found = sklearn.CompositeRegressor("l1").fit(
                x, list(y), sample_weight=Y > 0
            )
            assert np.allclose(found.predict(x), wanted, atol=1e-6)


# --------------------------------------------------------------------------------- what is shown

TEXTS = {
    "Huber(delta=0.3)": lambda: px.Huber(0.3),
    "Quantile(q=0.9)": lambda: px.Quantile(0.9),
    "Smoothed(support=L2(), nu=0.1)": lambda: px.L2().smooth(0.1),
    "Inverse(s=0.1)": lambda: px.Inverse(0.1),
    "ModelBased(model=Linear(), schedule=Constant(s=0.1), batch_size=1)": lambda: (
        px.sgd(0.1)
    ),
    "ProxLinearAdaptive(model=ProxLinear(tol=1e-10))": px.prox_linear,
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_numbers_are_shown(text, x64):
    with jax.enable_x64(x64):
        assert repr(TEXTS[text]()) == text


def test_short_arrays_are_shown_and_large_ones_by_shape():
    scaled = repr(px.Rescaled(px.sgd(0.1), np.array([1.0, 0.5])))
    assert "scale=[1.0, 0.5]" in scaled
    assert "data=(f64[24,3], f64[24])" in repr(problem())
    assert "f64[24,3]" in repr(problem((X, np.arange(24))))


def test_traced_numbers_are_shown_by_shape():
    texts = []
    jax.jit(lambda s: texts.append(repr(px.Constant(s))))(0.5)
    assert texts[0].startswith("Constant(s=") and "0.5" not in texts[0]


# ------------------------------------------------------------------------------------- solutions


@pytest.fixture(scope="module")
def solution() -> px.Solution:
    return px.minimize(problem(ridge=0.1), W, px.prox_linear(), steps=4)


def test_a_solution_equals_its_copies(solution, tmp_path):
    solution.save(tmp_path / "solution.npz")
    for other in (
        copy.deepcopy(solution),
        pickle.loads(pickle.dumps(solution)),
        px.load_solution(tmp_path / "solution.npz"),
    ):
        assert other == solution


def test_a_solution_differs_from_others(solution):
    from dataclasses import replace

    w = np.asarray(solution.w)
    others = [
        replace(solution, w=np.nextafter(w, 9)),
        replace(solution, w=w.astype(np.float32)),
        replace(solution, w={"w": w}),
        replace(solution, value=0.0),
        replace(solution, history=solution.history | {"more": w}),
        replace(solution, state=None),
        "a text",
        None,
    ]
    for other in others:
        assert solution != other
    nan = replace(solution, value=math.nan, w=w * np.nan)
    assert nan == copy.deepcopy(nan)


class Balanced(html.parser.HTMLParser):
    """Collect the tags and the texts of a page, and fail where a tag is not closed."""

    def __init__(self):
        html.parser.HTMLParser.__init__(self)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag != "polyline":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "polyline":
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_notebook_shows_a_table_and_a_curve(solution):
    from dataclasses import replace

    evil = "<script>alert('1')</script> & \"more\""
    page = Balanced()
    page.feed(replace(solution, message=evil, solver=evil)._repr_html_())
    assert not page.open
    assert page.tags == {"table", "tr", "th", "td", "svg", "title", "polyline"}
    assert page.text.count(evil) == 2
    assert f"{solution.value:.6g}" in page.text


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [math.nan, 2.0], [3.0, -1.0]])
def test_a_curve_of_any_values(solution, values):
    from dataclasses import replace

    columns = {name: np.arange(len(values)) for name in ("step", "passes", "seconds")}
    shown = replace(solution, history=columns | {"value": np.asarray(values)})
    page = Balanced()
    page.feed(shown._repr_html_())
    assert not page.open and "nan" not in shown._repr_html_().partition("<svg")[2]


# --------------------------------------------------------------------------------------- progress


def test_progress_without_rich_is_plain_text(monkeypatch, capsys):
    """tests/docs/test_notebook.py has the bar of a notebook, in a real kernel."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "rich" else find(name, *rest),
    )
    with Progress(True, None, 10, "sgd") as bar:
        bar.show({"step": 3, "passes": 1.5, "seconds": 0.1, "value": 0.25})
    assert capsys.readouterr().err == "sgd: F = 0.25 at pass 1.5\n"
