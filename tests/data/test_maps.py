"""Maps: the generator, all optimal paths, the reader of public files, and what bad input is told."""

import dataclasses
import hashlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.data import maps as m
from proxlin.data import terrain
from proxlin.data.metrics import OptimalPaths, hamming, outputs, together
from proxlin.errors import UserError
from proxlin.networks import CNN


def all_paths(rows, cols):
    """Y as rows of a matrix, by brute force over moves."""
    found = []
    for downs in itertools.combinations(range(rows + cols - 2), rows - 1):
        r = np.concatenate([[0], np.cumsum(np.isin(np.arange(rows + cols - 2), downs))])
        found.append(
            np.bincount(r * cols + np.arange(len(r)) - r, minlength=rows * cols)
        )
    return np.array(found, float)


# ------------------------------------------------------------------------------------ the generator


def test_maps_are_terrain_with_optimal_paths():
    maps = m.terrain_maps(6, 4, 5, 8, seed=1)
    assert maps.pixels.shape == (6, 32, 40, 3) and maps.pixels.dtype == np.uint8
    assert (maps.grid, maps.tile, len(maps)) == ((4, 5), 8, 6)
    assert set(np.unique(maps.rewards)) <= set(m.REWARDS.values())
    y = all_paths(4, 5)
    best = (maps.rewards.reshape(6, -1) @ y.T).max(1)
    np.testing.assert_array_equal(
        (maps.rewards.reshape(6, -1) * maps.paths).sum(1), best
    )
    assert "seed 1" in repr(maps) and "6 of 4x5 cells of 8 pixels" in repr(maps)


def test_labels_and_maps_have_streams_of_their_own(monkeypatch):
    """NumPy fills a short seed up with zeros, so [seed, 3] and [seed, 3, 0] are one stream."""
    streams = []
    make = np.random.default_rng

    def recorded(seed):
        streams.append((*seed, 0, 0)[:4])
        return make(seed)

    monkeypatch.setattr(np.random, "default_rng", recorded)
    m.terrain_maps(6, 3, 3, 4, seed=2).redraw(2)
    assert len(streams) == len(set(streams)) == 7


def test_a_map_depends_on_seed_and_number_alone():
    more, fewer, other = (
        m.terrain_maps(n, 3, 3, 4, seed=s) for n, s in ((5, 0), (3, 0), (3, 1))
    )
    for part in ("pixels", "rewards", "paths"):
        np.testing.assert_array_equal(getattr(more[:3], part), getattr(fewer, part))
    assert (more[:3].pixels != other.pixels).mean() > 0.5
    assert len(more[3:]) == 2 and more[3:].note == more.note


def test_regions_are_smooth_and_of_all_kinds():
    kinds = np.stack(
        [
            terrain.regions(np.random.default_rng(i), (12, 12), m.REGION)
            for i in range(60)
        ]
    )
    share = np.bincount(kinds.ravel(), minlength=4) / kinds.size
    assert np.all(np.abs(share - 0.25) < 0.06)
    assert np.mean(kinds[:, 1:] == kinds[:, :-1]) > 0.55, (
        "neighbours are mostly alike; 0.25 without smoothness"
    )
    field = np.stack(
        [
            terrain.smooth_noise(np.random.default_rng(i), (8, 8), 1.5)
            for i in range(200)
        ]
    )
    assert np.var(field) == pytest.approx(1, rel=0.1) and abs(np.mean(field)) < 0.1


def test_tiles_look_like_their_terrain_and_differ():
    """The mean colour of a tile tells its terrain (what a network has to find); no two tiles are
    alike.
    """
    maps = m.terrain_maps(10, 6, 6, 8)
    tiles = maps.tiles().reshape(-1, 8, 8, 3).astype(float)
    kind = 3 - maps.rewards.ravel().astype(int)
    hue = tiles.mean((1, 2)) / tiles.mean((1, 2, 3))[:, None]
    expected = terrain.COLOURS / terrain.COLOURS.mean(1, keepdims=True)
    nearest = np.argmin(np.linalg.norm(hue[:, None] - expected[None], axis=2), axis=1)
    assert np.mean(nearest == kind) > 0.95
    assert len(np.unique(tiles.reshape(len(tiles), -1), axis=0)) == len(tiles)
    assert all(tiles[kind == k].mean((1, 2, 3)).std() > 3 for k in range(4)), (
        "the light varies"
    )


