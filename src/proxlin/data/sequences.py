"""Handwritten words: images of letters, their labels, and the scores of a chain over them.

    score(c) = sum_t letter(x_t)[c_t] + sum_t T[c_t, c_{t+1}]

The file is an .npz with, for all letters of all words one after the other, `pixels` (letters, 16), the packed bits of
16 x 8 binary images, and `labels` (letters,), 0 to 25 for a to z; for each word `word_lengths` and `folds`.
`words_origin` finds it in the cache or in PROXLIN_DATA; `synthetic_words` are what stands in for it. letters.py makes
it of the public file.
"""

import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from ..errors import UserError
from ..files.npz import Damaged, read_arrays
from ..files.reading import check_readable
from ..networks import MLP
from ..oracles import Chains
from ..types import Key, Params
from .cache import data_folder, entry, sha256
from .metrics import label_error, outputs, together
from .origin import SYNTHETIC, Origin

ALPHABET = string.ascii_lowercase
LETTERS = len(ALPHABET)
SHAPE = (16, 8)  # of an image
PARTS = ("pixels", "labels", "word_lengths", "folds")
FILE = "sequences/ocr_letters.npz"  # below PROXLIN_DATA
NAME = "ocr_letters"
ENTRY = "sequences/ocr_letters"  # in the cache


