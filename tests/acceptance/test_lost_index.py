"""An index is deleted or overwritten under a running server: searches, health, the next start."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import until
from tests.support.server import Up

COUNT = 40
LOST = {"halted", "failed", "lagging"}


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def overwrite(folder: Path) -> None:
    """Put garbage into every file of data, in place: what is mapped into memory sees it too."""
    for path in folder.rglob("*"):
        is_data = path.suffix not in (".json", ".lock") and path.is_file()
        if is_data and (size := path.stat().st_size):
            with path.open("r+b") as file:
                file.write(b"\xa5" * size)


@pytest.mark.parametrize("damage", [remove, overwrite])
@pytest.mark.parametrize("name", ["vector", "keyword"])
def test_an_index_that_breaks_under_a_running_server(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    """O-12, Q-08, A-02, P6, P8: it degrades, says so, parks nothing; a start builds it anew."""
    with Up(tmp_path / "state") as up:
        fill(up, 0, COUNT)
        until(lambda: not any(up.lags().values()), "all to be projected")
        damage(tmp_path / "state" / name)
        check_found(up, COUNT)
        fill(up, COUNT, 2 * COUNT)
        until(lambda: degraded(up, 2 * COUNT).get(name) in LOST, "searches to name the leg")
        until(lambda: stands(up, name), "the projection to hold or to halt")
        until(lambda: all(lag == 0 for one, lag in up.lags().items() if one != name), "the others")
        until(lambda: unwell(up, name), "/readyz to name it")
        assert up.lags()[name] > 0
        shard = next(s for s in shards(up, name) if s["error_code"])
        assert shard["error_code"] in ("engine_mismatch", "engine_unavailable")
        assert shard["error"]
        assert shard["hint"]
        assert parked(up) == 0
        check_found(up, 2 * COUNT)
        assert up.stop() == 0
    with Up(tmp_path / "state") as up:
        check_found(up, 2 * COUNT)
        until(lambda: not any(up.lags().values()), "it to be built anew")
        until(lambda: up.client.get("/readyz").status_code == 200, "/readyz to be green")
        until(lambda: degraded(up, 2 * COUNT) == {}, "every leg to serve again")
        assert parked(up) == 0
        assert {one["state"] for one in projections(up)} == {"current"}
        assert up.stop() == 0


def fill(up: Up, first: int, end: int) -> None:
    """Write memories of the user, and as many of another with the same words."""
    for user in ("mara", "ben"):
        memories = [{"text": said(user, n), "user_id": user} for n in range(first, end)]
        up.client.post("/v1/memories", json={"memories": memories}).raise_for_status()


def said(user: str, n: int) -> str:
    return f"{user} keeps walnuts under number {n}"


def search(up: Up, count: int, n: int) -> dict[str, Any]:
    asked = {"query": said("mara", n), "user_id": "mara", "top_k": count}
    answer = up.client.post("/v1/search", json=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def check_found(up: Up, count: int) -> None:
    """Check that every record of the user can be found, and that no other text is shown."""
    for n in (0, count // 2, count - 1):
        shown = [hit["text"] for hit in search(up, count, n)["items"]]
        assert said("mara", n) in shown
        assert len(set(shown)) == len(shown)
        assert set(shown) <= {said("mara", one) for one in range(count)}


def degraded(up: Up, count: int) -> dict[str, str]:
    """Return each leg that falls short, and how; on a busy machine a sound one may be too late."""
    check_found(up, count)
    return {one["leg"]: one["reason"] for one in search(up, count, 1)["degraded"]}


def projections(up: Up) -> list[dict[str, Any]]:
    return list(up.client.get("/v1/projections").json()["items"])


def shards(up: Up, name: str) -> list[dict[str, Any]]:
    (found,) = (one for one in projections(up) if one["name"] == name)
    return list(found["generations"][-1]["shards"])


def stands(up: Up, name: str) -> bool:
    (found,) = (one for one in projections(up) if one["name"] == name)
    return found["state"] in ("held", "halted")


def parked(up: Up) -> int:
    return sum(one["parked"] for one in projections(up))


def unwell(up: Up, name: str) -> bool:
    answer = up.client.get("/readyz")
    parts = [one["part"] for one in answer.json()["problems"]]
    return answer.status_code == 503 and all(part.startswith(name) for part in parts)