def test_a_tile_shows_its_own_terrain_alone():
    """Else a network sees where regions end, and with it which optimal path the oracle takes first."""
    kinds = terrain.regions(np.random.default_rng(0), (3, 4), 1.0)
    other = kinds.copy()
    other[1, 2] = (kinds[1, 2] + 1) % 4
    one, two = (
        terrain.paint(np.random.default_rng(1), each, 4) for each in (kinds, other)
    )
    changed = (one != two).any(axis=2)
    assert changed[4:8, 8:12].all()
    changed[4:8, 8:12] = False
    assert not changed.any()


@pytest.mark.parametrize("rows, cols, tile", [(2, 2, 1), (2, 7, 3), (5, 2, 12)])
def test_any_grid_and_tile(rows, cols, tile):
    maps = m.terrain_maps(2, rows, cols, tile)
    assert maps.tiles().shape == (2, rows * cols, tile, tile, 3)
    np.testing.assert_array_equal(
        maps.tiles()[1, cols + 1], maps.pixels[1, tile : 2 * tile, tile : 2 * tile]
    )


def test_rewards_can_be_chosen():
    maps = m.terrain_maps(
        3, 3, 3, 2, rewards={"rock": -7, "grass": 0.5, "water": -1, "desert": 0}
    )
    assert set(np.unique(maps.rewards)) <= {-7, 0.5, -1, 0}


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        ({"rows": 1}, "a grid of 1x12 cells has one monotone path only"),
        ({"cols": 1}, "a grid of 12x1 cells has one monotone path only"),
        ({"rows": 0}, "the number of rows must be a positive integer; it is 0"),
        (
            {"tile": 2.5},
            "the number of pixels of a tile must be a positive integer; it is 2.5",
        ),
        ({"count": -1}, "the number of maps must be a positive integer"),
        ({"region": 0.0}, "the size of the regions must be positive and finite"),
        (
            {"region": float("nan")},
            "the size of the regions must be positive and finite",
        ),
        (
            {"rewards": {"grass": 1.0}},
            "rewards must name grass, desert, water, rock; they name grass",
        ),
        (
            {"rewards": {**m.REWARDS, "rock": 5.0}},
            "fall in the order grass > desert > water > rock",
        ),
        ({"rewards": {**m.REWARDS, "grass": float("inf")}}, "rewards must be finite"),
        (
            {"tiles": "no/such/folder"},
            "no/such/folder: there is no such directory of tiles",
        ),
    ],
)
def test_wrong_use_of_the_generator(wrong, sentence):
    with pytest.raises(UserError, match=sentence):
        m.terrain_maps(**{"count": 1, "tile": 2, **wrong})


# ----------------------------------------------------------------------------- a directory of tiles


def save(path, array):
    image = pytest.importorskip(
        "PIL.Image", reason="needs Pillow: pip install 'proxlin[experiments]'"
    )
    image.fromarray(np.asarray(array, np.uint8)).save(path)


def test_single_tiles_are_laid(tmp_path):
    for k, name in enumerate(terrain.TERRAINS):
        save(tmp_path / f"{name}.png", np.full((8, 8, 3), 60 * k))
    save(tmp_path / "rock-2.png", np.full((5, 5, 3), 200))
    maps = m.terrain_maps(4, 3, 3, 4, tiles=tmp_path)
    means = maps.tiles().mean((2, 3, 4)).reshape(4, 3, 3)
    expected = 60.0 * (3 - maps.rewards)
    assert np.all(
        (np.abs(means - expected) <= 0.25 * expected)
        | ((maps.rewards == 0) & (means > 150))
    )
    assert "directory" in maps.note


