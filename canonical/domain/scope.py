"""Whose a record is: a tenant and at least one of user, agent and run."""

from canonical.domain.values import value_object


@value_object
class Scope:
    """As part of a record: its exact owner. As part of a query: the ids that must be equal.

    An id that a query doesn't name is free; a record's missing id equals only a missing one.
    """

    tenant: str
    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    def covers(self, owner: "Scope") -> bool:
        """Tell whether a record of `owner` lies inside this scope."""
        return self.tenant == owner.tenant and all(
            wanted is None or wanted == held
            for wanted, held in (
                (self.user_id, owner.user_id),
                (self.agent_id, owner.agent_id),
                (self.run_id, owner.run_id),
            )
        )

    def differing(self, other: "Scope") -> list[str]:
        """Name the fields in which two owners differ."""
        names = ("tenant", "user_id", "agent_id", "run_id")
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def named(self) -> dict[str, str]:
        """Return the ids that are named, without the tenant."""
        ids = {"user_id": self.user_id, "agent_id": self.agent_id, "run_id": self.run_id}
        return {name: value for name, value in ids.items() if value is not None}
