"""The file of a chain's exported heads: kept elsewhere, it convicts whoever makes a chain anew."""

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gnomon.cli.failures import CommandError, Exit

if TYPE_CHECKING:
    from projectors.audit.verify import Head

HASH: Final = re.compile(r"[0-9a-f]{64}")
FIELDS: Final = ("generation", "entries", "heads")


def read(path: Path) -> list["Head"]:
    """Read what `write` wrote, or what `gnomon audit verify --json` printed.

    Raises: CommandError: a file that can't be read proves nothing, and so doesn't pass for one.
    """
    try:
        found = [_head(one) for one in json.loads(path.read_bytes())["heads"]]
    except OSError as exc:
        raise _unusable(path, exc.strerror or str(exc)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unusable(path, 'no JSON object with "heads", each of shard, pos and hash') from None
    if not found:
        raise _unusable(path, "no head in it")
    return found


def _head(given: Any) -> "Head":
    from projectors.audit.verify import Head  # noqa: PLC0415 - SQLAlchemy takes 0.3 s

    shard, pos, digest = given["shard"], given["pos"], given["hash"]
    if not (type(shard) is type(pos) is int and HASH.fullmatch(digest)):
        raise ValueError
    return Head(shard, pos, digest)


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write where the chains of a report end, in place of what the file held, whole or not at all.

    Raises: CommandError.
    """
    said = json.dumps({name: report[name] for name in FIELDS}, indent=2) + "\n"
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(said)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise _unusable(path, exc.strerror or str(exc)) from None


def _unusable(path: Path, why: str) -> CommandError:
    hint = "Name a file that `gnomon audit verify --export FILE` wrote, or can write."
    return CommandError("no_file", f"{path}: {why}", hint, Exit.USAGE)


def document(newest: Mapping[int, tuple[int, str]]) -> Sequence[dict[str, object]]:
    """Describe the ends of chains: shard → (position, hash)."""
    return [
        {"shard": shard, "pos": pos, "hash": digest}
        for shard, (pos, digest) in sorted(newest.items())
    ]