def test_the_plain_tiles_of_a_sheet_are_read(tmp_path):
    """Every tile of a made-up sheet has a colour of its own, which says where a tile was read."""
    colour = lambda sheet, row, col: np.array([60 * sheet + 50, 20 * row, 20 * col])
    sheets = dict.fromkeys(sheet for sheet, _ in terrain.SHEETS.values())
    for number, sheet in enumerate(sheets):
        tiles = np.array(
            [[colour(number, row, col) for col in range(7)] for row in range(2)]
        )
        save(
            tmp_path / f"tileset_{sheet}.png",
            tiles.repeat(terrain.SIDE, axis=0).repeat(terrain.SIDE, axis=1),
        )
    found = terrain.read_tiles(tmp_path, 8)
    for name, (sheet, places) in terrain.SHEETS.items():
        expected = [colour(list(sheets).index(sheet), *place) for place in places]
        np.testing.assert_array_equal(
            found[name], np.array(expected)[:, None, None] * np.ones((1, 8, 8, 1))
        )


def test_the_wyrmsun_sheets(data_file):
    folder = data_file("tiles/tileset_forest_water.png").parent
    tiles = terrain.read_tiles(folder, 8)
    assert [len(tiles[name]) for name in terrain.TERRAINS] == [3, 3, 5, 3]
    red, green, blue = range(3)
    mean = {name: stack.mean((0, 1, 2)) for name, stack in tiles.items()}
    assert (
        mean["grass"].argmax() == green
        and mean["desert"].argmax() == red
        and mean["water"].argmax() == blue
    )
    assert np.ptp(mean["rock"]) < 40
    maps = m.terrain_maps(2, 3, 4, 8, tiles=folder)
    assert maps.pixels.shape == (2, 24, 32, 3)


def test_bad_tiles_are_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"no tiles of grass; give grass\*.png"):
        terrain.read_tiles(tmp_path, 4)
    save(tmp_path / "x_grass_and_dirt.png", np.zeros((32, 64, 3)))
    with pytest.raises(UserError, match="the sheet is 64x32 pixels, too small"):
        terrain.read_tiles(tmp_path, 4)
    (tmp_path / "grass.png").write_bytes(b"\x89PNG no image")
    with pytest.raises(UserError, match=r"grass.png: this is no image"):
        terrain.read_tiles(tmp_path, 4)


# ------------------------------------------------------------------------------------ optimal paths


@pytest.mark.parametrize("rows, cols", [(2, 5), (4, 3), (5, 5)])
def test_optimal_paths_are_brute_force(rows, cols):
    y = all_paths(rows, cols)
    rewards = np.random.default_rng(rows).integers(0, 3, (20, rows, cols)).astype(float)
    z = rewards.reshape(20, -1) @ y.T
    paths = OptimalPaths.of(rewards)
    drawn = paths.draw(np.random.default_rng(0))
    labels = m.best_paths(rewards)
    asked = y[np.random.default_rng(1).integers(0, len(y), 20)]
    distance = rows + cols - 1 - y @ y.T
    found = [
        paths.count(),
        paths.marginals(),
        paths.floor(labels),
        paths.spread(),
        paths.nearest(asked),
        paths.least(),
    ]
    for i in range(20):
        best = z[i] == z[i].max()
        apart = distance[best][:, best]
        off = rows + cols - 1 - y[best] @ asked[i]
        label = rows + cols - 1 - y[best] @ labels[i]
        everywhere = distance[best].mean(0).min()
        expected = [
            best.sum(),
            y[best].mean(0),
            label.mean(),
            apart.mean(),
            off.min(),
            everywhere,
        ]
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine[i], theirs, atol=1e-12)
        assert (y[best] == drawn[i]).all(1).any(), "what is drawn is optimal"
    np.testing.assert_array_equal(paths.score, z.max(1))
    np.testing.assert_allclose(
        paths.regret(asked), z.max(1) - (rewards.reshape(20, -1) * asked).sum(1)
    )
    assert not paths.regret(labels).any() and not paths.nearest(labels).any()


