"""The study of docs/tutorials/your-own-experiment.md, saved as a file and run by the commands of
the page.
"""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorials/your-own-experiment.md"


def test_the_study_of_the_tutorial_runs_on_workers(tmp_path):
    blocks = re.findall(
        r"^```(python|sh)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    (study, _), (commands,) = (
        [text for kind, text in blocks if kind == wanted] for wanted in ("python", "sh")
    )
    (tmp_path / "my_study.py").write_text(study)
    assert "export PYTHONPATH=. PROXLIN_EXPERIMENTS=my_study\n" in commands
    path = os.pathsep.join([".", *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PROXLIN_EXPERIMENTS": "my_study"}
    asked = [
        line.partition("#")[0].split()[1:]
        for line in commands.splitlines()
        if line.startswith("proxlin ")
    ]
    # the last is the other profile, which takes longer and shows nothing else
    dry, quick, _ = asked
    for arguments, word in ((dry, "share=0.3"), (quick, "Report: mine/report.html")):
        command = [sys.executable, "-m", "proxlin.cli", *arguments, "--workers", "1"]
        run = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0 and word in run.stdout, run.stderr
    table = (tmp_path / "mine/tables/my-study-errors.csv").read_text()
    rows = list(csv.DictReader(table.splitlines()))
    assert len(rows) == 4 and all(float(row["gain"]) > 2 for row in rows)
