"""Between a Qdrant server and us: every way an answer can fail, versions, keys, certificates."""

import json
import logging
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import grpc
import pytest
from qdrant_client.models import Distance, VectorParams
from typing_extensions import override

from canonical.domain.scope import Scope
from canonical.errors import (
    EngineMismatchError,
    EngineRefusedError,
    EngineUnavailableError,
    EngineUnsupportedError,
    GnomonError,
)
from projectors.protocol import Mark
from projectors.vector import mapping
from projectors.vector.predicates import LIVE
from projectors.vector.qdrant.client import connect
from projectors.vector.qdrant.index import QdrantIndex
from projectors.vector.qdrant.settings import QdrantSettings, Quantisation
from projectors.vector.schema import Shape
from tests.support.faulty_proxy import Answer, Drip, FaultyProxy, Instead, Reset, Silence, proxied
from tests.support.qdrant import StandIn, stand_in
from tests.support.vector_index import (
    DIMENSION,
    SHAPE,
    SOON,
    Corner,
    ServerIndex,
    record,
    server_index,
    vector_of,
)

MARKS = [Mark(0, 1, uuid4(), 1, 1)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server: StandIn) -> Iterator[FaultyProxy]:
    with proxied(server.url) as between:
        yield between


@pytest.fixture(scope="module")
def index(proxy: FaultyProxy) -> Iterator[ServerIndex]:
    with server_index(proxy.url) as made:
        yield made


# Whatever comes back


def writes() -> list[mapping.IndexWrite]:
    made = record("tea", Scope("t", user_id="alice"))
    return [mapping.write_for(made, vector_of("tea"), epoch=1, dimension=DIMENSION)]


Call = Callable[[QdrantIndex], object]
READS: dict[str, Call] = {
    "search": lambda i: i.nearest(vector_of("tea"), LIVE, 3, SOON),
    "guards": lambda i: i.guards([uuid4()]),
    "marks": lambda i: i.marks(),
    "count": lambda i: i.count(),
    "scan": lambda i: list(i.scan()),
    "publish": lambda i: i.publish("served"),
    "drop": lambda i: i.drop(i._settings, f"{i.name}_old"),
    "open": lambda i: QdrantIndex.open(i._settings, i.name, SHAPE),
    "create": lambda i: QdrantIndex.create(i._settings, f"{i.name}_new", SHAPE),
}
WRITES: dict[str, Call] = {
    "page": lambda i: i.write(writes(), []),
    "marks": lambda i: i.write([], MARKS),
}


def said(text: str) -> bytes:
    return json.dumps({"status": {"error": text}, "time": 0.0}).encode()


NO_ANSWER: dict[str, Answer] = {
    "500": Answer(500, said("Service internal error: disk")),
    "502 of a proxy": Answer(502, b"<html>bad gateway</html>"),
    "429": Answer(429, said("Rate limiting exceeded")),
    "429 with Retry-After": Answer(429, said("Rate limit"), {"Retry-After": "3"}),
    "429 with a date": Answer(429, b"", {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}),
    "408": Answer(408, said("timeout")),
    "401": Answer(401, b"Must provide an API key"),
    "403": Answer(403, said("Forbidden: Write access is required")),
    "404 of a proxy": Answer(404, b"<html>no such page</html>"),
    "404 of another service": Answer(404, b'{"detail":"Not Found"}'),
    "302": Answer(302, b"", {"Location": "/login"}),
    "200 of another shape": Answer(200, b'{"result":[1,2,3],"status":"ok","time":0}'),
    "200 with nothing in it": Answer(200, b"{}"),
    "200 with null": Answer(200, b"null"),
    "200 without a result": Answer(200, b'{"result":null,"status":"ok","time":0}'),
    "200 with HTML": Answer(200, b"<html>please log in</html>"),
    "200 with no text": Answer(200, b"\xff\xfe\x00"),
    "200 empty": Answer(200, b""),
    "204": Answer(204, b""),
}


@pytest.mark.parametrize("answer", NO_ANSWER.values(), ids=NO_ANSWER)
def test_an_answer_that_says_nothing_of_the_index_is_waited_out(
    index: ServerIndex, proxy: FaultyProxy, answer: Answer
) -> None:
    """P12: nothing is parked, nothing is taken for lost, whatever stands between."""
    for call in (READS | WRITES).values():
        proxy.plan(Instead(answer), times=9)
        with pytest.raises(EngineUnavailableError):
            call(index.engine)
        proxy.heal()


