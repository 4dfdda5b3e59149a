"""What is forgotten by time: keys of commands past their life, diagnostics that nobody kept."""

from canonical.store.database import Database
from canonical.store.statements import named


def purge(projector: Database, keys_days: int, queries_days: int) -> None:
    """Forget mutation and event ids older than `keys_days`, unkept searches than `queries_days`.

    `projector` serves as that role, which sees every tenant.
    """
    with projector.transaction() as conn:
        conn.execute(named("purge_old"), {"keys_days": keys_days, "queries_days": queries_days})
