"""The program that runs spaCy in a process of its own: frames of texts in, frames of names out.

It is run as a file, so it imports nothing of ours. A frame is a length (4 bytes, big-endian) and
JSON of that length. The first frame out says which model was loaded; then one frame out for each
frame in: `{"found": [[[name, label], …], …]}`, or `{"error": why}` if the batch made spaCy raise.
"""

import json
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

LENGTH = struct.Struct(">I")
NEEDED = frozenset({"ner", "entity_ruler", "tok2vec", "transformer"})

Find = Callable[[Sequence[str]], list[list[tuple[str, str]]]]
Load = Callable[[], tuple[dict[str, str], Find]]


def serve(load: Load) -> None:
    """Answer frames until the standard input ends, which is when the parent is gone.

    Guarantee: the process leaves at once at that end, also from the middle of a batch. An
               interrupt from the terminal is the parent's to answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the frames
    requests: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    hello, find = load()
    _send(answers, hello)
    while True:
        texts = requests.get()
        try:
            answer: dict[str, Any] = {"found": find(texts)}
        except Exception as exc:  # noqa: BLE001 - the loop's guard: the parent looks for the text
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        _send(answers, answer)


def _listen(requests: "queue.SimpleQueue[list[str]]") -> None:
    stdin = sys.stdin.buffer
    while len(head := stdin.read(LENGTH.size)) == LENGTH.size:
        body = stdin.read(LENGTH.unpack(head)[0])
        requests.put(json.loads(body)["texts"])
    os._exit(0)


def _send(stream: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    try:
        stream.write(LENGTH.pack(len(body)) + body)
        stream.flush()
    except BrokenPipeError:
        os._exit(0)


def load_spacy(model: str) -> tuple[dict[str, str], Find]:
    """Load what the model needs to find names, and no other part of it."""
    import spacy  # noqa: PLC0415 - two seconds; only the child pays them

    nlp = spacy.load(model, exclude=_unneeded(model))
    for shared in {"tok2vec", "transformer"} & set(nlp.pipe_names):
        if "ner" not in getattr(nlp.get_pipe(shared), "listening_components", []):
            nlp.remove_pipe(shared)

    def find(texts: Sequence[str]) -> list[list[tuple[str, str]]]:
        with nlp.memory_zone():  # else the vocabulary grows with every new word, for ever
            return [[(e.text, e.label_) for e in doc.ents] for doc in nlp.pipe(texts)]

    return {"lang": str(nlp.lang), "version": str(nlp.meta["version"])}, find


def _unneeded(model: str) -> list[str]:
    import spacy  # noqa: PLC0415 - as above

    path = spacy.util.get_package_path(model) if spacy.util.is_package(model) else model
    config = spacy.util.load_config(_config_of(str(path)))
    return [name for name in config["nlp"]["pipeline"] if name not in NEEDED]


def _config_of(path: str) -> str:
    for folder, _, files in os.walk(path):
        if "config.cfg" in files:
            return os.path.join(folder, "config.cfg")  # noqa: PTH118 - os.walk's paths are strings
    raise FileNotFoundError(f"no spaCy model in {path}")


if __name__ == "__main__":
    serve(lambda: load_spacy(sys.argv[1]))
