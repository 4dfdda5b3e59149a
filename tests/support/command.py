"""The command `gnomon`: as a process of its own, or inside this one, which is a second faster."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from gnomon.cli.main import app

WITHIN_S = 120


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return the JSON document on standard output: the only thing there."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """Return the JSON error on standard error."""
        return json.loads(self.err)["error"]


def gnomon(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end in a process, without the settings of whoever runs the tests."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GNOMON_")}
    done = subprocess.run(
        [sys.executable, "-m", "gnomon.cli", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=WITHIN_S,
        env={**plain, **(env or {})},
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def quick(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end in this process."""
    hidden = dict.fromkeys(name for name in os.environ if name.startswith("GNOMON_"))
    ran = CliRunner().invoke(app, arguments, input=stdin, env={**hidden, **(env or {})})
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return Ran(ran.exit_code, ran.stdout, ran.stderr)
