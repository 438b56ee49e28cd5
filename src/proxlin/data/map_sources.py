"""Where the maps of Figures 3 and 4 come from.

    source = "drawn"       random terrain of procedural textures
    source = "warcraft"    the public Warcraft files, which `proxlin data get warcraft` keeps
    source = "FOLDER"      such files in a folder, or images of tiles that random terrain is laid with

A folder is looked for below PROXLIN_DATA, and then as a path. The checksum of its files is part of every case.
"""

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..errors import UserError
from .cache import data_folder, md5, sha256
from .maps import (
    CHECKSUMS,
    Maps,
    load_warcraft,
    read_array,
    terrain_maps,
    warcraft_folder,
)
from .origin import Origin, generated
from .terrain import read_tiles

DRAWN = "drawn"
WARCRAFT = "warcraft"
# The paper's maps are random as well; that its tiles are those of a game, and ours drawn, a reader
# has to know.
DRAWN_MAPS = generated(
    "drawn maps",
    "random terrain of drawn tiles, where the paper has tiles of Warcraft II",
)

Parts = tuple[Maps, Maps, Maps]  # to train, to validate and to test


def origin_of(source: str, side: int, tile: int) -> Origin:
    """Return where the maps of a source come from; raise a sentence if its files cannot be used."""
    if source == DRAWN:
        return DRAWN_MAPS
    folder = _folder(source)
    content = content_of(source)
    if not _has_warcraft(folder):
        read_tiles(folder, tile)
        words = f"random terrain laid with the tiles in the folder {folder.name}"
        return Origin(
            f"drawn maps of the tiles in {folder.name}", "generated", words, content
        )
    _check_shape(_warcraft(folder, "train", np.arange(1)), side, tile)
    public = all(md5(folder / name) == wanted for name, wanted in CHECKSUMS.items())
    words = "the public files of 12x12 cells, with monotone optima as labels"
    if not public:
        words = f"Warcraft files in the folder {folder.name} that are not the public ones of 12x12 cells"
    kind = "file" if public else "another file"
    return Origin("Warcraft maps", kind, words, content)


def content_of(source: str) -> str:
    """Return the checksum of the files of a source, or "generated"."""
    if source == DRAWN:
        return DRAWN_MAPS.content
    paths = _files(_folder(source))
    stats = [path.stat() for path in paths]
    return _checksum(tuple(paths), tuple((x.st_size, x.st_mtime_ns) for x in stats))


@lru_cache(maxsize=2)
def _checksum(paths: tuple[Path, ...], stats: tuple) -> str:
    """Return the checksum of some files, looked at once for each of their sizes and times."""
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.name} {sha256(path)}\n".encode())
    return total.hexdigest()


def draw_maps(
    source: str,
    content: str,
    seed: int,
    counts: tuple[int, int, int],
    side: int,
    tile: int,
) -> Parts:
    """Return train, validation and test maps of a seed, each labelled by one of its optimal paths, drawn
    uniformly, from the files of this `content` and no others.
    """
    found = content_of(source)
    if found != content:
        raise UserError(
            f"the maps {source} were {content} when the sweep was begun, but here they are {found}; give every worker "
            "the same files, or begin again in another folder."
        )
    train, validation, test = counts
    if source == DRAWN or not _has_warcraft(_folder(source)):
        tiles = None if source == DRAWN else _folder(source)
        drawn = terrain_maps(sum(counts), side, side, tile, seed=seed, tiles=tiles)
        maps = drawn.redraw(seed)
        return (
            maps[:train],
            maps[train : train + validation],
            maps[train + validation :],
        )
    folder = _folder(source)
    rng = np.random.default_rng([seed, 4])
    known = _some(folder, "train", train + validation, rng)
    unseen = _some(folder, "test", test, rng)
    for maps in (known, unseen):
        _check_shape(maps, side, tile)
    # the labels of the second come from another stream
    known = known.redraw(seed)
    return known[:train], known[train:], unseen.redraw(seed + 2**31)


def _some(folder: Path, split: str, count: int, rng: np.random.Generator) -> Maps:
    """Return some maps of a split, drawn at random without replacement."""
    total = len(read_array(folder / f"{split}_vertex_weights.npy", check=False))
    if total < count:
        raise UserError(
            f"{folder}: there are {total} {split} maps, and the config asks for {count}."
        )
    return _warcraft(folder, split, rng.permutation(total)[:count])


def _warcraft(folder: Path, split: str, which: np.ndarray) -> Maps:
    # The origin says whether they are the public files.
    return load_warcraft(folder, split, check=False, which=which)


def _check_shape(maps: Maps, side: int, tile: int) -> None:
    rows, cols = maps.grid
    if (rows, cols, maps.tile) != (side, side, tile):
        raise UserError(
            f"the Warcraft maps have {rows}x{cols} cells of {maps.tile} pixels, and the config has side = {side} and "
            f"tile = {tile}; write the numbers of the maps into it."
        )


def _folder(source: str) -> Path:
    """Return the folder of a source, or raise a sentence if there is none."""
    if source == WARCRAFT:
        folder = warcraft_folder()
        if not folder.is_dir():
            raise UserError(
                "the Warcraft maps are not in the cache: `proxlin data get warcraft` downloads them, "
                "or write the folder of their .npy files into the config as source."
            )
        return folder
    below = data_folder()
    places = [Path(source)] if below is None else [below / source, Path(source)]
    for folder in places:
        if folder.is_dir():
            return folder
    raise UserError(
        f"{source}: there is no such folder of tiles or Warcraft files, neither below PROXLIN_DATA nor as a path; "
        f'source may also be "{DRAWN}" or "{WARCRAFT}".'
    )


def _has_warcraft(folder: Path) -> bool:
    return (folder / "train_maps.npy").exists()


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder that make its maps."""
    if _has_warcraft(folder):
        return [folder / name for name in CHECKSUMS]
    return sorted(folder.glob("*.png"))
