"""What README and tutorial tell a new user to type works, in the order in which it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import Up
from tests.support.shape import ROOT

ADDRESS = "http://127.0.0.1:7377"
DOCUMENTS = {
    "README.md": [
        "Mara is allergic to walnuts",
        "玛拉喜欢喝绿茶",
        '"replayed":true',
        "Mara plays the viola",
        "517 lines, 517 written",
        "Green Meadow Park",
    ],
    "docs/tutorial/first-five-minutes.md": [
        "The fare was 240 euros",
        "Jonas sails on Sundays",
        "Jonas lives in Bergen",
        "he asked for it",
        "2 lines, 2 written",
        "2 lines, 2 replayed",
    ],
}


def blocks(document: str) -> list[tuple[str, str]]:
    """Return what is to be run, in its order: (sh or python, code)."""
    text = (ROOT / document).read_text()
    return re.findall(r"(?ms)^```(sh|python)\n(.*?)^```$", text)


def run(language: str, code: str, folder: Path, url: str) -> str:
    interpreter = ["bash", "-euo", "pipefail"] if language == "sh" else [sys.executable]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GNOMON_")}
    done = subprocess.run(
        [*interpreter, "-c", code.replace(ADDRESS, url)],
        cwd=folder,
        env={**plain, "GNOMON_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def joined(language: str, document: str) -> str:
    return "".join(code for kind, code in blocks(document) if kind == language)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_tells_to_type_works(document: str, tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "gnomon").symlink_to(ROOT / "gnomon")
    with Up(tmp_path / "state") as up:
        said = "".join(
            run(language, joined(language, document), tmp_path, up.url)
            for language in ("sh", "python")
            if joined(language, document)
        )
        assert up.stop() == 0
    for expected in DOCUMENTS[document]:
        assert expected in said
