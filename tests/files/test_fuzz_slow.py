"""Ten thousand damaged files: each is read or refused in one sentence, in time, and with little
memory.
"""

import gzip
import random
import time
from pathlib import Path

import numpy as np
import pytest

from damage import damaged
from good_files import READERS, SVM, Reader, outcome
from guard import forget_peak, limited, little_memory, peak
from proxlin.data import libsvm
from proxlin.errors import UserError

pytestmark = pytest.mark.slow
COUNTS = dict.fromkeys(READERS, 600) | {"model": 1500, "store": 300, "table, CSV": 700}


def test_ten_thousand_in_all():
    assert sum(COUNTS.values()) >= 10_000


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name, tmp_path, monkeypatch, figures):
    reader = READERS[name]
    seeds, found, slowest = reader.seeds(), [], 0.0
    for each, content in seeds.items():
        assert run(reader, tmp_path / "good", each, content, monkeypatch) == "read"
    before = forget_peak()
    with little_memory():
        for number in range(COUNTS[name]):
            rng = random.Random(f"{name} {number}")
            each = rng.choice(list(seeds))
            content = damaged(seeds[each], rng, reader.codec)
            start = time.perf_counter()
            try:
                found.append(
                    run(reader, tmp_path / str(number), each, content, monkeypatch)
                )
            except BaseException as error:
                error.add_note(
                    f"{name}, number {number}, the file {each}, kept in {tmp_path / str(number)}"
                )
                raise
            slowest = max(slowest, time.perf_counter() - start)
    figures(
        f"fuzz-{name.replace(', ', '-').replace(' ', '-')}",
        files=len(found),
        read=found.count("read"),
        refused=found.count("refused"),
        slowest_ms=round(1e3 * slowest, 1),
        peak_growth_mib=peak() - before,
    )


def run(
    reader: Reader,
    folder: Path,
    name: str,
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """In a folder of its own, which is gone when all went well."""
    folder.mkdir()
    monkeypatch.setenv("PROXLIN_CACHE", str(folder))
    (folder / name).write_bytes(content)
    found = outcome(reader, folder / name)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    return found


# ------------------------------------------------------------------------------------- memory bombs


def npy(shape: str, descr: str = "<f8") -> bytes:
    header = (
        f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    )
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    "shape",
    ["(1000000000000,)", "(4294967296, 4294967296, 4294967296)", "(0, 1000000000000)"],
)
@pytest.mark.parametrize("name", ["model", "solution", "words", "cache", "maps"])
def test_a_header_that_claims_too_much_is_refused(name, shape, tmp_path, monkeypatch):
    """Nothing is taken before the size of the file has been compared with the claim."""
    import io
    import zipfile

    reader = READERS[name]
    each, content = next(iter(reader.seeds().items()))
    if name == "maps":
        content = npy(shape, "|u1")
    else:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {part: archive.read(part) for part in archive.namelist()}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for number, (part, body) in enumerate(members.items()):
                archive.writestr(part, npy(shape) if number == 0 else body)
        content = buffer.getvalue()
    before = forget_peak()
    with little_memory():
        assert run(reader, tmp_path / "bomb", each, content, monkeypatch) == (
            "read" if name == "cache" else "refused"
        )
    assert peak() - before < 200


def test_text_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    """1 MiB of gzip, 1 GiB of a single line; and lines of which the memory could not hold what they
    stand for.
    """
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(1024):
            file.write(b"1" * 2**20)
    before = forget_peak()
    with pytest.raises(UserError, match="longer than 64 MiB"), limited(60):
        libsvm.read(path)
    assert peak() - before < 1000
    monkeypatch.setattr(libsvm, "MEMORY", 2**40)
    path.write_bytes(gzip.compress(SVM))
    with pytest.raises(UserError, match="unpacks to more than"):
        libsvm.read(path)


def test_an_image_of_a_billion_pixels_is_refused(tmp_path, monkeypatch):
    import io

    from PIL import Image

    # Pillow's own limit, 89 million, lowered for the test
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((128, 128, 3), np.uint8)).save(buffer, "PNG")
    assert (
        run(
            READERS["tiles"],
            tmp_path / "bomb",
            "grass.png",
            buffer.getvalue(),
            monkeypatch,
        )
        == "refused"
    )