def test_a_broken_connection_is_waited_out(index: ServerIndex, proxy: FaultyProxy) -> None:
    for call in (READS | WRITES).values():
        proxy.plan(Reset(), times=9)
        with pytest.raises(EngineUnavailableError):
            call(index.engine)
        proxy.heal()
    proxy.down()
    for call in (READS | WRITES).values():
        with pytest.raises(EngineUnavailableError):
            call(index.engine)
    proxy.up()
    assert index.write(writes(), []) == 0


def test_a_search_ends_in_its_time(index: ServerIndex, proxy: FaultyProxy) -> None:
    """The client's time-out is the search's, not the writes'."""
    until = Event()
    proxy.plan(Silence(until, forward=False), path="/points/query")
    with pytest.raises(EngineUnavailableError, match="search"):
        index.engine.nearest(vector_of("tea"), LIVE, 3, timedelta(milliseconds=300))
    until.set()
    assert proxy.sent("POST", "/points/query?timeout=1")


def test_an_answer_that_drips_in_ends_in_its_time_too(
    index: ServerIndex, proxy: FaultyProxy
) -> None:
    """Each piece comes soon enough, the whole would take half a minute."""
    Corner(index).add(*(f"tea {n}" for n in range(5)))
    proxy.plan(Drip(0.05), path="/points/query")
    with pytest.raises(EngineUnavailableError, match="drips"):
        index.engine.nearest(vector_of("tea"), LIVE, 5, timedelta(seconds=1))


GONE = Answer(404, said("Not found: Collection `c` doesn't exist!"))
OTHER_DIMENSION = Answer(400, said("Wrong input: Vector dimension error: expected dim: 3, got 32"))
BAD = Answer(400, said("Wrong input: Format error in payload"))
LARGE = Answer(413, said("Payload too large"))


@pytest.mark.parametrize("answer", [GONE, OTHER_DIMENSION], ids=["gone", "dimension"])
def test_what_the_server_itself_says_is_missing_or_different_stops(
    index: ServerIndex, proxy: FaultyProxy, answer: Answer
) -> None:
    """E-06, E-16: no waiting for what doesn't come back by itself."""
    for name, call in (READS | WRITES).items():
        if name == "publish" and answer is OTHER_DIMENSION:
            continue
        proxy.plan(Instead(answer), path="/collections/", times=9)
        proxy.plan(Instead(answer), path="/aliases", times=9)
        with pytest.raises(EngineMismatchError):
            call(index.engine)
        proxy.heal()


@pytest.mark.parametrize("answer", [BAD, LARGE], ids=["400", "413"])
def test_only_what_is_written_can_be_refused_as_content(
    index: ServerIndex, proxy: FaultyProxy, answer: Answer
) -> None:
    """P12: a page may hold a bad record, which is then sought; a question has none."""
    for call in WRITES.values():
        proxy.plan(Instead(answer), "PUT")
        with pytest.raises(EngineRefusedError):
            call(index.engine)
    for name in ("search", "guards", "count", "scan", "marks", "open"):
        proxy.plan(Instead(answer), path="/collections/")
        with pytest.raises(EngineUnavailableError):
            READS[name](index.engine)
    assert proxy.unused() == 0


# gRPC


