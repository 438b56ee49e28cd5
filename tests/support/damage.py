"""Damage: the ways in which a file arrives broken, each a function of the content and a random
generator.

    damaged(content, rng, codec)     content after one to three of them, inside the codec or outside

A codec takes a file apart and puts it together again, so that damage gets past a checksum: what is
in an archive, the text in a compressed file, the texts of a database.
"""

import bz2
import gzip
import io
import json
import lzma
import random
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = (
    *(
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e999",
        "-1e999",
        "1e308",
        "1e-400",
        "-1",
        "0",
        "-0",
        "",
        "?",
        "0x10",
        "1_000",
    ),
    *(
        "99999999999999999999",
        "4294967296",
        "2147483648",
        "1e12",
        "1" * 400,
        "1" * 5000,
        "0." + "0" * 400 + "1",
    ),
    *(
        "+-1",
        "1e",
        "1:1:1",
        "true",
        "null",
        '"',
        "'",
        "\u0663",
        "\ud7ff",
        "<b>",
        "{}",
        "[]",
        "NULL",
    ),
)
VALUES = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    10**30,
    10**400,
    0.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    [],
    {},
)
ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n, n, n FROM r"
SIZES = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 10**12)


def _spot(content: bytes, rng: random.Random, most: int = 64) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.randint(1, most))


def flip_bits(content: bytes, rng: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if found else 0):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def behead(content: bytes, rng: random.Random) -> bytes:
    return content[rng.randrange(len(content) + 1) :]


def delete(content: bytes, rng: random.Random) -> bytes:
    start, end = _spot(content, rng)
    return content[:start] + content[end:]


def insert(content: bytes, rng: random.Random) -> bytes:
    start, _ = _spot(content, rng)
    some = rng.choice(
        (
            rng.randbytes(rng.randint(1, 40)),
            b"\x00" * rng.randint(1, 8),
            b"\n",
            b'"',
            b"\r",
            b"\xff\xfe",
        )
    )
    return content[:start] + some + content[start:]


def duplicate(content: bytes, rng: random.Random) -> bytes:
    start, end = _spot(content, rng, 400)
    return content[:end] + content[start:end] * rng.choice((1, 1, 30)) + content[end:]


def overwrite_size(content: bytes, rng: random.Random) -> bytes:
    """A field of a binary header that claims a huge or a wrong size."""
    width = rng.choice((2, 4, 8))
    start, _ = _spot(content, rng)
    size = (rng.choice(SIZES) % 256**width).to_bytes(
        width, rng.choice(("little", "big"))
    )
    return content[:start] + size + content[start + width :]


def _lines(
    change: Callable[[list[bytes], random.Random], Any],
) -> Callable[[bytes, random.Random], bytes]:
    def of(content: bytes, rng: random.Random) -> bytes:
        lines = content.split(b"\n")
        change(lines, rng)
        return b"\n".join(lines)

    return of


def _at(lines: list[bytes], rng: random.Random) -> int:
    return rng.randrange(len(lines))


shuffle_lines = _lines(lambda lines, rng: rng.shuffle(lines))
delete_line = _lines(lambda lines, rng: lines.pop(_at(lines, rng)))
repeat_line = _lines(
    lambda lines, rng: lines.insert(_at(lines, rng), lines[_at(lines, rng)])
)
join_lines = _lines(
    lambda lines, rng: lines.insert(
        0, lines.pop(_at(lines, rng)) + lines.pop() if lines[1:] else b""
    )
)


def replace_number(content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"-?\d[\d.e+-]*", content))
    if not found:
        return content
    match = rng.choice(found)
    return (
        content[: match.start()]
        + rng.choice(NUMBERS).encode("utf-8", "surrogatepass")
        + content[match.end() :]
    )


def replace_word(content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"[A-Za-z_@]{2,}", content))
    if not found:
        return content
    match = rng.choice(found)
    word = rng.choice(
        (
            match[0].upper(),
            match[0] * 2,
            match[0][:1],
            rng.choice(NUMBERS).encode("utf-8", "replace"),
        )
    )
    return content[: match.start()] + word + content[match.end() :]


