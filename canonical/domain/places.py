"""How a refusal names a place in what was sent: bounded, and printable whatever a caller sent."""

SHOWN_CHARS = 40


def inside(place: str, key: str) -> str:
    """Name the value of `key` in the object at `place`."""
    return f"{place}.{shown(key)}"


def shown(key: str) -> str:
    """Return a caller's key as it may stand in an answer, in a log and on a terminal."""
    cut = key if len(key) <= SHOWN_CHARS else key[:SHOWN_CHARS] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
