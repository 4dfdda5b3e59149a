"""A search on an OpenSearch index."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from opensearchpy import OpenSearch

from canonical.domain.records import EPOCH_SHIFT
from canonical.errors import EngineUnavailableError
from projectors.keyword import schema
from projectors.keyword.mapping import tag
from projectors.keyword.opensearch import queries
from projectors.keyword.opensearch.failures import in_our_terms, reading, told
from projectors.keyword.port import Question
from projectors.keyword.relevance import Statistics
from projectors.protocol import Hit

_REV = (1 << EPOCH_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """What searches ask: an index or its alias, and one routing value for each of its shards."""

    target: str
    shards: tuple[str, ...]
    k1: float
    b: float


@dataclass(frozen=True, slots=True)
class OpenSearchView:
    """One tenant's documents, as of the last refresh. `routing`: its shard, if it has one."""

    client: OpenSearch
    place: Place
    tenant: str
    routing: str | None
    timeout_s: float

    def statistics(self, terms: Iterable[str]) -> Statistics:
        """Return how rare terms are among the tenant's documents, as the server's BM25 counts.

        Cost: one request; the term vectors of a document that is only asked about hold each term's
              frequency in one shard, so there is one such document per shard.
        """
        asked = list(dict.fromkeys(terms))
        prefix = tag(self.tenant)
        probe = {schema.TENANT: self.tenant, schema.BODY: " ".join(prefix + t for t in asked)}
        docs = [self._probe(probe, shard) for shard in self._shards()]
        with in_our_terms("statistics"):
            answer = self.client.mtermvectors(body={"docs": docs}, params=self._params())
        with reading("statistics"):
            for doc in answer["docs"]:
                if "error" in doc:
                    raise told("statistics: OpenSearch answered", str(doc["error"]["type"]))
            return self._statistics(asked, [doc["term_vectors"] for doc in answer["docs"]])

    def search(self, question: Question) -> list[Hit]:
        """Return the memories that hold some of the terms, best first; score is BM25."""
        # The server leaves the factor k1 + 1 out.
        body = queries.best(question, factor=self.place.k1 + 1)
        params: dict[str, Any] = {
            **self._params(),
            "allow_partial_search_results": "false",
            "cancel_after_time_interval": f"{max(int(self.timeout_s * 1000), 1)}ms",
        }
        if self.routing is not None:
            params["routing"] = self.routing
        elif len(self.place.shards) > 1:  # a term weighs the same in every shard
            params["search_type"] = "dfs_query_then_fetch"
        with in_our_terms("search"):
            answer = self.client.search(index=self.place.target, body=body, params=params)
        with reading("search"):
            if answer["timed_out"]:
                raise EngineUnavailableError("search: OpenSearch did not finish in time")
            return [_hit(found) for found in answer["hits"]["hits"]]

    def _shards(self) -> Sequence[str]:
        return self.place.shards if self.routing is None else (self.routing,)

    def _params(self) -> dict[str, Any]:
        # Copies of a shard differ in what they have not merged away: one tenant asks one copy.
        return {"preference": tag(self.tenant), "request_timeout": self.timeout_s}

    def _probe(self, probe: Mapping[str, str], shard: str) -> dict[str, Any]:
        return {
            "_index": self.place.target,
            "doc": probe,
            "routing": shard,
            "fields": list(probe),
            "term_statistics": True,
            "field_statistics": True,
            **dict.fromkeys(("positions", "offsets", "payloads"), False),
        }

    def _statistics(self, asked: Sequence[str], shards: Sequence[Mapping[str, Any]]) -> Statistics:
        bodies = [shard.get(schema.BODY, {}) for shard in shards]
        fields = [body.get("field_statistics", {}) for body in bodies]
        n_docs, words = (sum(max(f.get(n, 0), 0) for f in fields) for n in ("doc_count", "sum_ttf"))
        prefix = tag(self.tenant)
        tenants = [shard.get(schema.TENANT, {}) for shard in shards]
        return Statistics(
            n_docs=_frequency(tenants, self.tenant),
            df={term: _frequency(bodies, prefix + term) for term in asked},
            avg_len=words / n_docs if n_docs else 0.0,
            collection=n_docs,
            k1=self.place.k1,
            b=self.place.b,
        )


def _frequency(fields: Iterable[Mapping[str, Any]], term: str) -> int:
    return sum(int(f.get("terms", {}).get(term, {}).get("doc_freq", 0)) for f in fields)


def _hit(found: Mapping[str, Any]) -> Hit:
    return Hit(UUID(hex=found["_id"]), found["_version"] & _REV, found["_score"])