def encode(content: bytes, rng: random.Random) -> bytes:
    text = content.decode("latin-1") + rng.choice(("", "\u00e9", "\u00e9\n"))
    return text.encode(
        rng.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32", "latin-1", "utf-8"))
    )


def line_ends(content: bytes, rng: random.Random) -> bytes:
    return content.replace(
        b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\x00\n", b" \n", b"\\\n", b",\n"))
    )


def compress(content: bytes, rng: random.Random) -> bytes:
    packed = rng.choice((bz2.compress, gzip.compress, lzma.compress))(content)
    return packed[: rng.choice((len(packed), len(packed) - 1, len(packed) // 2, 7))]


def nothing_left(content: bytes, rng: random.Random) -> bytes:
    return rng.choice(
        (
            b"",
            b"\n",
            b" ",
            b"\x00",
            b"\xef\xbb\xbf",
            b"\n" * 1000,
            b"\x00" * 1000,
            content[:1],
        )
    )


def noise(content: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(0, 300))


BYTES = (
    flip_bits,
    truncate,
    behead,
    delete,
    insert,
    duplicate,
    overwrite_size,
    compress,
    nothing_left,
    noise,
)
TEXT = (
    shuffle_lines,
    delete_line,
    repeat_line,
    join_lines,
    replace_number,
    replace_number,
    replace_word,
)
KINDS = (*BYTES, *TEXT, encode, line_ends)
Codec = Callable[[bytes, random.Random], bytes]


def damaged(content: bytes, rng: random.Random, codec: Codec | None = None) -> bytes:
    """Half of the time inside the codec, where there is one."""
    if codec is not None and rng.random() < 0.6:
        return codec(content, rng)
    return _some(content, rng)


def _some(content: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = rng.choice(KINDS)(content, rng)
    return content


# ------------------------------------------------------------------------------------------- codecs


def inside_gzip(content: bytes, rng: random.Random) -> bytes:
    return gzip.compress(_some(gzip.decompress(content), rng))


def inside_bz2(content: bytes, rng: random.Random) -> bytes:
    return bz2.compress(_some(bz2.decompress(content), rng))


def inside_xz(content: bytes, rng: random.Random) -> bytes:
    return lzma.compress(_some(lzma.decompress(content), rng))


def inside_zip(content: bytes, rng: random.Random) -> bytes:
    """A member that is damaged, is another array, is gone, has another name; then checksums are
    right again.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    kind = rng.choice(("damage", "array", "text", "text", "text", "gone", "name"))
    if kind == "damage":
        members[name] = _some(members[name], rng)
    elif kind == "array":
        members[name] = _npy(_odd_array(members[name], rng))
    elif kind == "text":
        text = next(
            (each for each in members if each in ("json.npy", "structure.npy")), None
        )
        members[text or name] = (
            _other_text(members[name])
            if text is None
            else _npy_text(members[text], rng)
        )
    else:
        kept = members.pop(name)
        if kind == "name":
            members[rng.choice(("x", f"../{name}", " ", f"{name}.npy", "w99.npy"))] = (
                kept
            )
    packed = io.BytesIO()
    with zipfile.ZipFile(
        packed, "w", rng.choice((zipfile.ZIP_STORED,) * 4 + (zipfile.ZIP_DEFLATED,))
    ) as archive:
        for each, body in members.items():
            archive.writestr(each, body)
    return packed.getvalue()


def inside_workbook(content: bytes, rng: random.Random) -> bytes:
    """A part of a workbook that is damaged, gone, or has an attribute or an element of another kind."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = next(name for name in parts if "worksheets/" in name)
    name = rng.choice((sheet, sheet, *parts))
    kind = rng.choice(("damage", "number", "number", "word", "gone"))
    if kind == "damage":
        parts[name] = _some(parts[name], rng)
    elif kind == "number":
        parts[name] = replace_number(parts[name], rng)
    elif kind == "word":
        parts[name] = replace_word(parts[name], rng)
    else:
        del parts[name]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, body in parts.items():
            archive.writestr(each, body)
    return packed.getvalue()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    # a pickle is one of the things that must be refused
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _odd_array(body: bytes, rng: random.Random) -> np.ndarray:
    array = np.load(io.BytesIO(body), allow_pickle=False)
    odd = (
        lambda x: x.astype(
            rng.choice(
                ("f4", "f8", "f2", "i8", "u1", "i1", "?", "c16", "U3", "S2", ">f8", "O")
            )
        ),
        lambda x: x[:0],
        lambda x: x[:-1],
        lambda x: np.concatenate([x, x]),
        lambda x: x[None],
        lambda x: x.ravel()[:1].reshape(()),
        lambda x: x.T,
        lambda x: -x.astype(float),
        lambda x: np.where(
            rng.random() < 2,
            np.full(x.shape, rng.choice((np.nan, np.inf, -np.inf, 1e300, 0.0))),
            x,
        ),
        lambda x: np.full(x.shape, rng.choice((2**31 - 1, 2**62, -5, 26, 10**9))),
        lambda x: np.array([("a", 1)], [("name", "U2"), ("number", "i4")]),
        lambda x: np.zeros(x.shape, "M8[s]"),
    )
    try:
        return rng.choice(odd)(np.atleast_1d(array))
    except (ValueError, TypeError):
        return np.zeros(0)


def _other_text(body: bytes) -> bytes:
    return _npy(np.frombuffer(body, np.uint8))


def _npy_text(body: bytes, rng: random.Random) -> bytes:
    text = np.load(io.BytesIO(body), allow_pickle=False).tobytes()
    return _npy(np.frombuffer(text_of_json(text, rng), np.uint8))


def text_of_json(text: bytes, rng: random.Random) -> bytes:
    """JSON with a value replaced, moved or gone; or damaged as a text."""
    if rng.random() < 0.2:
        return rng.choice(
            (_some(text, rng), _some(text, rng), b"[" * 99_999 + b"]" * 99_999)
        )
    tree = json.loads(text)
    for _ in range(rng.choice((1, 1, 2))):
        holders = list(_holders(tree))
        holder, key = rng.choice(holders)
        kind = rng.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            holder[key] = [holder[key]]
        elif kind == 2 and isinstance(holder, dict):
            holder[rng.choice(("x", "type", "array", "list", "leaves", "value"))] = (
                holder.pop(key)
            )
        else:
            # its own: lists are changed again
            holder[key] = json.loads(json.dumps(rng.choice(VALUES)))
        if not tree:
            break
    return json.dumps(tree).encode()


def _holders(tree: Any) -> Any:
    """(container, key) of each value of a tree of dicts and lists."""
    pairs = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in list(pairs):
        yield tree, key
        yield from _holders(value)


def inside_sqlite(content: bytes, rng: random.Random) -> bytes:
    """A text of a row that is damaged; or a table or a row that is gone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        path.write_bytes(content)
        connection = sqlite3.connect(path)
        columns = [
            ("experiments", "payload"),
            ("experiments", "request"),
            ("cases", "content"),
            ("cases", "result"),
        ]
        table, column = rng.choice(
            [
                *columns,
                ("cases", "run"),
                ("experiments", "name"),
                ("cases", "experiment"),
            ]
        )
        kind = rng.randrange(8)
        if kind == 0:
            connection.executescript(
                rng.choice(
                    (
                        f"DROP TABLE {table}",
                        f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
                        f"DROP TABLE {table}; CREATE VIEW {table} AS {ENDLESS}",
                        f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
                    )
                )
            )
        elif kind == 1:
            connection.execute(
                f"PRAGMA user_version = {rng.choice((0, 1, 3, 2**31 - 1))}"
            )
        else:
            (old,) = connection.execute(f"SELECT {column} FROM {table}").fetchone()
            new = (
                rng.choice((None, 3, 1.5, b"\xff\x00"))
                if kind == 2
                else _text_or_bytes(old, rng)
            )
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", [new])
        connection.commit()
        connection.close()
        return path.read_bytes()


def _text_or_bytes(old: str, rng: random.Random) -> str:
    new = (
        text_of_json(old.encode(), rng)
        if old.startswith("{")
        else _some(old.encode(), rng)
    )
    return new.decode("utf-8", "replace")
