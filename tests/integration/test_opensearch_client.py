"""Who Gnomon is to an OpenSearch cluster: credentials, certificates, signatures."""

import base64
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from canonical.errors import EngineUnavailableError
from projectors.keyword.opensearch.engine import OpenSearchIndex
from tests.support.faulty_proxy import FaultyProxy
from tests.support.keyword_index import Corner, TestedIndex
from tests.support.opensearch import settings_at

SAID = "p:ä ß 用"


@pytest.fixture
def proxy(opensearch_proxy: FaultyProxy) -> FaultyProxy:
    return opensearch_proxy


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for loopback that signs itself, with its key behind it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    made = tmp_path / "server.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, *subject, "-keyout", made, "-out", tmp_path / "ca.pem"],
        check=True,
        capture_output=True,
    )
    with made.open("a") as file:
        file.write((tmp_path / "ca.pem").read_text())
    return made


@pytest.fixture
def encrypted(proxy: FaultyProxy, certificate: Path) -> str:
    """URL of the proxy, which speaks TLS from now on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = proxy._listener
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    return proxy.url.replace("http:", "https:")


def test_a_certificate_is_trusted_that_the_given_authority_signed(
    encrypted: str, certificate: Path, name: str
) -> None:
    settings = settings_at(encrypted, ca_file=certificate.parent / "ca.pem")
    with OpenSearchIndex.create(settings, name) as made:
        corner = Corner(TestedIndex(made, lambda: made))
        (held,) = corner.add("tea")
        assert corner.found("tea") == [held.id]


def test_a_certificate_of_nobody_known_is_not_trusted_unless_that_is_asked_for(
    encrypted: str, name: str
) -> None:
    with pytest.raises(EngineUnavailableError, match="no trusted connection"):
        OpenSearchIndex.create(settings_at(encrypted), name)
    OpenSearchIndex.create(settings_at(encrypted, verify_certificates=False), name).close()


def test_the_password_goes_with_each_request_and_is_never_shown(
    proxy: FaultyProxy, name: str
) -> None:
    settings = settings_at(proxy.url, username="gnomon", password=SAID)
    assert SAID not in repr(settings)
    with OpenSearchIndex.create(settings, name) as made:
        made.marks()
    told = {request.headers["authorization"] for request in proxy.seen}
    ((scheme, sent),) = [one.split() for one in told]
    assert (scheme, base64.b64decode(sent).decode()) == ("Basic", f"gnomon:{SAID}")


def test_a_signature_for_aws_needs_its_library_and_says_so(
    proxy: FaultyProxy, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(EngineUnavailableError, match="botocore"):
        OpenSearchIndex.create(settings_at(proxy.url, aws_region="eu-central-1"), name)
    assert proxy.seen == []
