"""One process at a time works on a state folder."""

import os
import shutil
from pathlib import Path

import pytest

from canonical.errors import StateInUseError, StateUnusableError
from canonical.store.state_lock import StateLock
from tests.support.holders import HOLD_LOCK, holding


def test_a_second_process_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    """W-19: two processes on one embedded store."""
    with (
        holding(HOLD_LOCK, tmp_path) as (process, _),
        pytest.raises(StateInUseError, match=f"in use by process {process.pid}$"),
    ):
        StateLock(tmp_path).acquire()


def test_a_killed_holder_leaves_the_folder_free(tmp_path: Path) -> None:
    with holding(HOLD_LOCK, tmp_path) as (process, _):
        process.kill()
        process.wait()
        with StateLock(tmp_path):
            assert (tmp_path / "lock").read_text().startswith(f"{os.getpid()}\n")


def test_a_folder_keeps_its_identity_and_a_copy_has_another_one(tmp_path: Path) -> None:
    """Leases of one folder's processes are taken over at once, so no other may pass for it."""
    seen = []
    for _ in range(3):
        with StateLock(tmp_path / "one") as lock:
            seen.append(lock.identity)
    assert len(set(seen)) == 1
    assert len(seen[0]) == 16
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with StateLock(tmp_path / "copy") as copy, StateLock(tmp_path / "new") as new:
        assert len({seen[0], copy.identity, new.identity}) == 3


@pytest.mark.parametrize("held", ["", "12\n", "12", "\n\n", "12\n  \n", "\udcff\n\udcff"])
def test_whatever_a_lock_file_holds_it_is_locked_and_has_an_identity(
    tmp_path: Path, held: str
) -> None:
    (tmp_path / "lock").write_bytes(held.encode(errors="surrogateescape"))
    with StateLock(tmp_path) as lock:
        assert len(lock.identity) == 16
    with StateLock(tmp_path) as again:
        assert again.identity == lock.identity


def test_a_child_that_outlives_the_holder_does_not_keep_the_folder(tmp_path: Path) -> None:
    with holding(HOLD_LOCK, tmp_path, "fork") as (process, (_, child)):
        process.kill()
        process.wait()
        os.kill(int(child), 0)
        with StateLock(tmp_path):
            pass


def test_a_released_folder_can_be_taken_again_in_the_same_process(tmp_path: Path) -> None:
    first, second = StateLock(tmp_path / "new"), StateLock(tmp_path / "new")
    first.acquire()
    with pytest.raises(StateInUseError):
        second.acquire()
    first.release()
    first.release()
    second.acquire()
    second.release()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", ["file", "file/under", "folder"])
def test_a_folder_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "lock").mkdir(parents=True)  # the lock's place is taken
    with pytest.raises(StateUnusableError, match=rf"{tmp_path}/\S+: \w+"):
        StateLock(tmp_path / place).acquire()