class Aborting(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every call with an error, or never."""

    def __init__(self) -> None:
        self.code, self.called = grpc.StatusCode.UNAVAILABLE, list[str]()
        self.until: Event | None = None

    @override
    def service(self, handler_call_details: Any) -> Any:
        self.called.append(handler_call_details.method.rpartition("/")[2])
        return grpc.unary_unary_rpc_method_handler(self._abort)

    def _abort(self, _request: bytes, context: Any) -> None:
        if self.until is not None:
            self.until.wait(10)
        context.abort(self.code, "no")


@dataclass
class Grpc:
    """An index over gRPC on a server that only fails."""

    handler: Aborting
    index: QdrantIndex


@pytest.fixture(scope="module")
def over_grpc() -> Iterator[Grpc]:
    handler = Aborting()
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        settings = QdrantSettings(
            url="http://127.0.0.1:9",
            prefer_grpc=True,
            grpc_port=port,
            timeout=timedelta(seconds=1),
        )
        with QdrantIndex(connect(settings), settings, "c", SHAPE) as index:
            yield Grpc(handler, index)
        server.stop(0).wait()


def fresh(over_grpc: Grpc) -> QdrantIndex:
    """Open one to which nothing has happened yet, so that it writes at once."""
    settings = over_grpc.index._settings
    return QdrantIndex(connect(settings), settings, "c", SHAPE)


ANSWERED: dict[grpc.StatusCode, tuple[type[GnomonError], type[GnomonError]]] = {
    grpc.StatusCode.NOT_FOUND: (EngineMismatchError, EngineMismatchError),
    grpc.StatusCode.INVALID_ARGUMENT: (EngineUnavailableError, EngineRefusedError),
}


@pytest.mark.parametrize(
    "code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK], ids=lambda c: c.name
)
def test_errors_over_grpc_mean_the_same(over_grpc: Grpc, code: grpc.StatusCode) -> None:
    """Each call of ours can be said in gRPC, and fails as it does over HTTP."""
    over_grpc.handler.code = code
    read, write = ANSWERED.get(code, (EngineUnavailableError, EngineUnavailableError))
    if code is grpc.StatusCode.ALREADY_EXISTS:
        read = write = EngineMismatchError
    for call in READS.values():
        with pytest.raises(read):
            call(over_grpc.index)
    with fresh(over_grpc) as index, pytest.raises(write):
        index.write([], MARKS)


def test_every_call_of_ours_goes_over_grpc(over_grpc: Grpc) -> None:
    over_grpc.handler.code = grpc.StatusCode.UNAVAILABLE
    over_grpc.handler.called.clear()
    for call in READS.values():
        with pytest.raises(EngineUnavailableError):
            call(over_grpc.index)
    with fresh(over_grpc) as index, pytest.raises(EngineUnavailableError):
        index.write([], MARKS)
    expected = ["Query", "Get", "Scroll", "Count", "Scroll", "ListAliases", "Delete"]
    assert over_grpc.handler.called == [*expected, "HealthCheck", "HealthCheck", "Upsert"]


def test_a_call_over_grpc_ends_in_its_time(over_grpc: Grpc) -> None:
    over_grpc.handler.until = Event()
    with pytest.raises(EngineUnavailableError, match="DEADLINE_EXCEEDED"):
        over_grpc.index.guards([uuid4()])
    over_grpc.handler.until.set()
    over_grpc.handler.until = None


# Versions


@contextmanager
def version(proxy: FaultyProxy, told: str) -> Iterator[None]:
    body = json.dumps({"title": "qdrant", "version": told}).encode()
    proxy.plan(Instead(Answer(200, body)), "GET", times=9)
    try:
        yield
    finally:
        proxy.heal()


@pytest.mark.parametrize("told", ["1.18.3", "1.9.0", "0.11.7"])
def test_an_older_server_is_refused_with_both_versions_named(
    index: ServerIndex, proxy: FaultyProxy, told: str
) -> None:
    """E-13, E-17: it evaluates conditions again when it replays its log."""
    for make in (QdrantIndex.open, QdrantIndex.create):
        with version(proxy, told), pytest.raises(EngineUnsupportedError) as caught:
            make(index.settings, index.name, SHAPE)
        assert told in str(caught.value)
        assert "1.19" in str(caught.value)


@pytest.mark.parametrize("told", ["1.20.1", "2.0.0-rc1"])
def test_a_newer_server_is_noted_and_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, told: str
) -> None:
    with stand_in(tmp_path / "server", "--version", told) as newer:
        caplog.set_level(logging.WARNING, "projectors.vector")
        QdrantIndex.create(QdrantSettings(url=newer.url), "c", SHAPE).close()
        assert told in caplog.text
        assert "1.19" in caplog.text


def test_what_is_not_a_version_is_not_qdrant(index: ServerIndex, proxy: FaultyProxy) -> None:
    with version(proxy, "latest"), pytest.raises(EngineUnavailableError, match="Qdrant"):
        QdrantIndex.open(index.settings, index.name, SHAPE)


# What a collection is like


def test_settings_reach_the_collection(server: StandIn) -> None:
    settings = QdrantSettings(
        url=server.url,
        shards=3,
        replicas=2,
        write_replicas=2,
        vectors_on_disk=True,
        payload_on_disk=False,
        quantisation=Quantisation.INT8,
    )
    with QdrantIndex.create(settings, "planned", SHAPE) as made:
        info = made._client.get_collection("planned")
        params = info.config.params
        assert (params.shard_number, params.replication_factor) == (3, 2)
        assert (params.write_consistency_factor, params.on_disk_payload) == (2, False)
        assert params.vectors.on_disk is True  # type: ignore[union-attr]
        assert info.config.strict_mode_config is not None
        assert info.config.strict_mode_config.upsert_max_batchsize == 1_000
        assert made.write(writes(), MARKS) == 0
        assert len(made.nearest(vector_of("tea"), LIVE, 3, SOON)) == 1


def test_another_dimension_behind_an_alias_is_named(server: StandIn) -> None:
    """E-06: the alias was switched to a generation of another model while a reader has it open."""
    settings, narrow = QdrantSettings(url=server.url), Shape(SHAPE.model, 8)
    with (
        QdrantIndex.create(settings, "wide", SHAPE) as wide,
        QdrantIndex.create(settings, "narrow", narrow) as other,
    ):
        wide.publish("either")
        with QdrantIndex.open(settings, "wide", SHAPE, alias="either") as reader:
            other.publish("either")
            with pytest.raises(EngineMismatchError, match=r"8.*32"):
                reader.nearest(vector_of("tea"), LIVE, 3, SOON)
        with pytest.raises(EngineMismatchError, match=r"8 dimensions.*32 dimensions"):
            QdrantIndex.open(settings, "narrow", SHAPE)


def test_a_collection_of_another_hand_is_refused(server: StandIn) -> None:
    settings = QdrantSettings(url=server.url)
    with closing(connect(settings)) as client:
        plain = VectorParams(size=DIMENSION, distance=Distance.DOT)
        client.create_collection("foreign", vectors_config=plain)
    for make in (QdrantIndex.open, QdrantIndex.create):
        with pytest.raises(EngineMismatchError, match="foreign"):
            make(settings, "foreign", SHAPE)


# Keys and certificates


def test_a_wrong_key_is_waited_out_and_a_right_one_goes_in(tmp_path: Path) -> None:
    """A key that was changed loses no index: nothing is built anew, nothing is parked."""
    with stand_in(tmp_path / "server", "--key", "sesame") as locked:
        settings = QdrantSettings(url=locked.url, api_key="sesame")
        assert "sesame" not in repr(settings)
        with QdrantIndex.create(settings, "c", SHAPE) as made:
            made.write(writes(), MARKS)
        for wrong in ("open", None):
            with pytest.raises(EngineUnavailableError, match="401"):
                QdrantIndex.open(replace(settings, api_key=wrong), "c", SHAPE)


def test_certificates_that_cannot_be_read_are_named(server: StandIn, tmp_path: Path) -> None:
    for content in (None, b"no certificate"):
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(EngineUnavailableError, match=r"ca\.pem"):
            QdrantIndex.open(QdrantSettings(url=server.url, ca_file=file), "c", SHAPE)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that no system trusts, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    home = tmp_path_factory.mktemp("tls")
    names = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    command = f"req -x509 -newkey rsa:2048 -nodes -days 2 {names} -keyout key.pem -out cert.pem"
    subprocess.run([openssl, *command.split()], check=True, cwd=home, capture_output=True)
    return home / "cert.pem", home / "key.pem"


def test_a_server_is_trusted_by_the_certificate_that_is_named(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    with stand_in(tmp_path / "server", "--tls", str(cert), str(key)) as secure:
        settings = QdrantSettings(url=secure.url, ca_file=cert)
        with QdrantIndex.create(settings, "c", SHAPE) as made:
            assert made.write(writes(), MARKS) == 0
        with pytest.raises(EngineUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            QdrantIndex.open(replace(settings, ca_file=None), "c", SHAPE)


def test_a_closed_index_over_grpc_says_so_too(over_grpc: Grpc) -> None:
    index = fresh(over_grpc)
    index.close()
    with pytest.raises(EngineUnavailableError, match="closed"):
        index.guards([uuid4()])


def test_many_threads_share_an_index(index: ServerIndex) -> None:
    corner = Corner(index)
    made = corner.add("tea")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: corner.found(), range(24)))
    assert found == [[made[0].id]] * 24
