"""Whatever is read, and however often: no record, no version and no expiry is another one after."""

from collections.abc import Iterator

import pytest

from tests.support.builders import Store
from tests.support.http_server import Api, Client, served

TIMES = 5
# What becomes of a search's hits is kept with the search.
OF_SEARCHES = {"query_event"}


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with served(database_url) as api:
        yield api


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store(database_url)
    yield store
    store.close()


def test_reading_changes_no_record_and_shortens_no_life(api: Api, store: Store) -> None:
    """L-10: every read of the description, in every way a search can be asked and used."""
    client: Client = api.client()
    made = client.add("likes green tea", expires_at="2099-01-01T00:00:00Z")
    client.add("likes coffee")
    before, path = store.rows(), f"/v1/memories/{made['id']}"
    for _ in range(TIMES):
        for route in (path, f"{path}/history", "/v1/memories?user_id=alice", "/v1/projections"):
            assert client.get(route).is_success, route
        found = client.search("tea", explain=True, show_expired=True, include_superseded=True)
        assert made["id"] in {item["id"] for item in found["items"]}
        client.search("nothing of the kind", after=made["position"], top_k=0)
    assert store.rows().changed_since(before) <= OF_SEARCHES
    held = client.get(path).json()
    assert (held["version"], held["expires_at"]) == (1, "2099-01-01T00:00:00Z")
