"""Labelling the parts of US addresses: ours against a chain CRF of CRFsuite, on the same features and
folds.

    pip download usaddress==0.5.16 --no-deps --no-binary usaddress && tar xzf usaddress-0.5.16.tar.gz
    python -m bench.studies.addresses --file usaddress-0.5.16/training/labeled.xml --folds 5

    crfsuite   python-crfsuite: L-BFGS, squared l2 norm times c2, which a fifth of the training addresses of
               the first fold chooses
    hinge      proxlin.sklearn.StructuredClassifier() at its defaults
    crf        StructuredClassifier(loss="crf"), the rest at its defaults

The source package of usaddress (MIT licence) has 1,513 addresses that people have labelled by hand, token
by token; those that repeat another are left out. Ten folds are drawn once; one trains and nine test, or the
reverse. Per cent of wrong labels of tokens in the test addresses, by fold. The claim, stated before the first
run: ours is not worse than CRFsuite by BAND points, which holds if the interval of the mean difference over folds
ends below it.
"""

import argparse
import hashlib
import json
import re
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.feature_extraction import DictVectorizer

from proxlin.data.cache import data_folder
from proxlin.experiments.engine.workers import prepare
from proxlin.files.writing import write_file
from proxlin.sklearn import StructuredClassifier
from proxlin.theory import Rule, compare

FILE = "sequences/usaddress_labeled.xml"  # below PROXLIN_DATA, if --file does not say
FOLDS = 10
SEED = 0
LEAST = 5  # times that an attribute has to be seen in the training addresses
HELD = 0.2
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
BAND = 0.5  # points
RULE = Rule("not more", band=BAND)
DIRECTIONS = ("one", "nine")
METHODS = ("crfsuite", "hinge", "crf")

Tokens = list[str]
Attributes = list[str]  # of one token


def addresses_of(path: str | Path) -> list[tuple[Tokens, list[str]]]:
    """Return the tokens and labels of each address; of equal addresses the first."""
    found = {}
    for address in ElementTree.parse(path).getroot():
        parts = [(part.text or "").strip() for part in address]
        found.setdefault(tuple(parts), [part.tag for part in address])
    return [(list(tokens), labels) for tokens, labels in found.items() if tokens]


def attributes_of(tokens: Tokens) -> list[Attributes]:
    """Return what is known of each token: its word, and the shape and ends of it and its
    neighbours.
    """
    about = [_about(token) for token in tokens]
    before = [["edge"], *about[:-1]]
    after = [*about[1:], ["edge"]]
    found = []
    for token, here, left, right in zip(tokens, about, before, after, strict=True):
        word = re.sub(r"\W", "", token.lower())
        own = ["1", f"word={word}", *here]
        own += [f"before {each}" for each in left]
        own += [f"after {each}" for each in right]
        found.append(own)
    return found


def _about(token: str) -> Attributes:
    """Return the shape of a token ("Ave," is "Aa,") and how long it is."""
    shape = re.sub(r"[a-z]+", "a", re.sub(r"[A-Z]+", "A", re.sub(r"\d", "0", token)))
    return [f"shape={shape}", f"length={min(len(token), 6)}", f"last={token[-1:]}"]


def kept(train: Sequence, test: Sequence) -> tuple[list, list, list, list]:
    """Return attributes and labels to train on and to test on, without attributes that are rare in
    training.
    """
    counts = Counter(
        each for tokens, _ in train for own in attributes_of(tokens) for each in own
    )
    known = {each for each, count in counts.items() if count >= LEAST}

    def of(part: Sequence) -> tuple[list, list]:
        x = [
            [[each for each in own if each in known] for own in attributes_of(tokens)]
            for tokens, _ in part
        ]
        return x, [labels for _, labels in part]

    return *of(train), *of(test)


def wrong(found: Sequence, truth: Sequence) -> float:
    """Return the per cent of labels that are wrong."""
    pairs = [
        one == other
        for a, b in zip(found, truth, strict=True)
        for one, other in zip(a, b, strict=True)
    ]
    return 100 * (1 - float(np.mean(pairs)))


def crfsuite_error(
    train: Sequence, test: Sequence, penalty: float
) -> tuple[float, float]:
    """Return the per cent of wrong labels of CRFsuite and the seconds of its training."""
    import pycrfsuite

    x, y, x_test, y_test = kept(train, test)
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for each in zip(x, y, strict=True):
        trainer.append(*each)
    every = {"feature.possible_transitions": True, "feature.possible_states": True}
    trainer.set_params({"c1": 0.0, "c2": penalty, "max_iterations": 500, **every})
    tagger = pycrfsuite.Tagger()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        start = time.perf_counter()
        trainer.train(path)
        seconds = time.perf_counter() - start
        tagger.open(path)
        error = wrong([tagger.tag(each) for each in x_test], y_test)
        tagger.close()
    return error, seconds


