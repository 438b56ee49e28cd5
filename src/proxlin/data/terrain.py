"""Terrain: smooth regions of grass, desert, water and rock, and how they look from above.

    terrain[r, c] = argmax_k field_k[r, c],   field_k independent smooth Gaussian fields, one for each kind

Everything follows from a `numpy` generator. Colours and patterns are our own invention.
"""

import functools
import math
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8

from ..errors import UserError, require
from ..files.reading import check_readable

TERRAINS = ("grass", "desert", "water", "rock")  # by falling reward
COLOURS = np.array(
    [[74, 122, 48], [190, 156, 98], [42, 84, 140], [112, 102, 94]], float
)

# Plain tiles in the sheets of the Wyrmsun game (CC0), 32 pixels each: the end of the file's name,
# then (row, column).
SIDE = 32
SHEETS = {
    "grass": ("grass_and_dirt", [(0, 1), (0, 2), (0, 3)]),
    "desert": ("grass_and_dirt", [(0, 4), (0, 5), (0, 6)]),
    "water": ("water", [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]),
    "rock": ("rock", [(0, 1), (0, 2), (0, 3)]),
}

Image = UInt8[np.ndarray, "h w 3"]
Field = Float[np.ndarray, "h w"]


def smooth_noise(
    rng: np.random.Generator, shape: tuple[int, int], length: float
) -> Field:
    """Return a stationary Gaussian field of variance 1 whose correlation falls over `length` cells:
    blurred noise.
    """
    # The blur is periodic, and what is cut off is the seam; sizes that are multiples of 8 transform
    # fast.
    rows, cols = (8 * math.ceil((side + 4 * length) / 8) for side in shape)
    kernel, scale = _blur(rows, cols, float(length))
    spectrum = np.fft.rfft2(rng.normal(size=(rows, cols)))
    blurred = np.fft.irfft2(spectrum * kernel)
    return blurred[: shape[0], : shape[1]] / scale