def test_draws_are_uniform():
    rewards = np.repeat(np.array([[[1.0, 1, 0], [1, 1, 1], [0, 1, 1]]]), 6000, axis=0)
    paths = OptimalPaths.of(rewards)
    assert paths.count()[0] == 4
    _, times = np.unique(
        paths.draw(np.random.default_rng(0)), axis=0, return_counts=True
    )
    assert len(times) == 4 and np.all(np.abs(times - 1500) < 5 * np.sqrt(6000 * 3 / 16))


def test_equal_on_paper_is_a_tie():
    """0.1 + 0.2 + 0.3 rounds by its order; a count that saw it would miss a path."""
    rewards = np.array([[[0.0, 0.1, 0.2], [0.3, -1.0, 0.3], [0.2, 0.1, 0.0]]])
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    assert OptimalPaths.of(rewards).count()[0] == 2
    with pytest.raises(ValueError, match="Rewards must be finite; map 0"):
        OptimalPaths.of(np.full((1, 2, 2), np.nan))


def test_trap_9_optimal_paths_are_not_unique():
    """With a fixed reward for each terrain the median is 30 to 100 paths, and two ways to break
    ties differ in 7 to 10 of 23 cells: following the true rewards leaves a Hamming loss that no
    learner beats.
    """
    maps = m.terrain_maps(200, tile=1, seed=9)
    paths = maps.optimal()
    assert 20 <= np.median(paths.count()) <= 130
    flipped = m.best_paths(np.ascontiguousarray(maps.rewards.transpose(0, 2, 1)))
    left_first = flipped.reshape(-1, 12, 12).transpose(0, 2, 1).reshape(-1, 144)
    apart = hamming(maps.oracle, maps.paths, left_first)
    assert 6 <= np.median(apart) <= 11
    assert not paths.regret(left_first).any() and not paths.nearest(left_first).any(), (
        "both are optimal"
    )
    random = maps.redraw(0)
    assert (
        not paths.regret(random.paths).any() and "random optimal paths" in random.note
    )
    assert 3 < paths.floor(maps.paths).mean() < 8
    assert np.all(paths.least() <= paths.spread() + 1e-12)
    # labels drawn uniformly: the floor is the spread on average, and a second draw of paths has
    # that loss
    wide = 4 * paths.spread().std() / np.sqrt(200) + 0.5
    assert abs(paths.floor(random.paths).mean() - paths.spread().mean()) < wide
    assert (
        abs(
            hamming(maps.oracle, random.paths, maps.redraw(1).paths).mean()
            - paths.spread().mean()
        )
        < wide
    )


# ---------------------------------------------------------------------------------------- the model


def test_the_model_is_the_cnn_of_each_tile():
    predict, cnn = m.TileRewards(4, (3, 5)), CNN((4, 4, 3), (3, 5))
    w = jax.tree.map(lambda x: x + 0.1, predict.init(jax.random.key(0)))
    tiles = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3)).astype(np.uint8)
    each = jax.jit(jax.vmap(lambda w, tile: cnn(w, tile)[0], (None, 0)))(
        w, tiles / 127.5 - 1
    )
    np.testing.assert_allclose(jax.jit(predict)(w, tiles), each, rtol=1e-12)
    with pytest.raises(ValueError, match="multiples of 4"):
        m.TileRewards(6, (3, 5))


def test_the_metrics_of_a_model_that_knows_the_colours():
    """Hidden rewards from single-coloured tiles: a model that reads them has regret 0 and nearest
    0.
    """
    maps = m.terrain_maps(5, 4, 4, 2)
    flat = np.repeat(np.repeat(maps.rewards.astype(np.uint8), 2, axis=1), 2, axis=2)[
        ..., None
    ]
    maps = dataclasses.replace(maps, pixels=np.repeat(flat, 3, axis=3))
    metrics = m.path_metrics(lambda w, tiles: w * tiles.mean((1, 2, 3)), maps)
    found = {name: metrics[name](jnp.asarray(1.0)) for name in m.METRICS}
    assert found.pop("expected") > 0  # the label is one of several optimal paths
    assert set(found.values()) == {0.0}
    worst = {name: metrics[name](jnp.asarray(-1.0)) for name in m.METRICS}
    assert worst["regret"] > 0 and worst["hamming"] >= worst["nearest"] > 0


