"""Postgres URLs as operators write them, and as the driver wants them."""


def driver_url(url: str) -> str:
    """Return `url` for SQLAlchemy with psycopg 3."""
    for prefix in ("postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url