@dataclass(frozen=True)
class Words:
    """n words, padded with zeros to the longest: pixels are 0/1, labels 0 to 25, folds 0 to 9."""

    pixels: UInt8[np.ndarray, "n t p"]
    labels: Int[np.ndarray, "n t"]
    lengths: Int[np.ndarray, " n"]
    folds: Int[np.ndarray, " n"]

    @property
    def oracle(self) -> Chains:
        return Chains(self.labels.shape[1], LETTERS)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, part: slice | np.ndarray) -> "Words":
        return Words(
            self.pixels[part], self.labels[part], self.lengths[part], self.folds[part]
        )

    def of(self, folds: Iterable[int]) -> "Words":
        """Return the words of some folds; the standard setting trains on `of([0])` and tests on
        `of(range(1, 10))`.
        """
        inside = np.isin(self.folds, list(folds))
        if not inside.any():
            raise UserError(
                f"no word is in the folds {list(folds)}; there are {np.unique(self.folds).tolist()}."
            )
        return self[inside]

    def data(self) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Return ((pixels, lengths), y): what `augmented_scores(ChainScores(...), ...)` takes as an
        inner map.
        """
        return (self.pixels, self.lengths), encoded(self.oracle, self.labels)

    def text(self, labels: Int[np.ndarray, "n t"] | None = None) -> list[str]:
        """Return the words as strings, or those of predicted labels."""
        rows = self.labels if labels is None else labels
        pairs = zip(rows, self.lengths, strict=True)
        return [
            "".join(ALPHABET[label] for label in row[:length]) for row, length in pairs
        ]


class ChainScores(eqx.Module):
    """The model: w = {"letter": an MLP's, "pairs": T (26, 26)}; without `pairs` each letter stands
    for itself.

    `hidden` () is a linear score of the pixels; (64,) a network with one hidden layer. Positions beyond the length of a
    word are padded as `Chains` says.

    >>> predict = ChainScores(Chains(3, 26), inputs=128)
    >>> w = jax.eval_shape(predict.init, jax.random.key(0))
    >>> jax.eval_shape(predict, w, (np.zeros((3, 128), np.uint8), np.array(2))).shape == (Chains(3, 26).size(),)
    True
    """

    oracle: Chains
    letter: MLP
    pairs: bool = eqx.field(static=True)

    def __init__(
        self,
        oracle: Chains,
        inputs: int = SHAPE[0] * SHAPE[1],
        hidden: tuple[int, ...] = (),
        pairs: bool = True,
        activation: str = "elu",
    ):
        self.oracle = oracle
        self.pairs = pairs
        self.letter = MLP((inputs, *hidden, oracle.labels), activation)

    def init(self, key: Key, dtype: jnp.dtype | type | None = None) -> Params:
        """Return a network's usual start, but zero for the last layer and the pairs: every word
        scores 0.
        """
        *layers, last = self.letter.init(key, dtype)
        last = jax.tree.map(jnp.zeros_like, last)
        w: dict[str, Any] = {"letter": [*layers, last]}
        if self.pairs:
            labels = self.oracle.labels
            w["pairs"] = jnp.zeros((labels, labels), dtype)
        return w

    def __call__(self, w: Params, word: Any) -> Float[Array, " m"]:
        pixels, length = word
        layers = w["letter"]
        pixels = jnp.asarray(pixels).astype(layers[0]["W"].dtype)
        unary = jax.vmap(lambda x: self.letter(layers, x))(pixels)
        steps = self.oracle.length - 1
        labels = self.oracle.labels
        pairs = jnp.zeros((labels, labels), unary.dtype)
        if self.pairs:
            pairs = w["pairs"]
        pairwise = jnp.broadcast_to(pairs, (steps, labels, labels))
        scores = self.oracle.join(unary, pairwise)
        return self.oracle.pad(scores, length)


def encoded(oracle: Chains, labels: Int[np.ndarray, "n t"]) -> UInt8[np.ndarray, "n m"]:
    """Return `oracle.encode` of every row, as bytes 0/1; positions beyond the length of a sequence
    have label 0.
    """
    n = len(labels)
    count = oracle.labels
    y = np.zeros((n, oracle.size()), np.uint8)
    row = np.arange(n)[:, None]
    at = np.arange(oracle.length)
    unary = at * count + labels
    moves = labels[:, :-1] * count + labels[:, 1:]
    pairwise = oracle.length * count + at[:-1] * count**2 + moves
    y[row, unary] = 1
    y[row, pairwise] = 1
    return y


def load_words(path: str | Path) -> Words:
    """Read the words of an .npz file (see the head of this module), never unpickling."""
    path = Path(path)
    parts = read_parts(path)
    pixels, labels, lengths, folds = (parts[name] for name in PARTS)
    for name, array in parts.items():
        if array.dtype.kind not in "iub":
            raise UserError(
                f"{path}: the array {name} must hold whole numbers; it holds {array.dtype}."
            )
        axes = 2 if name == "pixels" else 1
        if array.ndim != axes:
            raise UserError(
                f"{path}: the array {name} has the shape {array.shape}, which has too few or too many axes."
            )
    if len(lengths) == 0 or lengths.min() < 1:
        raise UserError(f"{path}: there must be a word, and every word needs a letter.")
    if len(folds) != len(lengths):
        raise UserError(
            f"{path}: there are {len(lengths)} words in word_lengths, but {len(folds)} in folds."
        )
    total = int(lengths.sum(dtype=np.int64))
    if not total == len(labels) == len(pixels):
        raise UserError(
            f"{path}: the words have {total} letters, but there are {len(labels)} labels and {len(pixels)} images."
        )
    wrong = (labels < 0) | (labels >= LETTERS)
    if wrong.any():
        where = int(np.argmax(wrong))
        raise UserError(
            f"{path}: the label of letter {where} is {labels[where]}; labels are 0 to {LETTERS - 1}."
        )
    if pixels.dtype != np.uint8 or pixels.shape[1] * 8 != SHAPE[0] * SHAPE[1]:
        raise UserError(
            f"{path}: pixels must be {SHAPE[0]}x{SHAPE[1]} bits packed into 16 bytes of uint8 a letter."
        )
    inside = np.arange(lengths.max())[None] < lengths[:, None]
    images = np.zeros((*inside.shape, SHAPE[0] * SHAPE[1]), np.uint8)
    images[inside] = np.unpackbits(pixels, axis=1)
    padded = np.zeros(inside.shape, int)
    padded[inside] = labels
    return Words(images, padded, lengths.astype(int), folds.astype(int))


def words_file() -> Path | None:
    """Return the file of the words: that in the cache, else that in PROXLIN_DATA."""
    folder = data_folder()
    if entry(ENTRY).is_file():
        return entry(ENTRY)
    if folder is not None and (folder / FILE).is_file():
        return folder / FILE
    return None


def words_origin() -> Origin:
    """Return where the words to use come from: a file, else they are made up."""
    path = words_file()
    if path is not None:
        return Origin(NAME, "file", Path(FILE).name, sha256(path))
    source = (
        f"synthetic words, which say little about real ones, because neither PROXLIN_DATA has {FILE} nor the cache "
        f"(`proxlin data get {NAME}` downloads it)"
    )
    return Origin(NAME, "synthetic", source, SYNTHETIC)


def words_of(content: str) -> Words:
    """Return the words of the content that `words_origin` named; those of another file are refused."""
    if content == SYNTHETIC:
        return synthetic_words()
    path = words_file()
    found = sha256(path) if path is not None else None
    if path is None or found != content:
        here = f"{path} with {found}" if found else "no file of them"
        raise UserError(
            f"the words asked for have the SHA-256 {content}, but here is {here}; "
            f"give every worker the same files."
        )
    return load_words(path)


def synthetic_words(count: int = 4000, seed: int = 0, flips: float = 0.2) -> Words:
    """Make words of a random language: 26 random glyphs, each letter followed by one of five most
    of the time.

    An image is its glyph moved by up to a pixel each way, with a share of its pixels flipped.
    """
    rng = np.random.default_rng([seed, 26])
    glyphs = _glyphs(rng)
    likely_next = np.full((LETTERS, LETTERS), 0.1 / LETTERS)
    for row in likely_next:
        row[rng.permutation(LETTERS)[:5]] += 0.9 / 5
    longest = 9
    lengths = rng.integers(3, longest + 1, count)
    labels = np.zeros((count, longest), int)
    labels[:, 0] = rng.integers(0, LETTERS, count)
    for t in range(1, longest):
        cumulative = likely_next[labels[:, t - 1]].cumsum(1)
        labels[:, t] = (rng.random((count, 1)) > cumulative[:, :-1]).sum(1)
    down, right = rng.integers(-1, 2, (2, count, longest, 1, 1))
    rows, cols = np.indices(SHAPE)
    moved = glyphs[
        labels[..., None, None], (rows - down) % SHAPE[0], (cols - right) % SHAPE[1]
    ]
    flipped = rng.random((count, longest, *SHAPE)) < flips
    images = (moved ^ flipped).reshape(count, longest, -1)
    inside = np.arange(longest)[None] < lengths[:, None]
    pixels = (images & inside[..., None]).astype(np.uint8)
    return Words(
        pixels, np.where(inside, labels, 0), lengths, rng.integers(0, 10, count)
    )


def _glyphs(rng: np.random.Generator) -> np.ndarray:
    """Draw 26 blobs: white noise averaged over 3 x 3 pixels, above its median."""
    noise = rng.normal(size=(LETTERS, SHAPE[0] + 2, SHAPE[1] + 2))
    windows = np.lib.stride_tricks.sliding_window_view(noise, (3, 3), (1, 2))
    smooth = windows.mean((-1, -2))
    return smooth > np.median(smooth, axis=(1, 2), keepdims=True)


def word_metrics(predict: ChainScores, words: Words) -> dict[str, Callable]:
    """Return metrics for `minimize` on unseen words: "letters", the share of wrong letters, and
    "words", of words.
    """
    x = (jnp.asarray(words.pixels), jnp.asarray(words.lengths))
    inside = np.arange(words.labels.shape[1])[None] < words.lengths[:, None]

    def evaluate(w: Params) -> dict[str, float]:
        found = np.asarray(
            outputs(predict, predict.oracle, w, x, predict.oracle.decode)
        )
        letters = label_error(words.labels, found, words.lengths)
        wrong = ((found != words.labels) & inside).any(axis=1)
        return {"letters": letters, "words": float(np.mean(wrong))}

    return together(evaluate, ("letters", "words"))


def read_parts(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays PARTS of an .npz file."""
    check_readable(path)
    try:
        arrays = read_arrays(path, compressed=True)
    except Damaged as error:
        raise UserError(
            f"{path}: this is no .npz archive of plain arrays ({error})."
        ) from error
    missing = [name for name in PARTS if name not in arrays]
    if missing:
        listed = ", ".join(repr(name)[:40] for name in list(arrays)[:10]) or "none"
        raise UserError(
            f"{path}: the array {missing[0]} is missing; there is {listed}."
        )
    return {name: arrays[name] for name in PARTS}
