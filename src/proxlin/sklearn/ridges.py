"""The ridge of chains, chosen by the loss of sequences that were held out.

    ridge = argmin over RIDGES of   mean of f_nu over held-out sequences,  w fitted to the others

The fits go from the strongest ridge to weaker ones and end where two in a row were no better. A
sequence is held out with its copies, and units of the features do not matter, so a weight of two
is two sequences here as well.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..types import Params
from .descent import descend, raveled, ridged
from .shared_pairs import Grouped

RIDGES = tuple(10.0 ** (-half / 2) for half in range(15))  # 1 to 1e-7
# The ridge where nothing can be held out: of one sequence, of a batch, or of a stochastic solver.
USUAL = 1e-3
FOLDS = 5
# As many folds are held out in turn as it takes to see this many positions. The losses of two ridges
# belong to the same positions, so these few tell them apart; a large table needs one fold.
POSITIONS = 2500
PATIENCE = 2  # ridges in a row that may be no better
# Fits of the search are rough: their gradient falls to this share of what it was at the start.
ROUGH = 1e-3
CALLS = 200  # evaluations of one fit of the search, at most


class Fold(NamedTuple):
    """Weights of the sequences to fit and of those held out; `share` of the weight is fitted."""

    fitted: Float[np.ndarray, " n"]
    held: Float[np.ndarray, " n"]
    share: float


def choose_ridge(
    chains: Grouped,
    folds: list[Fold],
    start: Params,
    *,
    convex: bool,
    calls: int,
) -> float:
    """Return the ridge of least loss on what the folds hold out; `USUAL` if there are no folds.

    A fit starts where that of the ridge before ended if the problem is `convex`. A network starts
    anew: a strong ridge has made it zero, from where no step leads away.
    """
    if not folds:
        return USUAL
    begun = [start for _ in folds]
    tols = [ROUGH * _largest(chains, start, fold) for fold in folds]
    best, least, worse = RIDGES[0], np.inf, 0
    for ridge in RIDGES:
        loss = 0.0
        for i, fold in enumerate(folds):
            # the sum of all losses over the ridge stays what it will be on all sequences
            function = ridged(
                lambda w, s=fold.fitted: chains.value_and_gradient(w, s),
                ridge / fold.share,
            )
            found = descend(function, begun[i], min(calls, CALLS), tols[i])
            if convex:
                begun[i] = found.w
            loss += chains.value_and_gradient(found.w, fold.held)[0]
        if loss < least:
            best, least, worse = ridge, loss, 0
        else:
            worse += 1
        if worse == PATIENCE:
            break
    return best


def folds_of(
    x: Float[np.ndarray, "total p"],
    lengths: Int[np.ndarray, " n"],
    labels: Int[np.ndarray, " total"],
    s: Float[np.ndarray, " n"],
) -> list[Fold]:
    """Return the folds to hold out; none of fewer than two sequences.

    The order of the sequences does not matter, and those that are the same are in one fold.
    """
    marks = _marks(x, lengths, labels)
    known, first, place = np.unique(marks, return_index=True, return_inverse=True)
    count = min(FOLDS, len(known))
    if count < 2:
        return []
    fold = place % count  # marks are random numbers, so their order is a shuffle
    seen = np.bincount(np.arange(len(known)) % count, weights=lengths[first])
    used = 1 + np.searchsorted(np.cumsum(seen), POSITIONS)
    return [_fold(s, fold == each) for each in range(min(count, int(used)))]


def _fold(s: np.ndarray, held: np.ndarray) -> Fold:
    """Return a fold whose weights add up to one on both sides."""
    inside = np.where(held, 0.0, s)
    outside = np.where(held, s, 0.0)
    share = inside.sum() / s.sum()
    return Fold(inside / inside.sum(), outside / outside.sum(), float(share))


def _marks(x: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a number for each sequence that looks random: equal sequences have equal numbers.

    Features count by their ranks in their columns, which other units leave as they are.
    """
    content = np.empty((len(x), x.shape[1] + 1), np.int32)
    content[:, 0] = labels
    for j, column in enumerate(x.T):
        content[:, j + 1] = np.unique(column, return_inverse=True)[1]
    ends = np.cumsum(lengths)
    marks = [
        hashlib.blake2b(content[end - length : end].tobytes(), digest_size=8).digest()
        for end, length in zip(ends, lengths, strict=True)
    ]
    return np.frombuffer(b"".join(marks), "<u8")


def _largest(chains: Grouped, w: Params, fold: Fold) -> float:
    """Return the largest entry of the gradient of the loss at w."""
    _, gradient = chains.value_and_gradient(w, fold.fitted)
    return float(np.abs(raveled(gradient)[0]).max())
