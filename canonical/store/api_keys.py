"""API keys: stored hashed, bound to a tenant, with rights and a cap on trust."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select, text, update

from canonical.domain.records import Trust
from canonical.errors import NotFoundError
from canonical.store.database import Database
from canonical.store.tables import api_key

PREFIX = "gn_"
SECRET_BYTES = 32


class Right(StrEnum):
    """What a key may do; `admin` includes the others."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret."""

    id: str
    tenant: str
    name: str
    rights: frozenset[Right]
    max_trust: Trust
    created_at: datetime
    revoked_at: datetime | None = None

    def may(self, right: Right) -> bool:
        """Tell whether the key has a right."""
        return right in self.rights or Right.ADMIN in self.rights


def create(
    owner: Database, tenant: str, name: str, rights: frozenset[Right], max_trust: Trust = Trust.USER
) -> tuple[ApiKey, str]:
    """Make a key; its secret is returned this once and kept only as a hash.

    `owner` serves as the owner: keys are made by operators, never by a request.
    """
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    row = {
        "tenant": tenant,
        "id": secrets.token_hex(8),
        "key_hash": _hash(secret),
        "name": name,
        "rights": sorted(rights),
        "max_trust": max_trust.value,
    }
    with owner.transaction() as conn:
        made = conn.execute(api_key.insert().values(row).returning(api_key)).one()
    return _key(made), secret


def find(database: Database, secret: str) -> ApiKey | None:
    """Return the key that a caller presents, unless there is none or it is revoked.

    `database` serves as the API: row-level security shows it the presented key's row only.
    """
    key_hash = _hash(secret)
    with database.transaction() as conn:
        conn.execute(PRESENT, {"hash": key_hash.hex()})
        row = conn.execute(select(api_key).where(api_key.c.key_hash == key_hash)).one_or_none()
    return None if row is None or row.revoked_at is not None else _key(row)


PRESENT = text("SELECT set_config('gnomon.key_hash', :hash, true)")


def listed(owner: Database, tenant: str | None = None) -> list[ApiKey]:
    """List keys, revoked ones included, the oldest first."""
    query = select(api_key).order_by(api_key.c.created_at, api_key.c.id)
    if tenant is not None:
        query = query.where(api_key.c.tenant == tenant)
    with owner.transaction() as conn:
        return [_key(row) for row in conn.execute(query)]


def any_was_made(owner: Database) -> bool:
    """Tell whether a key was ever made; a revoked one counts, so that no revoking opens a door."""
    query = select(api_key.c.id).limit(1)
    with owner.transaction() as conn:
        return conn.execute(query).first() is not None


def revoke(owner: Database, key_id: str) -> ApiKey:
    """End a key's life at once.

    Raises: NotFoundError.
    """
    query = (
        update(api_key)
        .where(api_key.c.id == key_id, api_key.c.revoked_at.is_(None))
        .values(revoked_at=text("now()"))
        .returning(api_key)
    )
    with owner.transaction() as conn:
        row = conn.execute(query).one_or_none()
    if row is None:
        raise NotFoundError(f"no key {key_id} is in force: it was never made, or is revoked")
    return _key(row)


def _hash(secret: str) -> bytes:
    # The secret has 256 random bits: a fast hash is enough, there is nothing to guess.
    return hashlib.sha256(secret.encode()).digest()


def _key(row: object) -> ApiKey:
    fields = row._mapping  # type: ignore[attr-defined]  # noqa: SLF001 - SQLAlchemy's public name
    return ApiKey(
        id=fields["id"],
        tenant=fields["tenant"],
        name=fields["name"],
        rights=frozenset(Right(right) for right in fields["rights"]),
        max_trust=Trust(fields["max_trust"]),
        created_at=fields["created_at"],
        revoked_at=fields["revoked_at"],
    )
