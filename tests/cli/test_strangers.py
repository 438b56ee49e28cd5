"""What strangers give: special files, names that command a terminal, formulas, numbers beyond any
float.
"""

import base64
import gzip
import io
import json
import os
import socket
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import jax
import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from matplotlib.figure import Figure

from good_files import READERS, RECORD, findings_for, outcome, workbook
from guard import limited
from proxlin.cli.main import main
from proxlin.data.frames import read_frame
from proxlin.errors import UserError, printable
from proxlin.experiments.engine import report
from proxlin.experiments.engine import store as store_module
from proxlin.experiments.engine.store import FILE, LONGEST, open_store
from proxlin.files.npz import read_arrays, write_arrays
from proxlin.plots.fits import plain
from proxlin.plots.svg import Foreign, inline
from proxlin.tables.asked import Asked
from proxlin.tables.columns import encoder_of
from proxlin.tables.model import Model, pack_models
from proxlin.tables.standardize import units_of
from proxlin.tables.training import network_of

TABLE = "a,y\n" + "".join(f"{i},{i * i}\n" for i in range(30))
ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"


@pytest.fixture
def said(capsys):
    """Run a command that must be refused: exit code 2 and one line on the standard error, which is
    returned.
    """

    def run(*arguments: object) -> str:
        with limited(60):  # the first command imports everything
            code = main([str(each) for each in arguments])
        err = capsys.readouterr().err
        assert code == 2 and err.count("\n") == 1 and err[:-1].isprintable(), (
            code,
            err,
        )
        return err

    return run


# ------------------------------------------------------------------------------------ special files


@pytest.fixture
def special(tmp_path) -> dict[str, Path]:
    found = {
        "a folder": tmp_path / "folder",
        "a pipe": tmp_path / "pipe.csv",
        "a socket": tmp_path / "socket",
    }
    found["a folder"].mkdir()
    os.mkfifo(found["a pipe"])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(found["a socket"]))
    # The last three say that they are ordinary files, and are empty until they are read: one of
    # them never ends.
    system = (
        "/dev/zero",
        "/dev/null",
        "/dev/tty",
        "/proc/self/mem",
        "/proc/self/pagemap",
        "/proc/self/environ",
    )
    return found | {name: Path(name) for name in system if Path(name).exists()}


COMMANDS = {
    "fit": lambda path: ("fit", path, "--target", "y", "--out", path.parent / "out"),
    "advise": lambda path: ("advise", path, "--target", "y"),
    "predict": lambda path: ("predict", path, path),
    "data get": lambda path: ("data", "get", "ijcnn1", "--from", path),
    "reproduce": lambda path: ("reproduce", "fig2", "--dry-run", "--config", path),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_special_files_are_refused_at_once(command, special, said):
    for path in special.values():
        sentence = said(*COMMANDS[command](path))
        assert str(path) in sentence and (
            "; name an ordinary file." in sentence or "is empty." in sentence
        ), sentence


def test_special_files_in_the_folders_of_data(tmp_path, monkeypatch, said, capsys):
    """A pipe in the cache is as good as nothing; one among the data is a sentence."""
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PROXLIN_DATA", str(tmp_path / "data"))
    (tmp_path / "cache/libsvm").mkdir(parents=True)
    (tmp_path / "data/libsvm").mkdir(parents=True)
    os.mkfifo(tmp_path / "cache/libsvm/ijcnn1.npz")
    with limited():
        assert main(["data", "check"]) == 0
    capsys.readouterr()
    os.mkfifo(tmp_path / "data/libsvm/ijcnn1.bz2")
    assert "a pipe with a name" in said("data", "check")


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "arrow", "xlsx"])
def test_the_output_of_a_command_is_read(form, tmp_path):
    """`command | proxlin advise /dev/stdin` and `proxlin advise <(command)`, up to the sentence on what it holds."""
    content = b"a,y\n1,2\n2,3\n"
    table = pa.table({"a": [1, 2], "y": [2, 3]})
    buffer = io.BytesIO()
    if form == "csv.gz":
        content = gzip.compress(content)
    elif form == "xlsx":
        content = workbook([("a", "y"), (1, 2), (2, 3)])
    elif form == "parquet":
        pyarrow.parquet.write_table(table, buffer)
        content = buffer.getvalue()
    elif form == "arrow":
        pyarrow.feather.write_feather(table, buffer)
        content = buffer.getvalue()
    command = [
        sys.executable,
        "-m",
        "proxlin.cli",
        "advise",
        "/dev/stdin",
        "--target",
        "y",
    ]
    sheet = ", sheet 'Data'" if form == "xlsx" else ""
    found = subprocess.run(
        command, input=content, capture_output=True, timeout=60, check=False
    )
    assert (
        found.returncode == 2
        and found.stderr
        == f"proxlin: /dev/stdin{sheet} has 2 rows with every target; 10 or more are needed.\n".encode()
    )


