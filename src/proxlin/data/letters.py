"""The public file of handwritten words, letter.data, made into the arrays of sequences.py.

A line is a letter: its number, the letter, the number of the next letter or -1 at the end of a word, two more numbers,
the fold, and 16 x 8 pixels. The order of the letters is kept.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..files.npz import write_arrays
from ..files.reading import check_readable
from ..files.writing import write_folder
from .cache import check_sha256, entry, note_of
from .sequences import ALPHABET, ENTRY, NAME, PARTS, SHAPE, load_words, read_parts

COUNTS = (6877, 52152)  # words and letters of the public file
# of the arrays, as `digest` writes them, of a copy with these counts
DIGEST = "97e59c3d326a57db20c6cbb74ba8a1bd94b0c6a57b7b2e777240195e63e5331a"
FIELDS = 6 + SHAPE[0] * SHAPE[1]  # of a line
MOST_TEXT = 2**28  # bytes when unpacked; the public file has less than a tenth


def convert(path: str | Path) -> dict[str, np.ndarray]:
    """Return the arrays PARTS of letter.data, plain or packed by gzip."""
    path = Path(path)
    labels: list[int] = []
    lengths: list[int] = []
    folds: list[int] = []
    images: list[bytes] = []
    inside = 0  # letters of the word so far
    for number, line in enumerate(_lines(path), 1):
        fields = line.split()
        fault = _fault(fields)
        if fault:
            raise UserError(f"{path}, line {number}: {fault}.")
        if inside and int(fields[5]) != folds[-1]:
            raise UserError(f"{path}, line {number}: the word goes on in another fold.")
        if not inside:
            folds.append(int(fields[5]))
        labels.append(ALPHABET.index(fields[1].decode()))
        images.append(b"".join(fields[6:]))
        inside += 1
        if fields[2] == b"-1":
            lengths.append(inside)
            inside = 0
    if inside or not lengths:
        raise UserError(f"{path}: the file ends before its last word does.")
    text = np.frombuffer(b"".join(images), np.uint8).reshape(len(labels), -1)
    return {
        "pixels": np.packbits(text == ord("1"), axis=1),
        "labels": np.array(labels, np.int64),
        "word_lengths": np.array(lengths, np.int64),
        "folds": np.array(folds, np.int64),
    }


def _lines(path: Path) -> Iterable[bytes]:
    """Yield the lines of a file, which may be packed by gzip."""
    check_readable(path)
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    opener = gzip.open if packed else open
    total = 0
    try:
        with opener(path, "rb") as file:
            # a line is far shorter than this; one that is not has too few fields
            while line := file.readline(2**16):
                total += len(line)
                if total > MOST_TEXT:
                    raise UserError(
                        f"{path} unpacks to more than {MOST_TEXT >> 20} MiB, too much for letters."
                    )
                yield line
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path}: the packed file is damaged ({error}).") from error


def _fault(fields: list[bytes]) -> str | None:
    """Return what is wrong with the fields of one line."""
    if len(fields) != FIELDS:
        return f"it has {len(fields)} fields where there must be {FIELDS}"
    if len(fields[1]) != 1 or fields[1] not in ALPHABET.encode():
        return "its second field is no letter from a to z"
    if not fields[2].lstrip(b"-").isdigit():
        return "its third field is no number"
    if len(fields[5]) != 1 or not fields[5].isdigit():
        return "its sixth field is no fold from 0 to 9"
    if not set(fields[6:]) <= {b"0", b"1"}:
        return "a pixel is neither 0 nor 1"
    return None


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of the numbers of PARTS, whatever file they come from."""
    total = hashlib.sha256()
    for name in PARTS:
        numbers = np.ascontiguousarray(arrays[name], "<i8")
        total.update(f"{name} {numbers.shape} ".encode())
        total.update(numbers.tobytes())
    return total.hexdigest()


def get_words(path: Path, sha256: str | None, source: str) -> str:
    """Keep the words of a file, letter.data or .npz, in the cache; return how they were checked."""
    found = check_sha256(path, sha256)
    with path.open("rb") as file:
        is_archive = file.read(2) == b"PK"
    if is_archive:
        load_words(path)
        arrays = read_parts(path)
    else:
        arrays = convert(path)
    counts = (len(arrays["word_lengths"]), len(arrays["labels"]))
    usual = digest(arrays) == DIGEST
    if not usual and not sha256 and counts != COUNTS:
        raise UserError(
            f"{path}: it has {counts[0]:,d} words and {counts[1]:,d} letters where {NAME} has {COUNTS[0]:,d} and "
            f"{COUNTS[1]:,d}; if you trust the file, give its SHA-256, {found}."
        )
    place = entry(ENTRY)
    write_folder(
        place.parent,
        {
            note_of(place).name: json.dumps({"source": source}).encode(),
            place.name: partial(write_arrays, arrays=arrays),
        },
    )
    what = f"{counts[0]:,d} words of {counts[1]:,d} letters. Its SHA-256 is {found}"
    if usual:
        return f"{what}; its letters, words and folds are those that are known."
    if sha256:
        return f"{what}, as you gave it."
    return f"{what}; words and letters were counted, and nothing else was checked."
