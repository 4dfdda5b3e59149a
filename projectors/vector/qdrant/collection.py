"""A collection as a whole: made with its indexes, recognised as ours, brought back to work."""

import logging
import re
from collections.abc import Iterator
from typing import Any, Final

from qdrant_client import QdrantClient, models

from canonical.errors import EngineMismatchError, EngineUnavailableError, EngineUnsupportedError
from projectors.vector import schema
from projectors.vector.qdrant.failures import in_our_terms
from projectors.vector.qdrant.settings import REQUEST_POINTS, QdrantSettings, Quantisation
from projectors.vector.schema import Shape

# Conditional upserts since 1.16; up to 1.18 the server evaluated a filter again when it replayed
# its log after a crash, which brought deleted points back. Later minor versions were not tried.
MINIMUM: Final = (1, 19)
TRIED: Final = (1, 19)

_MODEL, _DIMENSION = "gnomon_model", "gnomon_dimension"
_FINGERPRINT, _FINISHED = "gnomon_fingerprint", "gnomon_finished"

log = logging.getLogger(__name__)


def require_version(client: QdrantClient, place: str) -> None:
    """Check that the server can do what guards need; a newer one than was tried is only noted.

    Raises: EngineUnsupportedError, when it is too old. EngineUnavailableError.
    """
    with in_our_terms("version", place):
        told = client.info().version
    found = re.match(r"v?(\d+)\.(\d+)", told)
    if found is None:
        raise EngineUnavailableError(f"version: {place} says {told!r}; is it Qdrant?")
    version = (int(found[1]), int(found[2]))
    if version < MINIMUM:
        raise EngineUnsupportedError(
            f"{place} is Qdrant {told}; needed is {_dotted(MINIMUM)} or later"
        )
    if version > TRIED:
        log.warning("%s is Qdrant %s; the newest that was tried is %s", place, told, _dotted(TRIED))


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def create(client: QdrantClient, settings: QdrantSettings, name: str, shape: Shape) -> None:
    """Make an empty collection with all its indexes.

    Guarantee: it says that it is finished only when all is there. What an attempt that was broken
               off has left is finished.
    Raises:    EngineMismatchError, when there is another collection of this name, or a finished
               one. EngineUnavailableError.
    """
    place = settings.place(name)
    with in_our_terms("create", place):
        exists = client.collection_exists(name)
        if not exists:
            client.create_collection(name, **_plan(settings, shape))
    if exists:
        _require_unfinished(client, place, name, shape)
    with in_our_terms("create", place):
        for field, index in _indexes():
            client.create_payload_index(name, field, field_schema=index, wait=True)
        client.update_collection(name, metadata=_about(shape, finished=True))


def _require_unfinished(client: QdrantClient, place: str, name: str, shape: Shape) -> None:
    with in_our_terms("create", place):
        info = client.get_collection(name)
    about = info.config.metadata or {}
    if about.get(_FINISHED) is not False or about.get(_FINGERPRINT) != shape.fingerprint():
        raise EngineMismatchError(f"create: there is another collection: {place}")


def require(client: QdrantClient, place: str, name: str, shape: Shape) -> None:
    """Check that a collection is there, finished and ours; let it go on where it was cut off.

    Raises: EngineMismatchError, when it is missing, half made, or of another layout, model or
            dimension. EngineUnavailableError.
    """
    with in_our_terms("open", place):
        info = client.get_collection(name)
    about = info.config.metadata or {}
    if about.get(_FINGERPRINT) != shape.fingerprint():
        raise EngineMismatchError(
            f"open: {place} holds {about.get(_DIMENSION)} dimensions of {about.get(_MODEL)} "
            f"(layout {str(about.get(_FINGERPRINT))[:8]}), asked for are {shape.dimension} "
            f"dimensions of {shape.model} (layout {shape.fingerprint()[:8]})"
        )
    if about.get(_FINISHED) is not True:
        raise EngineMismatchError(f"open: {place} was never finished")
    vectors = info.config.params.vectors
    size = vectors.size if isinstance(vectors, models.VectorParams) else None
    if size != shape.dimension:
        raise EngineMismatchError(
            f"open: {place} holds {size} dimensions, asked for are {shape.dimension} dimensions "
            f"of {shape.model}"
        )
    _nudge(client, place, name, info)


