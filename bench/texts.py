"""Made-up memories of the length that real ones have, the same ones at every run."""

import random

PEOPLE = ("Mara Lind", "Ben Okafor", "Yuki Tanaka", "Ana Sousa", "Tom Berg", "Ines Roth")
PLACES = ("Lisbon", "Oslo", "Kyoto", "Lagos", "Turin", "Cork", "Lima", "Perth")
VERBS = ("prefers", "remembers", "is planning", "dislikes", "has booked", "asked about")
THINGS = (
    *("the window seat", "green tea without sugar", "a quiet room", "the early train"),
    *("a vegetarian menu", "the blue notebook", "the quarterly report", "a longer walk"),
)
REASONS = (
    *("since the move", "because of the weather", "after the last trip", "as the doctor said"),
    *("for the anniversary", "before the deadline", "while the office is closed", "as always"),
)


def sentence(dice: random.Random) -> str:
    """Return a text of some 120 characters."""
    parts = [
        f"{dice.choice(PEOPLE)} of {dice.choice(PLACES)} {dice.choice(VERBS)} "
        f"{dice.choice(THINGS)} {dice.choice(REASONS)}"
        for _ in range(2)
    ]
    return f"{parts[0]}, and {parts[1]} ({dice.randrange(1_000_000)})."


def memories(count: int, scopes: int = 100, seed: int = 1) -> list[dict[str, object]]:
    """Return raw memories spread over users."""
    dice = random.Random(seed)
    return [
        {
            "user_id": f"user-{n % scopes}",
            "text": sentence(dice),
            "metadata": {"session": n // 50, "topic": dice.choice(("work", "travel", "home"))},
        }
        for n in range(count)
    ]
