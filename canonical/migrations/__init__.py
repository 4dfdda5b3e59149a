"""Alembic migrations of the canonical store."""
