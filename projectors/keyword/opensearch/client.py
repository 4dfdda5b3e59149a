"""The connection to an OpenSearch cluster: who we are to it, its time-outs, its version."""

import base64
import importlib
import logging
import socket
from collections.abc import Callable
from threading import Event, Timer
from typing import Any

import urllib3
from opensearchpy import OpenSearch, Urllib3AWSV4SignerAuth, Urllib3HttpConnection
from typing_extensions import override
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import HTTPResponse

from canonical.errors import EngineUnavailableError, EngineUnsupportedError
from projectors.keyword.opensearch.failures import in_our_terms, reading
from projectors.keyword.opensearch.settings import OpenSearchSettings

OLDEST = (3, 0)  # BM25 as Lucene counts it; older servers score 2.2 times as high
TRIED = (3, 8)

log = logging.getLogger(__name__)


def connect(settings: OpenSearchSettings) -> OpenSearch:
    """Make a client; nothing is sent yet.

    Guarantee: it repeats nothing by itself (a repeat is decided where it is known what it means),
               and no request lasts longer than its time-out, also when bytes drip in.
    """
    return OpenSearch(
        list(settings.urls),
        connection_class=_BoundedConnection,
        http_auth=_credentials(settings),
        verify_certs=settings.verify_certificates,
        ssl_show_warn=False,
        ca_certs=str(settings.ca_file) if settings.ca_file else None,
        pool_maxsize=settings.connections,
        timeout=settings.timeout.total_seconds(),
        max_retries=0,
        retry_on_timeout=False,
        retry_on_status=(),
    )


def require_server(client: OpenSearch, *, timeout_s: float) -> None:
    """Refuse a server that is no OpenSearch, or too old; warn of one that is newer than tried.

    Raises: EngineUnsupportedError, which names both versions. EngineUnavailableError.
    """
    with in_our_terms("version"):
        answer = client.info(params={"request_timeout": timeout_s})
    with reading("version"):
        told = answer["version"]
        name, number = str(told.get("distribution", "unknown")), str(told["number"])
        version = tuple(int(part) for part in number.split("-", maxsplit=1)[0].split(".")[:2])
    needed = f"OpenSearch {_dotted(OLDEST)} or newer"
    if name != "opensearch" or version < OLDEST:
        raise EngineUnsupportedError(f"the server is {name} {number}; this needs {needed}")
    if version[0] > TRIED[0]:
        log.warning("OpenSearch is %s; tried with %s", number, _dotted(TRIED))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _credentials(settings: OpenSearchSettings) -> Any:
    if settings.aws_region is not None:
        return Urllib3AWSV4SignerAuth(_aws_credentials(), settings.aws_region, settings.aws_service)
    if settings.username is not None:
        return _basic(settings.username, settings.password or "")
    return None


def _basic(username: str, password: str) -> Callable[..., dict[str, str]]:
    """Sign each request; the client itself takes no signs beyond Latin-1."""
    told = base64.b64encode(f"{username}:{password}".encode()).decode()
    return lambda *_: {"authorization": f"Basic {told}"}


def _aws_credentials() -> Any:
    """Find the credentials as AWS's own tools do: environment, profile, the machine's role.

    Raises: EngineUnavailableError, when botocore is not installed or finds none.
    """
    try:
        session = importlib.import_module("botocore.session")
    except ImportError as exc:
        raise EngineUnavailableError("requests to AWS are signed by botocore: install it") from exc
    found = session.get_session().get_credentials()
    if found is None:
        raise EngineUnavailableError("botocore finds no AWS credentials")
    return found


def _in_time(connection: HTTPConnection, receive: Callable[[], HTTPResponse]) -> HTTPResponse:
    """Receive a response, and end one that is still not whole when the time-out is over.

    The client's time-out is one for each piece that comes, so a server or a proxy that lets bytes
    drip would hold a projector, and its lease, for as long as it likes.
    """
    if not isinstance(connection.timeout, int | float):
        return receive()
    over = Event()

    def cut() -> None:
        over.set()
        if connection.sock is not None:
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    timer = Timer(connection.timeout, cut)
    timer.daemon = True
    timer.start()
    try:
        return receive()
    except Exception as exc:
        if over.is_set():
            raise TimeoutError("the answer was not whole in time") from exc
        raise
    finally:
        timer.cancel()


class _Plain(HTTPConnection):
    @override
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # urllib3 narrows it as well
        return _in_time(self, super().getresponse)


class _Encrypted(HTTPSConnection):
    @override
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        return _in_time(self, super().getresponse)


class _BoundedConnection(Urllib3HttpConnection):
    @override
    def _create_urllib3_pool(self) -> None:
        super()._create_urllib3_pool()
        encrypted = isinstance(self.pool, urllib3.HTTPSConnectionPool)
        self.pool.ConnectionCls = _Encrypted if encrypted else _Plain