def wake(client: QdrantClient, place: str, name: str) -> None:
    """Let a collection whose server was killed go on to build its index.

    Such a collection answers and takes writes, but stays `grey`: nothing is indexed any more
    until its optimiser's settings are touched.
    """
    with in_our_terms("wake", place):
        info = client.get_collection(name)
    _nudge(client, place, name, info)


def _nudge(client: QdrantClient, place: str, name: str, info: models.CollectionInfo) -> None:
    if info.status == models.CollectionStatus.GREY:
        log.info("%s stands still after its server was cut off: starting its optimiser", place)
        with in_our_terms("wake", place):
            client.update_collection(name, optimizers_config=models.OptimizersConfigDiff())
    elif info.status == models.CollectionStatus.RED:
        log.warning("%s is red: %s", place, info.optimizer_status)


def require_alias(client: QdrantClient, place: str, alias: str) -> None:
    """Check that an alias is there.

    Raises: EngineMismatchError, when it is none. EngineUnavailableError.
    """
    with in_our_terms("open", place):
        known = {held.alias_name for held in client.get_aliases().aliases}
    if alias not in known:
        raise EngineMismatchError(f"open: there is no alias {place}")


def publish(client: QdrantClient, place: str, name: str, alias: str) -> None:
    """Let an alias name this collection and no other, in one step."""
    with in_our_terms("publish", place):
        known = {held.alias_name for held in client.get_aliases().aliases}
        actions: list[Any] = []
        if alias in known:
            old = models.DeleteAlias(alias_name=alias)
            actions.append(models.DeleteAliasOperation(delete_alias=old))
        new = models.CreateAlias(collection_name=name, alias_name=alias)
        actions.append(models.CreateAliasOperation(create_alias=new))
        client.update_collection_aliases(actions)


def _plan(settings: QdrantSettings, shape: Shape) -> dict[str, Any]:
    return {
        "vectors_config": models.VectorParams(
            size=shape.dimension,
            distance=models.Distance.DOT,  # of vectors that we bring to length 1: the cosine
            on_disk=settings.vectors_on_disk,
        ),
        "shard_number": settings.shards,
        "replication_factor": settings.replicas,
        "write_consistency_factor": settings.write_replicas,
        "on_disk_payload": settings.payload_on_disk,
        "quantization_config": _quantisation(settings.quantisation),
        # Bounds for whoever else has the key. Filters on fields without an index are needed:
        # guards and numbers of metadata have none.
        "strict_mode_config": models.StrictModeConfig(
            enabled=True, upsert_max_batchsize=max(settings.request_points, REQUEST_POINTS)
        ),
        "metadata": _about(shape, finished=False),
    }


def _quantisation(kind: Quantisation) -> models.QuantizationConfig | None:
    if kind is Quantisation.NONE:
        return None
    scalar = models.ScalarQuantizationConfig(
        type=models.ScalarType.INT8, quantile=0.99, always_ram=True
    )
    return models.ScalarQuantization(scalar=scalar)


def _about(shape: Shape, *, finished: bool) -> dict[str, Any]:
    return {
        _MODEL: shape.model,
        _DIMENSION: shape.dimension,
        _FINGERPRINT: shape.fingerprint(),
        _FINISHED: finished,
    }


def _indexes() -> Iterator[tuple[str, models.PayloadSchemaParams]]:
    """Name the indexed fields. Made before anything is loaded: a later one gets no graph links."""
    for name in schema.KEYWORDS:
        yield (
            name,
            models.KeywordIndexParams(
                type=models.KeywordIndexType.KEYWORD, is_tenant=name == schema.TENANT
            ),
        )
    for name in schema.MOMENTS:
        yield (
            name,
            models.IntegerIndexParams(
                type=models.IntegerIndexType.INTEGER, lookup=False, range=True
            ),
        )
