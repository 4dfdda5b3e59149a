"""Lives of the log: another server, timeline or history than the engines saw is another epoch."""

from collections.abc import Iterable

from canonical.store.database import Database
from canonical.store.statements import named


def settle(owner: Database, engine_epochs: Iterable[int] = (), *, rewound: bool = False) -> int:
    """Raise the log's epoch if its life has changed, and return the epoch in force.

    Guarantee: after a restore into another cluster, a failover to another timeline, or a rewind
               that an engine has noticed, the epoch is above every one that any engine holds, so
               what is written from here on passes the engines' guards. To be called before writes
               open. `owner` serves as the owner.
    Source:    DESIGN §4; a rewind is what `workers.generations` finds in an engine's marks.
    """
    highest = max(engine_epochs, default=0)
    with owner.transaction() as conn:
        row = conn.execute(named("log_life")).one()
        reasons = [
            reason
            for reason, holds in (
                ("another server or a restore", row.other_server),
                ("another timeline: a failover", row.other_timeline),
                ("an engine holds a history that the log doesn't", rewound),
                ("an engine holds a higher epoch", highest > row.epoch),
            )
            if holds
        ]
        if not reasons:
            return int(row.epoch)
        epoch = max(highest, row.epoch) + 1
        conn.execute(named("raise_epoch"), {"epoch": epoch, "reason": "; ".join(reasons)})
        return int(epoch)