@functools.lru_cache(maxsize=16)
def _blur(rows: int, cols: int, length: float) -> tuple[Field, float]:
    """Return a Gaussian of width `length` in the frequencies of `rfft2`, and the deviation of the
    noise it blurs.
    """
    frequency = np.hypot(np.fft.fftfreq(rows)[:, None], np.fft.fftfreq(cols)[None])
    kernel = np.exp(-2 * (np.pi * length * frequency) ** 2)
    deviation = float(np.sqrt(np.mean(kernel**2)))
    return kernel[:, : cols // 2 + 1], deviation


def regions(
    rng: np.random.Generator, shape: tuple[int, int], length: float
) -> Int[np.ndarray, "rows cols"]:
    """Return the terrain of each cell, 0 to 3 in the order of TERRAINS; regions are about 2
    `length` cells wide.
    """
    return np.argmax([smooth_noise(rng, shape, length) for _ in TERRAINS], axis=0)


def paint(
    rng: np.random.Generator, terrain: Int[np.ndarray, "rows cols"], tile: int
) -> Image:
    """Paint a map by procedural textures: a colour and a pattern for each kind, and light that
    varies.

    A tile shows its own terrain alone. With borders that wander into it, a network saw where
    regions end, hence which of the optimal paths the oracle takes first, and had fewer mistakes
    (2.9 of 23) than the true rewards have (4.7).
    """
    kind = terrain.repeat(tile, axis=0).repeat(tile, axis=1)
    shape = kind.shape
    soft = smooth_noise(rng, shape, max(tile / 7, 0.7))
    fine = smooth_noise(rng, shape, 0.6)
    shades = [pattern(rng, soft, fine, tile) for pattern in PATTERNS]
    shade = np.choose(kind, shades)
    bright = rng.uniform(0.85, 1.15)
    uneven = 0.05 * smooth_noise(rng, shape, 2.0 * tile)
    grain = 0.02 * rng.normal(size=shape)
    light = bright * (1 + uneven + grain)
    tint = rng.uniform(0.95, 1.05, 3)
    return _bytes(COLOURS[kind] * (shade * light)[..., None] * tint)


def lay(
    rng: np.random.Generator,
    terrain: Int[np.ndarray, "rows cols"],
    tiles: dict[str, np.ndarray],
) -> Image:
    """Lay a map with tiles (`read_tiles`): a random one of its kind for each cell, and its own
    light.
    """
    rows, cols = terrain.shape
    side = tiles[TERRAINS[0]].shape[1]
    chosen = np.empty((rows, cols, side, side, 3))
    for kind, name in enumerate(TERRAINS):
        here = terrain == kind
        which = rng.integers(0, len(tiles[name]), here.sum())
        chosen[here] = tiles[name][which]
    chosen *= rng.uniform(0.85, 1.15) * rng.uniform(0.95, 1.05, (rows, cols, 1, 1, 1))
    picture = chosen.transpose(0, 2, 1, 3, 4)
    return _bytes(picture.reshape(rows * side, cols * side, 3))


def read_tiles(
    folder: str | Path, tile: int
) -> dict[str, Float[np.ndarray, "count tile tile 3"]]:
    """Read the tiles of each terrain, `tile` pixels wide, from a directory of images.

    A directory of single tiles names them after their terrain: `grass.png`, `grass-2.png`,
    `desert.png`, ... Else the sheets `*grass_and_dirt.png`, `*water.png` and `*rock.png` of the
    Wyrmsun game are read at their plain tiles.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such directory of tiles.")
    return {name: np.stack(_tiles_of(name, folder, tile)) for name in TERRAINS}


def _tiles_of(name: str, folder: Path, tile: int) -> list[np.ndarray]:
    single = sorted(folder.glob(f"{name}*.png"))
    if single:
        return [_resized(_open(path), tile) for path in single]
    sheet, places = SHEETS[name]
    found = sorted(folder.glob(f"*{sheet}.png"))
    if not found:
        raise UserError(
            f"{folder}: no tiles of {name}; give {name}*.png (one tile each) or a sheet *{sheet}.png."
        )
    image = _open(found[0])
    height = SIDE * (1 + max(row for row, _ in places))
    width = SIDE * (1 + max(col for _, col in places))
    if width > image.width or height > image.height:
        raise UserError(
            f"{found[0]}: the sheet is {image.width}x{image.height} pixels, too small for its plain tiles."
        )
    corners = [(SIDE * col, SIDE * row) for row, col in places]
    return [_resized(image.crop((x, y, x + SIDE, y + SIDE)), tile) for x, y in corners]


def _open(path: Path):
    images = require("PIL.Image", "experiments")
    # of far more pixels than a sheet of tiles has
    bomb = images.DecompressionBombWarning
    check_readable(path)
    broken = (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        zlib.error,
        images.DecompressionBombError,
        bomb,
    )
    try:
        with (
            warnings.catch_warnings(action="error", category=bomb),
            path.open("rb") as file,
        ):
            return images.open(file).convert("RGB")
    except broken as error:
        raise UserError(f"{path}: this is no image that can be read.") from error


def _resized(image, tile: int) -> Float[np.ndarray, "tile tile 3"]:
    # the mean of the pixels that become one
    box = require("PIL.Image", "experiments").Resampling.BOX
    return np.asarray(image.resize((tile, tile), box), float)


def _grass(rng: np.random.Generator, soft: Field, fine: Field, tile: int) -> Field:
    """Blades of all lengths, and dark tufts."""
    blades = 1 + 0.12 * fine + 0.06 * soft
    return blades * np.where(soft > 1.2, 0.72, 1.0)


def _desert(rng: np.random.Generator, soft: Field, fine: Field, tile: int) -> Field:
    """Ripples of one direction, bent a little, and sand."""
    y, x = np.indices(soft.shape)
    angle = rng.uniform(0, np.pi)
    phase = rng.uniform(0, 2 * np.pi)
    along = (x * np.cos(angle) + y * np.sin(angle)) / max(tile / 2, 2)
    ripples = np.sin(2 * np.pi * along + phase + soft)
    return 1 + 0.07 * ripples + 0.05 * fine


def _water(rng: np.random.Generator, soft: Field, fine: Field, tile: int) -> Field:
    """Flat waves with bright crests."""
    y, _ = np.indices(soft.shape)
    along = 2 * np.pi * y / max(tile / 2, 2)
    wave = np.sin(along + 2.5 * soft + rng.uniform(0, 2 * np.pi))
    crest = np.maximum(wave - 0.75, 0) / 0.25
    return 1 + 0.08 * wave + 0.22 * crest + 0.02 * fine


def _rock(rng: np.random.Generator, soft: Field, fine: Field, tile: int) -> Field:
    """A relief lit from the top left, with dark cracks in its valleys."""
    slope = np.diff(soft, axis=0, prepend=soft[:1]) + np.diff(
        soft, axis=1, prepend=soft[:, :1]
    )
    relief = np.clip(0.08 * tile * slope, -0.3, 0.3)
    cracks = 0.25 * (soft < -1.1)
    return 1 + relief - cracks + 0.06 * fine


PATTERNS: tuple[Callable, ...] = (_grass, _desert, _water, _rock)


def _bytes(colours: np.ndarray) -> Image:
    return np.clip(np.rint(colours), 0, 255).astype(np.uint8)