def test_one_evaluation_for_all_metrics():
    calls = []
    metrics = together(
        lambda w: calls.append(1) or {"a": float(w), "b": -float(w)}, ("a", "b")
    )
    one, two = np.array(1.0), np.array(2.0)
    assert [
        metrics["a"](one),
        metrics["b"](one),
        metrics["b"](two),
        metrics["a"](two),
    ] == [1, -1, -2, 2]
    assert len(calls) == 2


def test_sgd_learns_to_plan():
    """A tiny run: the structural hinge on 40 maps takes the regret on unseen maps far down."""
    maps = m.terrain_maps(60, 4, 4, 4)
    train, test = maps[:40], maps[40:]
    predict = m.TileRewards(4, (4,))
    inner = px.augmented_scores(predict, maps.oracle)
    problem = px.MeanOfLosses(
        inner, px.StructuredHinge(maps.oracle), train.data(), ridge=1e-4
    )
    w = predict.init(jax.random.key(0), jnp.float32)
    history = px.minimize(
        problem, w, px.sgd(0.01), passes=8, metrics=m.path_metrics(predict, test)
    ).history
    assert history["regret"][-1] < 0.4 * history["regret"][0]
    assert history["nearest"][-1] < 0.5 * history["nearest"][0]


# --------------------------------------------------------------------------------- the public files


@pytest.fixture
def warcraft(tmp_path):
    rng = np.random.default_rng(0)
    weights = rng.choice([0.8, 1.2, 7.7, 9.2], (3, 4, 4)).astype(np.float16)
    # an 8-neighbour path, not a monotone one
    diagonal = np.repeat(np.eye(4, dtype=np.uint8)[None], 3, axis=0)
    parts = {
        "maps": rng.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8),
        "vertex_weights": weights,
        "shortest_paths": diagonal,
    }

    def write(split="train", **changes):
        for name, array in (parts | changes).items():
            np.save(tmp_path / f"{split}_{name}.npy", array, allow_pickle=True)
        return tmp_path

    return write


def test_warcraft_files(warcraft):
    folder = warcraft("val")
    maps = m.load_warcraft(folder, "val")
    assert maps.grid == (4, 4) and maps.tile == 8 and len(maps) == 3
    weights = np.load(folder / "val_vertex_weights.npy")
    np.testing.assert_array_equal(maps.rewards, -weights.astype(np.float32))
    best = (maps.rewards.reshape(3, -1) @ all_paths(4, 4).T.astype(np.float32)).max(1)
    np.testing.assert_allclose(
        (maps.rewards.reshape(3, -1) * maps.paths).sum(1), best, rtol=1e-6
    )
    assert "monotone optima from the vertex weights, not the files' own paths" in repr(
        maps
    )
    assert len(m.load_warcraft(folder, "val", count=2)) == 2