def our_error(train: Sequence, test: Sequence, loss: str) -> tuple[float, float]:
    """Return the per cent of wrong labels of the estimator at its defaults, and the seconds of its
    training.
    """
    x, y, x_test, y_test = kept(train, test)
    table = DictVectorizer(sparse=False)
    table.fit([dict.fromkeys(own, 1.0) for each in x for own in each])
    numbers = lambda part: [
        np.asarray(table.transform([dict.fromkeys(own, 1.0) for own in each]))
        for each in part
    ]
    x, y = numbers(x), [np.array(labels) for labels in y]
    start = time.perf_counter()
    model = StructuredClassifier(loss=loss).fit(x, y)
    seconds = time.perf_counter() - start
    print(f"    {loss}: {x[0].shape[1]} features, ridge {model.ridge_:g}", flush=True)
    return wrong(model.predict(numbers(x_test)), y_test), seconds


def folds_of(
    addresses: Sequence, direction: str, count: int
) -> list[tuple[list, list]]:
    """Return the addresses to train on and to test on, for the first folds of ten."""
    order = np.random.default_rng(SEED).permutation(len(addresses))
    fold = np.empty(len(addresses), int)
    fold[order] = np.arange(len(addresses)) % FOLDS
    sides = []
    for k in range(count):
        inside = [addresses[i] for i in order if fold[i] == k]
        others = [addresses[i] for i in order if fold[i] != k]
        sides.append((inside, others) if direction == "one" else (others, inside))
    return sides


def chosen_penalty(train: Sequence) -> float:
    """Return the c2 of least error on a fifth of the training addresses."""
    held = round(HELD * len(train))
    error = lambda c2: crfsuite_error(train[held:], train[:held], c2)[0]
    return min(PENALTIES, key=error)


def study(sides: list[tuple[list, list]], methods: Sequence[str]) -> list[dict]:
    """Return a row for each method, and one for each comparison with CRFsuite."""
    rows, errors = [], {}
    for method in methods:
        if method == "crfsuite" and find_spec("pycrfsuite") is None:
            print("  pycrfsuite: not installed, no row", flush=True)
            continue
        if method == "crfsuite":
            penalty = chosen_penalty(sides[0][0])
            print(f"  crfsuite: c2 = {penalty:g}", flush=True)
            found = [crfsuite_error(train, test, penalty) for train, test in sides]
        else:
            found = [our_error(train, test, method) for train, test in sides]
        errors[method] = np.array([error for error, _ in found])
        mean = float(errors[method].mean())
        seconds = float(np.median([seconds for _, seconds in found]))
        shown = np.round(errors[method], 2)
        print(f"  {method:9s} {mean:5.2f} % wrong, by fold {shown}   {seconds:.1f} s")
        rows.append({"who": method, "errors": errors[method].tolist(), "mean": mean})
        rows[-1]["seconds"] = seconds
    return rows + comparisons(errors)


def comparisons(errors: dict[str, np.ndarray]) -> list[dict]:
    """Return what the rule says of ours less CRFsuite, fold by fold."""
    rows = []
    for ours in ("hinge", "crf"):
        if ours in errors and "crfsuite" in errors:
            found = compare(errors[ours] - errors["crfsuite"])
            judged = RULE.judge(found)
            print(
                f"  {ours} less crfsuite: {found.mean:+.2f} points, 95 % over folds "
                f"[{found.low:+.2f}, {found.high:+.2f}]; not more than {BAND:g}: {judged}",
                flush=True,
            )
            rows.append({"this": ours, "less": "crfsuite", "mean": found.mean})
            rows[-1] |= {"low": found.low, "high": found.high, "judged": judged}
    return rows


def file_of(asked: str | None) -> Path | None:
    """Return the file of the addresses, or None if there is none."""
    folder = data_folder()
    if asked is not None:
        return Path(asked)
    if folder is not None and (folder / FILE).is_file():
        return folder / FILE
    return None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.studies.addresses",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--file", help="training/labeled.xml of the source of usaddress"
    )
    parser.add_argument(
        "--direction",
        choices=DIRECTIONS,
        help="train on one fold or on nine; both if not given",
    )
    parser.add_argument("--folds", type=int, default=5, choices=range(1, FOLDS + 1))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    prepare()
    path, rows = file_of(arguments.file), []
    if path is None:
        print(f"no addresses: give --file, or put them at {FILE} below PROXLIN_DATA")
    else:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        addresses = addresses_of(path)
        print(f"{len(addresses)} addresses, SHA-256 {digest[:16]}", flush=True)
        for direction in DIRECTIONS:
            if arguments.direction in (None, direction):
                print(f"train on {direction}, test on the others", flush=True)
                sides = folds_of(addresses, direction, arguments.folds)
                found = study(sides, arguments.methods)
                about = {"data": digest, "direction": direction}
                rows += [about | row for row in found]
    if arguments.json:
        write_file(arguments.json, json.dumps(rows, indent=1).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
