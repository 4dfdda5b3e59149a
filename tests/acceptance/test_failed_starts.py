"""A-02: `gnomon up` that can't start says why and what to do, and leaves nothing running."""

import os
from pathlib import Path

import pytest

from canonical.errors import StateUnusableError
from gnomon import wiring
from gnomon.settings import Settings
from tests.support.binaries import VERSION, wheel
from tests.support.command import Ran, gnomon
from tests.support.holders import pids_of
from tests.support.server import Up

NOWHERE = "postgresql://login:a-secret@127.0.0.1:1/gnomon"


def start(state: Path, programs: Path | None = None) -> Ran:
    """Run `gnomon up`, with Postgres's programs from elsewhere if named, to its failure."""
    paths = [str(programs.parents[2])] if programs is not None else []
    path = os.pathsep.join([*paths, os.environ.get("PYTHONPATH") or str(Path.cwd())])
    arguments = ("up", "--state", str(state), "--port", "0", "--no-env", "--json")
    return gnomon(*arguments, env={"PYTHONPATH": path})


def test_a_postgres_that_cannot_be_started_is_said_and_the_next_start_is_as_if_nothing_was(
    tmp_path: Path,
) -> None:
    state, data = tmp_path / "state", tmp_path / "state" / "postgres" / "data"
    with Up(state) as up:
        up.client.post("/v1/memories", json={"user_id": "u", "text": "kept"}).raise_for_status()
        assert up.stop() == 0
    ends = wheel(tmp_path / "ends", {"postgres": f"{VERSION}exit 3"})
    missing = wheel(tmp_path / "missing", {"postgres": None})
    failures = [start(state, ends), start(state, missing)]
    (data / "PG_VERSION").rename(state / "aside")
    failures.append(start(state))
    (state / "aside").rename(data / "PG_VERSION")
    for ran, said in zip(failures, ("ended with code 3", "missing", "damaged"), strict=True):
        assert (ran.code, ran.out, ran.error["code"]) == (5, "", "store_not_started")
        assert said in ran.error["message"]
        assert "then start again" in ran.error["hint"]
        assert len(ran.err.splitlines()) == 1
    assert pids_of(tmp_path) == []
    with Up(state) as up:
        listed = up.client.get("/v1/memories", params={"user_id": "u"}).json()
        assert [memory["text"] for memory in listed["items"]] == ["kept"]
        assert up.stop() == 0


def test_a_postgres_of_ones_own_that_is_away_is_said_without_its_password(tmp_path: Path) -> None:
    env = {"GNOMON_POSTGRES_URL": NOWHERE, "GNOMON_STATE": str(tmp_path / "state")}
    ran = gnomon("up", "--port", "0", "--json", env=env)
    assert (ran.code, ran.out, ran.error["code"]) == (4, "", "store_unavailable")
    assert "Connection refused" in ran.error["message"]
    assert "a-secret" not in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_full_disk_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mapped file that finds no space would end the process, and leave Postgres behind."""
    monkeypatch.setattr(wiring, "LEAST_FREE_BYTES", 1 << 62)
    settings = Settings(_env_file=None, state=tmp_path / "state")
    with (
        pytest.raises(StateUnusableError, match="MiB of its disk are free, and a start needs"),
        wiring.open_backend(settings),
    ):
        pass
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["lock"]