# ----------------------------------------------------------------------------------- texts that act


def test_no_control_character_reaches_the_terminal(tmp_path, said, capsys):
    table = tmp_path / f"{ESCAPES}.csv".replace("/", "")
    table.write_text(f'"{ESCAPES}a",y\n' + "1,2\n" * 9)
    assert "\\x1b[2J" in said("fit", tmp_path / f"{ESCAPES}none.csv", "--target", "y")
    assert "\\x1b[2J" in said("fit", table, "--target", "x")
    assert "\\x1b[2J" in said("fit", table, "--target", "y", "--loss", ESCAPES)
    assert "\\x1b[2J" in said("fit", table, "--target", "y", "--out", table)
    assert "\\x1b[2J" in said("data", "get", ESCAPES)
    assert "\\x1b[2J" in said("report", tmp_path / ESCAPES)
    assert "\\x1b[2J" in said(f"--{ESCAPES}")
    assert main(["fit", str(table), "--target", "nothing", "--debug"]) == 2
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_control_characters_in_names_are_drawn_as_escapes(tmp_path, capsys):
    """An SVG cannot hold them, and Matplotlib's warnings about glyphs would print them."""
    odd = ("\x00", "\x07", "\x1b", "\x7f", "\ufffe", "\uffff")
    header = [*(f"a{each}" for each in odd), f"y{''.join(odd)}"]
    rows = [[(i + 1) * (j + 3) % 11 for j in range(7)] for i in range(30)]
    lines = [",".join(map(str, row)) for row in rows]
    table = tmp_path / "t.csv"
    table.write_text("\n".join([",".join(f'"{each}"' for each in header), *lines]))
    asked = ("--target", header[-1], "--hidden", "0", "--solver", "sgd")
    assert main(["fit", str(table), *asked, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).replace("\n", "").isprintable()
    for each in odd:
        assert plain(f"a{each}$") == f"a{printable(each)}\\$"


def test_a_table_has_no_formulas():
    table = [
        {
            "=name": "=1+1",
            "-x": "-1.5",
            "y": -2.0,
            "z": "@SUM(A1)",
            "t": "\tx",
            "ok": "a=b",
        }
    ]
    assert (
        report.csv_bytes(table).decode()
        == "'=name,'-x,y,z,t,ok\n'=1+1,-1.5,-2.0,'@SUM(A1),'\tx,a=b\n"
    )


def test_predict_keeps_names_and_says_so(tmp_path, monkeypatch, capsys):
    """In a file they are as they were; a terminal gets no control character of them."""
    frame = read_frame(written(tmp_path / "t.csv", TABLE))
    encoder = encoder_of(frame, ["y"])
    X, _ = encoder.encode(frame)
    network = network_of(encoder.width, 0, 1)
    w = jax.tree.map(lambda x: x[None], network.init(jax.random.key(0)))
    model = Model(
        Asked(("=y\x1b[2J",), "l1", 0),
        None,
        encoder,
        units_of(X, frame["y"].cells[:, None]),
        w,
        findings_for(encoder, ("=y\x1b[2J",)),
        {},
    )
    (tmp_path / "m.npz").write_bytes(pack_models([model]))
    asked = ["predict", str(tmp_path / "m.npz"), str(tmp_path / "t.csv")]
    for terminal, shown in ((False, "=y\x1b[2J\n"), (True, "=y\\x1b[2J\n")):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        assert main(asked) == 0
        out, err = capsys.readouterr()
        assert out.startswith(shown) and len(out.splitlines()) == 31
        assert (
            err
            == "Note: the column '=y\\x1b[2J' is a formula to a spreadsheet; import it as text.\n"
        )


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_name_that_is_markup_is_a_name(tmp_path, said):
    """Rich draws the progress, and in its markup [/red] would close a style that nobody opened."""
    odd = tmp_path / "a["
    odd.mkdir()
    assert "red].svm, line 1: the label 'x'" in said(
        "data", "get", "ijcnn1", "--from", written(odd / "red].svm", "x")
    )


# ------------------------------------------------------------------------- numbers beyond any float


def with_a_huge_number(text: bytes) -> list[bytes]:
    """The JSON texts that have 10^400 in the place of one number."""
    found = []
    for count in range(len(_numbers(json.loads(text)))):
        tree = json.loads(text)
        holder, key = _numbers(tree)[count]
        holder[key] = 10**400
        found.append(json.dumps(tree).encode())
    return found


def _numbers(tree: object) -> list[tuple]:
    """(container, key) of each number in a tree of dicts and lists."""
    pairs = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    found = []
    for key, value in pairs:
        found += [(tree, key)] if type(value) in (int, float) else _numbers(value)
    return found


@pytest.mark.parametrize(
    ("name", "member"), [("model", "json"), ("solution", "structure")]
)
def test_huge_numbers_in_archives(name, member, tmp_path):
    each, content = next(iter(READERS[name].seeds().items()))
    (tmp_path / each).write_bytes(content)
    arrays = read_arrays(tmp_path / each)
    for text in with_a_huge_number(arrays[member].tobytes()):
        with (tmp_path / each).open("wb") as file:
            write_arrays(file, arrays | {member: np.frombuffer(text, np.uint8)})
        assert outcome(READERS[name], tmp_path / each) in ("read", "refused")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("experiments", "payload"),
        ("cases", "content"),
        ("cases", "result"),
        ("cases", "run"),
    ],
)
def test_huge_numbers_in_results(table, column, tmp_path):
    path = tmp_path / FILE
    path.write_bytes(READERS["store"].seeds()[FILE])
    with sqlite3.connect(path) as connection:
        (old,) = connection.execute(f"SELECT {column} FROM {table}").fetchone()
    for text in with_a_huge_number(old.encode()):
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE {table} SET {column} = ?", [text.decode()])
        assert outcome(READERS["store"], path) in ("read", "refused")


