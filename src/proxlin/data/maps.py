"""Maps for path planning: pixels, the hidden reward of each cell, and an optimal monotone path.

    path = argmax_y sum_{r, c} rewards[r, c] y[r, c]        over right and down moves, by `MonotonePaths`

`terrain_maps` makes them from a seed; `load_warcraft` reads the public Warcraft shortest-path files, which warcraft.py
unpacks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, UInt8

from ..errors import UserError
from ..files.folders import cache_folder
from ..files.npz import Damaged, mapped
from ..files.reading import check_readable
from ..networks import CNN, activation_named
from ..oracles import MonotonePaths
from ..types import Key, Params
from . import terrain
from .cache import md5
from .metrics import OptimalPaths, argmax, hamming, outputs, together

# integers: sums are exact, so ties are ties
REWARDS = {"grass": 3.0, "desert": 2.0, "water": 1.0, "rock": 0.0}
REGION = 1.0  # the default correlation length of the terrain, in cells
METRICS = ("hamming", "expected", "nearest", "regret")

WARCRAFT_PARTS = ("maps", "vertex_weights", "shortest_paths")
# md5 of the public files of 12x12 cells (Vlastelica et al., Differentiation of Blackbox
# Combinatorial Solvers).
CHECKSUMS = {
    "train_maps.npy": "c31760c5fbd9d034b6e21a6612895e69",
    "train_vertex_weights.npy": "761cc8098730504335efdefec3b221a6",
    "train_shortest_paths.npy": "1483015985796f3bf9f3e5e00cb8e855",
    "test_maps.npy": "a5c50ae11e4bd01cb1a2cd76e5849b22",
    "test_vertex_weights.npy": "071dbcf2aa9d98fc255abdcb780151b1",
    "test_shortest_paths.npy": "deae60b10d932e2a37271df4b44e295d",
}


@dataclass(frozen=True)
class Maps:
    """n maps of rows x cols cells, `tile` pixels each.

    `paths` are 0/1, row-major as in `MonotonePaths`; `note` says where the maps come from and what their labels are.
    Slices are maps again.
    """

    pixels: UInt8[np.ndarray, "_ height width 3"]
    rewards: Float[np.ndarray, "n rows cols"]
    paths: Num[np.ndarray, "_ m"]
    note: str = ""

    def __post_init__(self):
        n, rows, cols = self.rewards.shape
        height, width = self.pixels.shape[1:3]
        if height % rows or width % cols or height * cols != width * rows:
            raise UserError(
                f"maps of {height}x{width} pixels are no multiple of {rows}x{cols} square tiles; "
                f"each cell must be the same whole number of pixels high and wide."
            )
        if len(self.pixels) != n or self.paths.shape != (n, rows * cols):
            raise UserError(
                f"there are {len(self.pixels)} images, {n} maps of rewards and paths of shape {self.paths.shape}; "
                f"there must be as many of each, and a path has {rows * cols} entries."
            )
        finite = np.isfinite(self.rewards).all((1, 2))
        if not finite.all():
            raise UserError(
                f"map {int(np.argmin(finite))} has a reward that is not finite."
            )
        check_paths(self.paths, rows, cols)

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, cols)."""
        return self.rewards.shape[1], self.rewards.shape[2]

    @property
    def tile(self) -> int:
        """The side of a cell, in pixels."""
        return self.pixels.shape[1] // self.rewards.shape[1]

    @property
    def oracle(self) -> MonotonePaths:
        return MonotonePaths(*self.grid)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, part: slice) -> "Maps":
        return replace(
            self,
            pixels=self.pixels[part],
            rewards=self.rewards[part],
            paths=self.paths[part],
        )

    def tiles(self) -> UInt8[np.ndarray, "n m tile tile 3"]:
        """Return the pixels of each cell, row-major: what a network of tiles takes."""
        n = len(self)
        rows, cols = self.grid
        side = self.tile
        cut = self.pixels.reshape(n, rows, side, cols, side, 3)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(n, rows * cols, side, side, 3)

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (tiles, paths): the data for the inner map `augmented_scores(TileRewards(...),
        oracle)`.
        """
        return self.tiles(), self.paths

    def optimal(self) -> OptimalPaths:
        """Return all optimal paths of the maps."""
        return OptimalPaths.of(self.rewards)

    def redraw(self, seed: int) -> "Maps":
        """Return the maps, each labelled by an optimal path drawn uniformly, where an oracle takes
        the first.
        """
        # Map i comes from the stream [seed, i], which is [seed, i, 0] too: the third number keeps
        # the labels apart from all of them.
        drawn = self.optimal().draw(np.random.default_rng([seed, 3, 1]))
        paths = drawn.astype(self.paths.dtype)
        return replace(
            self, paths=paths, note=f"{self.note} Labels: random optimal paths."
        )

    def __repr__(self) -> str:
        rows, cols = self.grid
        return f"Maps({len(self)} of {rows}x{cols} cells of {self.tile} pixels. {self.note})"


class TileRewards(eqx.Module):
    """The model: a CNN from the pixels of a tile to its reward, the same for all cells, with smooth
    activations.

    Law: predict(w, tiles)[i] == CNN(...)(w, tiles[i] / 127.5 - 1)[0]. A stage is one product with a
    matrix whose columns are the 3x3 patches of all tiles: in a scan on the CPU, the backward pass of
    XLA's convolution is 3 to 7 times as slow. Tiles are the last axis, so that a patch is copied by
    rows of that length: with the channels last a gradient takes 1.7 times as long.

    >>> import jax
    >>> predict = TileRewards(tile=8, channels=(4, 8))
    >>> w = jax.eval_shape(predict.init, jax.random.key(0))
    >>> jax.eval_shape(predict, w, np.zeros((144, 8, 8, 3), np.uint8)).shape
    (144,)
    """

    network: CNN

    def __init__(
        self, tile: int, channels: Sequence[int] = (8, 16), activation: str = "elu"
    ):
        self.network = CNN((tile, tile, 3), channels, 1, activation)

    def init(self, key: Key, dtype: jnp.dtype | type | None = None) -> Params:
        return self.network.init(key, dtype)

    def __call__(
        self, w: Params, tiles: UInt8[Array | np.ndarray, "m t t 3"]
    ) -> Float[Array, " m"]:
        *stages, last = w
        dtype = last["W"].dtype
        x = jnp.asarray(tiles).transpose(3, 1, 2, 0)  # colours, rows, columns, tiles
        x = x.astype(dtype) / 127.5 - 1  # in [-1, 1]
        act = activation_named(self.network.activation)
        for stage in stages:
            depth, side, _, m = x.shape
            around = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            shifts = [
                around[:, i : i + side, j : j + side] for i, j in np.ndindex(3, 3)
            ]
            patches = jnp.concatenate(shifts).reshape(9 * depth, -1)
            weights = stage["W"].reshape(9 * depth, -1)
            image = act(weights.T @ patches + stage["b"][:, None])
            x = image.reshape(-1, side // 2, 2, side // 2, 2, m).mean((2, 4))
        features = x.transpose(1, 2, 0, 3).reshape(-1, x.shape[-1])
        rewards = last["W"] @ features + last["b"][:, None]
        return rewards[0]


def terrain_maps(
    count: Any,
    rows: Any = 12,
    cols: Any = 12,
    tile: Any = 8,
    *,
    seed: int = 0,
    region: float | int = REGION,
    rewards: Mapping[str, float | int] = REWARDS,
    tiles: str | Path | None = None,
) -> Maps:
    """Return `count` random maps of smooth regions of grass, desert, water and rock.

    Map i depends on the seed and i alone: more maps begin with the fewer.

    Parameters
    ----------
    count : an integer
        The number of maps.
    rows : an integer
        The rows of a map, in cells.
    cols : an integer
        Its columns.
    tile : an integer
        The pixels of the side of a cell.
    seed : an integer
        The randomness of the maps.
    region : a positive number
        The size of the regions, in cells.
    rewards : a dict
        The reward of a cell for each kind of terrain.
    tiles : a folder, or None
        Images to lay in place of the procedural textures (`terrain.read_tiles`).

    Returns
    -------
    `Maps`
        The pixels, the rewards and the best path of each map.

    Raises
    ------
    UserError
        A number is out of range, or there is one path only; it is a ValueError.

    See Also
    --------
    MonotonePaths : the oracle of the paths.
    StructuredHinge : the loss to learn them.

    Examples
    --------
    >>> from proxlin.data.maps import terrain_maps
    >>> maps = terrain_maps(2, rows=3, cols=4, tile=2)
    >>> maps.pixels.shape, maps.rewards.shape, maps.paths.sum(axis=1).tolist()
    ((2, 6, 8, 3), (2, 3, 4), [6, 6])
    """
    for what, number in (
        ("maps", count),
        ("rows", rows),
        ("columns", cols),
        ("pixels of a tile", tile),
    ):
        if isinstance(number, bool) or int(number) != number or number < 1:
            raise UserError(
                f"the number of {what} must be a positive integer; it is {number!r}."
            )
    if min(rows, cols) == 1:
        raise UserError(
            f"a grid of {rows}x{cols} cells has one monotone path only: there is nothing to learn."
        )
    if not 0 < region < np.inf:
        raise UserError(
            f"the size of the regions must be positive and finite; it is {region!r}."
        )
    values = _by_terrain(rewards)
    stock = None if tiles is None else terrain.read_tiles(tiles, tile)
    pixels = np.empty((count, rows * tile, cols * tile, 3), np.uint8)
    hidden = np.empty((count, rows, cols), np.float32)
    for i in range(count):
        rng = np.random.default_rng([seed, i])
        kinds = terrain.regions(rng, (rows, cols), region)
        if stock is None:
            pixels[i] = terrain.paint(rng, kinds, tile)
        else:
            pixels[i] = terrain.lay(rng, kinds, stock)
        hidden[i] = values[kinds]
    look = "procedural textures" if tiles is None else "tiles from a directory"
    return Maps(
        pixels, hidden, best_paths(hidden), f"Random terrain of seed {seed}, {look}."
    )


def load_warcraft(
    folder: str | Path | None = None,
    split: str = "train",
    count: int | None = None,
    check: bool = True,
    which: np.ndarray | None = None,
) -> Maps:
    """Read the public Warcraft shortest-path files
    {split}_{maps,vertex_weights,shortest_paths}.npy, never unpickled.

    Without a folder they are those that `proxlin data get warcraft` has put into the cache. Rewards are minus the
    vertex weights. The files' own labels are 8-neighbour shortest paths, which need not be monotone: they are checked
    for shape, but the labels here are monotone optima computed from the vertex weights. `count` takes the first maps
    only, `which` those of these numbers; `check=False` takes files that are not the public ones of 12x12 cells.
    """
    if split not in ("train", "val", "test"):
        raise UserError(f'the split must be "train", "val" or "test"; it is {split!r}.')
    if folder is None:
        folder = warcraft_folder()
        if not folder.is_dir():
            raise UserError(
                "the Warcraft maps are not in the cache: `proxlin data get warcraft` downloads them, "
                "or name the folder of their .npy files."
            )
    maps, weights, paths = (
        read_array(Path(folder) / f"{split}_{part}.npy", check)
        for part in WARCRAFT_PARTS
    )
    where = f"{folder}: {split}"
    part = slice(count) if which is None else which
    if maps.dtype != np.uint8 or maps.ndim != 4 or maps.shape[3] != 3:
        raise UserError(
            f"{where}_maps.npy must hold images (n, height, width, 3) of uint8; it is {_kind(maps)}."
        )
    if weights.dtype.kind not in "fiu" or weights.ndim != 3:
        raise UserError(
            f"{where}_vertex_weights.npy must hold numbers (n, rows, cols); it is {_kind(weights)}."
        )
    if paths.shape != weights.shape or not np.isin(paths[part], (0, 1)).all():
        raise UserError(
            f"{where}_shortest_paths.npy must hold 0 and 1 in the shape {weights.shape}; see that file."
        )
    hidden = -np.asarray(weights[part], np.float32)
    if not np.isfinite(hidden).all():
        raise UserError(f"{where}_vertex_weights.npy has a value that is not finite.")
    note = f"Warcraft {split} files; labels are monotone optima from the vertex weights, not the files' own paths."
    return Maps(np.array(maps[part]), hidden, best_paths(hidden), note)


def warcraft_folder() -> Path:
    """Return where the cache has the Warcraft files; it need not exist yet."""
    return cache_folder() / "warcraft" / "12x12"


def best_paths(rewards: Float[np.ndarray, "n rows cols"]) -> Num[np.ndarray, "n m"]:
    """Return the first optimal path of each map in the order of the oracle (ties: up before left),
    as 0/1 bytes.
    """
    n, rows, cols = rewards.shape
    paths = argmax(MonotonePaths(rows, cols), rewards.reshape(n, -1))
    return np.asarray(paths).astype(np.uint8)


def check_paths(paths: Num[np.ndarray, "n m"], rows: int, cols: int) -> None:
    """Raise a sentence unless every row is the 0/1 vector of a monotone path.

    It is a set of rows + cols - 1 cells, one on each anti-diagonal, each next to the one before.
    """
    y = np.asarray(paths).reshape(-1, rows, cols)
    row, col = np.indices((rows, cols))
    diagonals = [row + col == d for d in range(rows + cols - 1)]
    cells_on = np.stack([y[:, here].sum(1) for here in diagonals], axis=1)
    row_on = np.stack([(y * row)[:, here].sum(1) for here in diagonals], axis=1)
    zero_one = np.isin(y, (0, 1)).all((1, 2))
    one_each = (cells_on == 1).all(1)
    connected = np.isin(np.diff(row_on, axis=1), (0, 1)).all(1)
    good = zero_one & one_each & connected
    if not good.all():
        raise UserError(
            f"the path of map {int(np.argmin(good))} is no monotone path of right and down moves from the top left to "
            f"the bottom right of {rows}x{cols} cells; compute one from the rewards with best_paths."
        )


def read_array(path: Path, check: bool) -> np.ndarray:
    """Read a .npy file, never unpickled; with `check`, only if its md5 is that of the public file
    of its name.
    """
    check_readable(path)
    wanted = CHECKSUMS.get(path.name)
    if check and wanted:
        found = md5(path)
        if found != wanted:
            raise UserError(
                f"{path}: its md5 is {found}, but that of the public file is {wanted}; get it again, or "
                f"pass check=False for maps of your own."
            )
    try:
        return mapped(path)
    except Damaged as error:
        raise UserError(
            f"{path}: this is no plain .npy array of numbers ({error})."
        ) from error


def path_metrics(predict: Callable, maps: Maps) -> dict[str, Callable]:
    """Return metrics for `minimize`: means over unseen maps, in cells and in units of reward (see
    OptimalPaths).

    "hamming": cells off the label; "expected": the same on average over all optimal paths, of which
    `redraw` draws the label; "nearest": cells off the nearest optimal path; "regret": reward
    lost. All are inf where scores are nan, which leaves no best path.
    """
    optimal = maps.optimal()
    marginals = optimal.marginals()  # once, and not for each w
    rows, cols = maps.grid
    length = rows + cols - 1
    tiles = jnp.asarray(maps.tiles())

    def evaluate(w: Params) -> dict[str, float]:
        y = np.asarray(outputs(predict, maps.oracle, w, tiles))
        if not y.any(axis=1).all():
            return dict.fromkeys(METRICS, np.inf)
        each = {
            "hamming": hamming(maps.oracle, maps.paths, y),
            "expected": length - np.sum(marginals * y, axis=1),
            "nearest": optimal.nearest(y),
            "regret": optimal.regret(y),
        }
        return {name: float(np.mean(values)) for name, values in each.items()}

    return together(evaluate, METRICS)


def _by_terrain(rewards: Mapping[str, float | int]) -> Float[np.ndarray, " kinds"]:
    if sorted(rewards) != sorted(terrain.TERRAINS):
        raise UserError(
            f"rewards must name {', '.join(terrain.TERRAINS)}; they name {', '.join(sorted(rewards))}."
        )
    values = np.array([rewards[name] for name in terrain.TERRAINS], float)
    if not np.isfinite(values).all() or np.any(np.diff(values) >= 0):
        raise UserError(
            f"rewards must be finite and fall in the order {' > '.join(terrain.TERRAINS)}: {dict(rewards)}."
        )
    return values


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
