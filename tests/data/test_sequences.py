"""Handwritten words: the reader, the chain over them, and what bad input is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.data import sequences as s
from proxlin.data.metrics import label_error
from proxlin.errors import UserError

LENGTHS = np.array([2, 4, 1, 3], np.int16)


def parts():
    rng = np.random.default_rng(0)
    return {
        "pixels": rng.integers(0, 256, (10, 16)).astype(np.uint8),
        "labels": rng.integers(0, 26, 10).astype(np.uint8),
        "word_lengths": LENGTHS,
        "folds": np.array([0, 1, 1, 2], np.uint8),
    }


@pytest.fixture
def write(tmp_path):
    def save(**changes):
        arrays = {
            name: array
            for name, array in (parts() | changes).items()
            if array is not None
        }
        np.savez(tmp_path / "words.npz", allow_pickle=True, **arrays)
        return tmp_path / "words.npz"

    return save


def test_words_are_padded(write):
    words = s.load_words(write())
    assert (
        words.pixels.shape == (4, 4, 128)
        and words.labels.shape == (4, 4)
        and len(words) == 4
    )
    assert (words.oracle.length, words.oracle.labels) == (4, 26)
    raw, at = parts(), 0
    for pixels, labels, length in zip(words.pixels, words.labels, LENGTHS, strict=True):
        np.testing.assert_array_equal(
            pixels[:length], np.unpackbits(raw["pixels"][at : at + length], axis=1)
        )
        np.testing.assert_array_equal(labels[:length], raw["labels"][at : at + length])
        assert not pixels[length:].any() and not labels[length:].any()
        at += length
    assert [len(text) for text in words.text()] == LENGTHS.tolist()
    assert words.text(np.zeros((4, 4), int)) == ["aa", "aaaa", "a", "aaa"]


def test_folds(write):
    words = s.load_words(write())
    assert words.of([1]).lengths.tolist() == [4, 1] and words.of(
        [0, 2]
    ).lengths.tolist() == [2, 3]
    with pytest.raises(
        UserError, match=r"no word is in the folds \[7\]; there are \[0, 1, 2\]"
    ):
        words.of([7])


def test_the_truth_is_the_oracles_encoding(write):
    words = s.load_words(write())
    (pixels, lengths), y = words.data()
    assert y.dtype == np.uint8
    np.testing.assert_array_equal(
        y, jax.jit(jax.vmap(words.oracle.encode))(words.labels, words.lengths)
    )
    assert pixels is words.pixels and lengths is words.lengths


def test_scores_of_a_chain(write):
    """Pairwise weights are shared by all positions; without them the best word is the best letter
    at each place.
    """
    words = s.load_words(write())
    oracle = words.oracle
    predict, alone = s.ChainScores(oracle), s.ChainScores(oracle, pairs=False)
    rng = np.random.default_rng(1)
    w = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape)), predict.init(jax.random.key(0))
    )
    scores = jax.jit(jax.vmap(predict, (None, 0)))(w, (words.pixels, words.lengths))
    single = jax.jit(jax.vmap(alone, (None, 0)))(
        {"letter": w["letter"]}, (words.pixels, words.lengths)
    )
    _, y = words.data()
    letter = words.pixels @ np.asarray(w["letter"][0]["W"]).T + np.asarray(
        w["letter"][0]["b"]
    )
    for i, length in enumerate(words.lengths):
        labels = words.labels[i, :length]
        unary = letter[i, np.arange(length), labels].sum()
        pairs = np.asarray(w["pairs"])[labels[:-1], labels[1:]].sum()
        chosen = y[i] > 0
        assert np.asarray(scores[i])[chosen].sum() == pytest.approx(unary + pairs)
        assert np.asarray(single[i])[chosen].sum() == pytest.approx(unary)
    metrics = s.word_metrics(alone, words)
    found, wrong = (
        metrics[name]({"letter": w["letter"]}) for name in ("letters", "words")
    )
    assert found == pytest.approx(
        label_error(words.labels, letter.argmax(-1), words.lengths)
    )
    assert found <= wrong <= 1


def test_a_start_scores_every_word_alike():
    w = s.ChainScores(px.Chains(2, 3), inputs=5, hidden=(4,)).init(
        jax.random.key(0), jnp.float32
    )
    assert (
        not w["pairs"].any()
        and not w["letter"][1]["W"].any()
        and w["letter"][0]["W"].any()
    )
    assert {x.dtype for x in jax.tree.leaves(w)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"folds": None}, "the array folds is missing; there is"),
        (
            {"labels": np.array([{}] * 10)},
            r"words.npz: this is no .npz archive of plain arrays",
        ),
        (
            {"labels": np.full(10, 0.5)},
            "the array labels must hold whole numbers; it holds float64",
        ),
        (
            {"labels": np.full(10, 26)},
            "the label of letter 0 is 26; labels are 0 to 25",
        ),
        ({"labels": np.array([0, 1, -1, *[0] * 7])}, "the label of letter 2 is -1"),
        (
            {"labels": np.zeros(9, int)},
            "the words have 10 letters, but there are 9 labels and 10 images",
        ),
        (
            {"labels": np.zeros((10, 1), int)},
            r"the array labels has the shape \(10, 1\)",
        ),
        (
            {"word_lengths": np.array([3, 3, 3])},
            "there are 3 words in word_lengths, but 4 in folds",
        ),
        ({"word_lengths": np.array([5, 4, 1, 0])}, "every word needs a letter"),
        (
            {"word_lengths": np.zeros(0, int), "folds": np.zeros(0, int)},
            "there must be a word",
        ),
        (
            {"pixels": np.zeros((10, 15), np.uint8)},
            "pixels must be 16x8 bits packed into 16 bytes",
        ),
        (
            {"pixels": np.zeros((10, 16), int)},
            "pixels must be 16x8 bits packed into 16 bytes of uint8",
        ),
    ],
)
def test_bad_files_are_a_sentence(write, changes, sentence):
    with pytest.raises(UserError, match=sentence):
        s.load_words(write(**changes))


def test_missing_and_broken_files(write, tmp_path):
    with pytest.raises(UserError, match="none.npz: there is no such file"):
        s.load_words(tmp_path / "none.npz")
    whole = write().read_bytes()
    for content in (b"PK no archive", whole[:300], whole[:-60]):
        (tmp_path / "broken.npz").write_bytes(content)
        with pytest.raises(
            UserError, match="broken.npz: this is no .npz archive of plain arrays"
        ):
            s.load_words(tmp_path / "broken.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(
        UserError, match="one.npy: this is no .npz archive of plain arrays"
    ):
        s.load_words(tmp_path / "one.npy")


def test_the_real_words(data_file):
    words = s.load_words(data_file("sequences/ocr_letters.npz"))
    assert (
        len(words) == 6877
        and words.lengths.sum() == 52152
        and words.lengths.max() == 14
    )
    # the first letter of a word was a capital, and left out
    assert words.text()[0] == "ommanding"
    assert [len(words.of([fold])) for fold in range(10)] == [
        626,
        704,
        684,
        698,
        693,
        651,
        739,
        717,
        690,
        675,
    ]
    assert set(np.unique(words.pixels)) == {0, 1}


def made_up_file(path):
    """A file of synthetic words in the format of the real one."""
    words = s.synthetic_words(3000)
    inside = np.arange(words.labels.shape[1])[None] < words.lengths[:, None]
    pixels = np.packbits(words.pixels[inside], axis=1)
    np.savez(
        path,
        pixels=pixels,
        labels=words.labels[inside],
        word_lengths=words.lengths,
        folds=words.folds,
    )
    return path


@pytest.mark.parametrize("which", ["made up", "real"])
def test_a_chain_beats_its_letters(which, data_file, tmp_path):
    """A few passes of SGD on a few words: pairwise weights help on unseen words."""
    real = which == "real"
    words = s.load_words(
        data_file("sequences/ocr_letters.npz")
        if real
        else made_up_file(tmp_path / "words.npz")
    )
    words = words[words.lengths <= 5]
    trim = lambda part: s.Words(
        part.pixels[:, :5], part.labels[:, :5], part.lengths, part.folds
    )
    train, test = trim(words.of([0])), trim(words.of([1]))
    error = {}
    for pairs in (False, True):
        predict = s.ChainScores(train.oracle, pairs=pairs)
        inner = px.augmented_scores(predict, train.oracle)
        problem = px.MeanOfLosses(
            inner, px.StructuredHinge(train.oracle), train.data(), ridge=1e-3
        )
        w = predict.init(jax.random.key(0), jnp.float32)
        solution = px.minimize(problem, w, px.Averaged(px.sgd(0.02)), passes=6)
        error[pairs] = s.word_metrics(predict, test)["letters"](solution.w)
    assert error[True] < error[False] - 0.02 and error[False] < 0.5, error