def test_warcraft_checksums(warcraft, monkeypatch):
    folder = warcraft("train")
    found = hashlib.md5((folder / "train_maps.npy").read_bytes()).hexdigest()
    with pytest.raises(
        UserError,
        match=rf"train_maps.npy: its md5 is {found}, but that of the public file is c31760",
    ):
        m.load_warcraft(folder)
    assert len(m.load_warcraft(folder, check=False)) == 3
    sums = {
        path.name: hashlib.md5(path.read_bytes()).hexdigest()
        for path in folder.glob("*.npy")
    }
    monkeypatch.setattr(m, "CHECKSUMS", sums)
    assert len(m.load_warcraft(folder)) == 3
    assert all(len(each) == 32 for each in sums.values())


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize(
    "changes, sentence",
    [
        (
            {"maps": np.array([Bomb(), None])},
            r"val_maps.npy: this is no plain .npy array of numbers",
        ),
        (
            {"vertex_weights": np.array([[[{}]]])},
            r"val_vertex_weights.npy: this is no plain .npy array of numbers",
        ),
        (
            {"maps": np.zeros((3, 30, 32, 3), np.uint8)},
            "maps of 30x32 pixels are no multiple of 4x4 square tiles",
        ),
        (
            {"maps": np.zeros((3, 32, 32, 3))},
            r"must hold images \(n, height, width, 3\) of uint8; it is float64",
        ),
        (
            {"maps": np.zeros((2, 32, 32, 3), np.uint8)},
            "there are 2 images, 3 maps of rewards",
        ),
        (
            {"vertex_weights": np.full((3, 4, 4), np.nan)},
            "val_vertex_weights.npy has a value that is not finite",
        ),
        (
            {"vertex_weights": np.zeros((3, 16))},
            r"must hold numbers \(n, rows, cols\); it is float64",
        ),
        (
            {"shortest_paths": np.full((3, 4, 4), 2)},
            r"val_shortest_paths.npy must hold 0 and 1",
        ),
    ],
)
def test_bad_files_are_a_sentence(warcraft, changes, sentence):
    with pytest.raises(UserError, match=sentence):
        m.load_warcraft(warcraft("val", **changes), "val")


def test_missing_and_broken_files(warcraft, tmp_path):
    with pytest.raises(UserError, match="val_maps.npy: there is no such file"):
        m.load_warcraft(tmp_path, "val")
    with pytest.raises(
        UserError, match='the split must be "train", "val" or "test"; it is \'dev\''
    ):
        m.load_warcraft(tmp_path, "dev")
    folder = warcraft("val")
    path = folder / "val_maps.npy"
    for content in (b"no array", path.read_bytes()[:200]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="this is no plain .npy array of numbers"):
            m.load_warcraft(folder, "val")
    with path.open("wb") as file:
        np.savez(file, a=np.zeros(3))
    with pytest.raises(UserError, match="an archive of arrays"):
        m.load_warcraft(folder, "val")


@pytest.mark.parametrize(
    "path",
    [
        np.eye(3),  # diagonal moves
        [[1, 1, 0], [0, 0, 0], [0, 1, 1]],  # a gap
        [[1, 1, 1], [1, 0, 0], [1, 1, 1]],  # back to the left
        [[0, 0, 0], [1, 1, 1], [0, 0, 1]],  # not from the corner
        [[1, 0, 1], [1, 1, 0], [0, 0, 1]],  # one on each diagonal, far apart
        [[2, 1, 0], [0, 1, 0], [0, 1, 1]],  # not 0/1
        [[1, 0.5, 0], [0.5, 1, 0], [0, 1, 1]],  # a mean of two paths
    ],
)
def test_labels_that_are_no_monotone_path(path):
    good = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 1]], float)
    m.check_paths(good.reshape(1, 9), 3, 3)
    labels = np.stack([good.ravel(), np.asarray(path, float).ravel()])
    with pytest.raises(UserError, match="the path of map 1 is no monotone path"):
        m.Maps(np.zeros((2, 3, 3, 3), np.uint8), np.zeros((2, 3, 3)), labels)


def test_rewards_that_are_not_finite():
    maps = m.terrain_maps(2, 2, 2, 1)
    with pytest.raises(UserError, match="map 1 has a reward that is not finite"):
        dataclasses.replace(
            maps,
            rewards=np.stack([maps.rewards[0], np.full((2, 2), np.inf, np.float32)]),
        )


def test_outputs_are_the_argmax_in_chunks(monkeypatch):
    oracle = px.MonotonePaths(3, 3)
    x = np.random.default_rng(0).normal(size=(23, 9))
    expected = np.stack(
        [all_paths(3, 3)[i] for i in np.argmax(x @ all_paths(3, 3).T, axis=1)]
    )
    np.testing.assert_array_equal(
        outputs(lambda w, x: w * x, oracle, jnp.asarray(2.0), x), expected
    )
    monkeypatch.setattr("proxlin.data.metrics.CACHE", 2000)
    np.testing.assert_array_equal(
        outputs(lambda w, x: 1.0 * w * x, oracle, jnp.asarray(2.0), x), expected
    )
