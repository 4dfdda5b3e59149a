"""A child that speaks the recogniser's frames and does what its texts say, without spaCy."""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.spacy_child import Find, serve

STARTS = Path(sys.argv[1])  # a line for each start: tests count them
ALWAYS = sys.argv[2:]


def find(texts: Sequence[str]) -> list[list[tuple[str, str]]]:
    for text in (*texts, *ALWAYS):
        if "DIE" in text:
            os.abort()
        if "RAISE" in text:
            raise ValueError(text)
        if "HANG" in text:
            sys.stderr.write("hanging\n")
            threading.Event().wait()
    return [[(word, "PERSON") for word in text.split() if word.istitle()] for text in texts]


def load() -> tuple[dict[str, str], Find]:
    sys.stdout.write("a library's chatter on standard output\n")
    sys.stdout.flush()
    with STARTS.open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if "NOT" in ALWAYS:
        raise FileNotFoundError("no such model")
    return {"lang": "en", "version": "1"}, find


serve(load)
