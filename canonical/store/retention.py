"""What is forgotten by time: keys of commands past their life, diagnostics that nobody kept."""

from canonical.store.database import Database
from canonical.store.statements import named

BOUND = 5_000  # rows of a kind at a time: a fraction of a second


def purge(projector: Database, *, keys_days: int, queries_days: int, bound: int = BOUND) -> bool:
    """Forget mutation and event ids older than `keys_days`, unkept searches than `queries_days`.

    `projector` serves as that role, which sees every tenant.
    Returns: whether more may be due: of each kind the oldest went, up to `bound`, in one
             transaction.
    """
    parameters = {"keys_days": keys_days, "queries_days": queries_days, "bound": bound}
    with projector.transaction() as conn:
        most: int = conn.execute(named("purge_old"), parameters).scalar_one()
    return most >= bound