HUGE = "1" + "0" * 400
TEXTS = {
    "table, CSV": f"a,y\n1,2\n{HUGE},3\n4,5\n",
    "table, ARFF": f"@attribute a real\n@attribute y real\n@data\n1,2\n{HUGE},3\n",
    "libsvm, text": f"1 1:2\n-1 1:{HUGE}\n",
    "config": f"[quick]\nsamples = [{HUGE}]\nnoise = {HUGE}\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_huge_numbers_in_texts(name, tmp_path):
    path = tmp_path / (
        "fig2.toml" if name == "config" else next(iter(READERS[name].seeds()))
    )
    path.write_text(TEXTS[name])
    assert outcome(READERS[name], path) == "refused"


# ------------------------------------------------------------------ a results folder from elsewhere

SMALL = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 1 1">{}</svg>'
REFRESH = '<meta xmlns="http://www.w3.org/1999/xhtml" http-equiv="refresh" content="0; url=//x"/>'
ACTIVE = (
    *(
        "<script>1</script>",
        '<g onload="alert(1)"/>',
        '<a xlink:href="https://x"><path d="M0"/></a>',
        "<title>x</title>",
    ),
    f"<foreignObject>{REFRESH}</foreignObject>",
    REFRESH,
    *(
        "<style>@import 'x';</style>",
        "<style>body {display: none}</style>",
        '<g style="position: fixed; top: 0"/>',
    ),
    *(
        '<g style="fill: url(https://x)"/>',
        '<g style="fill: url(#a)); background: url(x"/>',
        '<g class="readout"/>',
    ),
    *(
        '<image xlink:href="https://x/a.png"/>',
        '<image xlink:href="data:image/svg+xml;base64,AAAA"/>',
        '<g clip-path="url(x)"/>',
    ),
    *(
        '<use xlink:href="https://x#a"/>',
        '<g id="a"><use xlink:href="#a"/></g>',
        '<use href="#a"/>',
        "<animate/>",
    ),
    *(
        "<set attributeName='href' to='x'/>",
        "<?xml-stylesheet href='x'?>",
        "loose text",
        "<svg/>",
        "<g>" * 200 + "</g>" * 200,
    ),
    *(
        "<metadata><script>1</script></metadata>",
        "<metadata><x xmlns='y'/></metadata>",
        "<g>",
        "&lol;",
    ),
    *(
        '<pattern id="a"><path style="fill: url(#a)"/></pattern>',
        '<g id="a&quot;b"/>',
        '<path d="&lt;"/>',
    ),
)


@pytest.mark.parametrize("part", ACTIVE)
def test_a_figure_that_could_act_is_refused(part):
    with pytest.raises(Foreign):
        inline(SMALL.format(part), "p")
    with pytest.raises(Foreign):
        inline(f'<!DOCTYPE svg [<!ENTITY lol "ha">]>{SMALL.format("")}', "p")


def test_what_matplotlib_draws_is_not_refused():
    """Every kind of mark that its backend has an element for; and the page's element has all of the
    paths.
    """
    for text in ("path", "none"):
        drawn = io.StringIO()
        with matplotlib.rc_context({"svg.fonttype": text}):
            of_everything().savefig(drawn, format="svg")
        drawn = drawn.getvalue()
        element = inline(drawn, "p")
        assert element.startswith("<svg") and "http" not in element
        assert element.count("<path") == drawn.count("<path") and element.count(
            "<use"
        ) == drawn.count("<use")
        assert 'id="p-axes_1"' in element and (
            text == "path" or "&lt;&amp;&gt;" in element
        )


def of_everything() -> Figure:
    rng = np.random.default_rng(0)
    figure = Figure()
    one, two, three, four = figure.subplots(2, 2).ravel()
    one.plot([1, 2], [3, 4], "o--", label="$x^2$")
    one.errorbar([1, 2], [3, 4], 0.1)
    one.set_yscale("log")
    one.legend(title="<&>")
    two.scatter(
        rng.random(9), rng.random(9), c=rng.random(9), s=rng.random(9), hatch="//"
    )
    two.fill_between([0, 1], [0, 1], [1, 2], alpha=0.3, hatch="x")
    figure.colorbar(three.imshow(rng.random((3, 3))))
    three.annotate(
        "\u00e9", (1, 1), (0, 0), arrowprops={"arrowstyle": "->"}, rotation=30
    )
    four.pcolormesh(rng.random((3, 3)), shading="gouraud")
    four.contour(rng.random((3, 3)))
    return figure


@pytest.fixture
def folder(tmp_path) -> Path:
    """A good folder, to be spoiled."""
    (tmp_path / FILE).write_bytes(READERS["store"].seeds()[FILE])
    return tmp_path


def test_a_figure_in_the_database_that_could_act(folder, said):
    record = RECORD | {
        "figures": {
            "f": {
                "svg": base64.b64encode(
                    SMALL.format(f"<foreignObject>{REFRESH}</foreignObject>").encode()
                ).decode()
            }
        }
    }
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute("UPDATE experiments SET payload = ?", [json.dumps(record)])
    assert (
        "a figure with the element 'foreignObject', which no figure of proxlin has"
        in said("report", folder)
    )
    assert not (folder / "report.html").exists() and not (folder / "figures").exists()


ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT"
ROWS = f"{ENDLESS} n name, n request, n payload FROM r"
SCHEMAS = {
    "a view that never ends": f"DROP TABLE experiments; CREATE VIEW experiments AS {ROWS}",
    "a view of the cases": f"DROP TABLE cases; CREATE VIEW cases AS {ROWS}",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON cases BEGIN DELETE FROM cases; END",
    "another table": "CREATE TABLE more (x)",
    "a computed column": "ALTER TABLE cases ADD COLUMN x AS (hex(zeroblob(1000000000)))",
    "an index": "CREATE INDEX i ON cases (hex(result))",
    "a virtual table": "CREATE VIRTUAL TABLE v USING fts5(x)",
}


ODD = {
    "a setting called experiment": (
        "cases",
        "content",
        {"task": "t", "settings": {"experiment": [1], "key": {}}},
    ),
    "a result that is an empty mapping": ("cases", "result", {"loss": {}}),
    "a result of mixed lists": (
        "cases",
        "result",
        {"loss": [1, "x", [2], {"a": None}]},
    ),
    "a run of its own": (
        "experiments",
        "payload",
        RECORD | {"run": {"seconds": 1.0, "mood": [{"good": {}}]}},
    ),
    "a title of tags": (
        "experiments",
        "payload",
        RECORD | {"title": "</title><script>1</script>"},
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_records_are_shown(name, folder):
    table, column, value = ODD[name]
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", [json.dumps(value)])
        if table == "experiments":  # beside a record of the usual kind
            connection.execute(
                "INSERT INTO experiments VALUES ('other', '{}', ?)",
                [json.dumps(RECORD)],
            )
    assert main(["report", str(folder), "--quiet"]) == 0
    assert "<script>1" not in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", SCHEMAS)
def test_other_tables_than_ours_are_refused(name, folder, said):
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.executescript(SCHEMAS[name])
    assert "other tables than proxlin writes" in said("report", folder)


def test_a_query_has_a_limit_of_work(folder, monkeypatch):
    """Also where the schema is ours, a damaged tree of pages can have no end."""
    monkeypatch.setattr(store_module, "WORK", 10**6)
    with open_store(folder) as store, limited(60):
        with pytest.raises(UserError, match="interrupted"):
            store._rows(f"{ENDLESS} max(n) FROM r")
        assert len(store.cases()) == 2  # and the next one has its own limit


def test_a_text_has_a_limit_of_size(folder, said):
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute("UPDATE cases SET result = zeroblob(?)", [LONGEST + 1])
    assert "string or blob too big" in said("report", folder)


def test_the_table_of_cases_has_a_limit_of_size(folder, said, monkeypatch):
    """A result of a million names would be a table of a million columns, of gigabytes."""
    wide = json.dumps({f"k{i}": 1 for i in range(store_module.COLUMNS)})
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute("UPDATE cases SET result = ?", [wide])
    sentence = said("report", folder)
    assert "2 cases with 10,0" in sentence and "10,000 columns" in sentence
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute("UPDATE cases SET result = '{}'")
    monkeypatch.setattr(store_module, "CELLS", 3)
    assert "may have 10,000 columns and 3 cells" in said("report", folder)
    monkeypatch.undo()
    assert main(["report", str(folder), "--quiet"]) == 0


@pytest.mark.parametrize(
    "name",
    [
        ".lock",
        FILE,
        f"{FILE}-journal",
        "report.html",
        "figures",
        "figures/a.svg",
        "cases.parquet",
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "link", "loop"])
def test_a_folder_of_traps(name, kind, folder, said, tmp_path_factory):
    path, elsewhere = folder / name, tmp_path_factory.mktemp("elsewhere") / "precious"
    elsewhere.write_bytes((folder / FILE).read_bytes())
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(elsewhere if kind == "link" else path)
    before = elsewhere.read_bytes()
    assert str(folder) in said("report", folder)
    assert str(folder) in said("reproduce", "fig1", "--out", folder)
    assert elsewhere.read_bytes() == before


def test_a_journal_that_has_another_file_deleted(folder, said, tmp_path_factory):
    """Without the check SQLite rolls the journal back and deletes the file that it names."""
    precious = tmp_path_factory.mktemp("elsewhere") / "precious"
    precious.write_text("precious")
    (folder / f"{FILE}-journal").write_bytes(
        journal_naming(str(precious).encode(), (folder / FILE).read_bytes())
    )
    assert "names a file to delete" in said("report", folder)
    assert precious.exists()
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute("SELECT * FROM cases").fetchall()
    assert not precious.exists()  # the trap is a real one


def journal_naming(name: bytes, database: bytes) -> bytes:
    """A journal with no pages, by the file format of SQLite, section 3: its header fills a sector
    of 512 bytes.
    """
    pages = len(database) // 4096
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(
        ">5I", 0, 0, pages, 512, 4096
    )
    checksum = sum(each - 256 * (each > 127) for each in name) % 2**32
    ending = (
        struct.pack(">I", 2**30 // 4096 + 1)
        + name
        + struct.pack(">II", len(name), checksum)
    )
    return header.ljust(512, b"\0") + ending + bytes.fromhex("d9d505f920a163d7")


def test_a_database_with_a_write_ahead_log(folder, said):
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert "is not a database that proxlin wrote" in said("report", folder)
