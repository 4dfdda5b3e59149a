"""What a recogniser in a child process promises when that child dies, hangs, or outlives us."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from canonical.errors import ModelRefusedError, ModelUnavailableError
from inference.child_process import python
from inference.protocols import Name
from inference.spacy_recogniser import SpacyRecogniser

ROOT = Path(__file__).parents[3]
CHILD = ROOT / "tests/support/moody_child.py"
MARA = (Name("Mara", "PERSON"),)

Make = Callable[..., SpacyRecogniser]


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    return tmp_path / "starts"


@pytest.fixture
def make(starts: Path) -> Iterator[Make]:
    made: list[SpacyRecogniser] = []

    def make(*always: str, within_s: float = 20) -> SpacyRecogniser:
        command = python(str(CHILD), str(starts), *always)
        made.append(SpacyRecogniser(within=timedelta(seconds=within_s), command=command))
        return made[-1]

    yield make
    for recogniser in made:
        recogniser.close()


def pids(starts: Path) -> list[int]:
    return [int(line) for line in starts.read_text().splitlines()]


def test_nothing_is_loaded_before_the_first_text_and_spacy_never_in_this_process() -> None:
    program = (
        "import sys; from inference.spacy_recogniser import SpacyRecogniser\n"
        "with SpacyRecogniser() as r:\n"
        "    r.recognise(['绿茶']); assert r._child is None\n"
        "    print(r.recognise(['Mara Lind lives in Lisbon.'])); print('spacy' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Mara Lind" in run.stdout
    assert run.stdout.endswith("False\n")


def test_a_child_that_was_killed_is_started_again(make: Make, starts: Path) -> None:
    recogniser = make()
    recogniser.recognise(["warm up"])
    os.kill(pids(starts)[0], signal.SIGKILL)
    assert recogniser.recognise(["so Mara said", "so she said"]) == [MARA, ()]
    assert len(pids(starts)) == 2


def test_a_text_that_kills_the_child_is_refused_alone(make: Make, starts: Path) -> None:
    """Q-20, P12."""
    texts = [f"{n} Mara" for n in range(300)]
    texts[77] = "DIE Mara"
    answers = make().recognise(texts)
    assert isinstance(answers.pop(77), ModelRefusedError)
    assert answers == [MARA] * 299
    assert len(pids(starts)) <= 12  # a bisection, not a walk


def test_a_text_that_makes_spacy_raise_is_refused_without_a_new_child(
    make: Make, starts: Path
) -> None:
    answers = make().recognise(["Mara", "RAISE", "RAISE twice", "Mara"])
    assert [isinstance(a, ModelRefusedError) for a in answers] == [False, True, True, False]
    assert len(pids(starts)) == 1


def test_a_text_on_which_the_child_hangs_holds_back_a_few_calls_and_is_then_refused(
    make: Make,
) -> None:
    recogniser = make(within_s=0.5)
    texts = ["Mara", "HANG", "Mara"]
    answers: list[object] = []
    for _ in range(12):
        try:
            answers = list(recogniser.recognise(texts))
        except ModelUnavailableError:
            assert recogniser.recognise(["Mara"]) == [MARA], "others go on meanwhile"
        else:
            break
    assert [isinstance(a, ModelRefusedError) for a in answers] == [False, True, False]


def test_a_redriven_text_is_tried_again(make: Make) -> None:
    recogniser = make()
    for _ in range(2):
        first, second = recogniser.recognise(["Mara", "RAISE"])
        assert first == MARA
        assert isinstance(second, ModelRefusedError)


@pytest.mark.parametrize("always", ["DIE", "RAISE", "NOT"])
def test_a_model_that_fails_on_everything_refuses_nothing(make: Make, always: str) -> None:
    """A dead model is not a bad record (P12)."""
    recogniser = make(always)
    for _ in range(3):
        with pytest.raises(ModelUnavailableError):
            recogniser.recognise(["Mara"])


def test_a_missing_model_is_named() -> None:
    recogniser = SpacyRecogniser("en_no_such_model")
    with pytest.raises(ModelUnavailableError, match="en_no_such_model"):
        recogniser.recognise(["Mara"])


def test_an_interrupt_from_the_terminal_does_not_reach_the_child(make: Make, starts: Path) -> None:
    recogniser = make()
    recogniser.recognise(["warm up"])
    (child,) = pids(starts)
    assert os.getpgid(child) != os.getpgrp()
    os.kill(child, signal.SIGINT)
    assert recogniser.recognise(["Mara"]) == [MARA]
    assert pids(starts) == [child]


def test_an_interrupted_question_leaves_no_answer_behind(make: Make) -> None:
    recogniser = make()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(KeyboardInterrupt):
            recogniser.recognise(["HANG", "Noah", "Noah"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert recogniser.recognise(["Mara"]) == [MARA]


def test_the_child_ends_with_a_killed_parent_also_from_the_middle_of_a_batch(starts: Path) -> None:
    program = (
        "from inference.spacy_recogniser import SpacyRecogniser\n"
        f"SpacyRecogniser(command={python(str(CHILD), str(starts))!r}).recognise(['HANG'])"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE)
    assert parent.stderr is not None
    try:
        while "hanging" not in (line := parent.stderr.readline().decode()):
            assert line, "the child never came to the text"
    finally:
        parent.kill()
    # Both hold this pipe, so it ends when the last of them is gone.
    parent.communicate(timeout=20)


def test_threads_take_turns_and_each_gets_its_own_answers(make: Make, starts: Path) -> None:
    recogniser = make()
    people = ["Mara", "Noah", "Ines", "Timo"]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda p: recogniser.recognise([f"so {p} said"] * 50), people))
    assert answers == [[(Name(person, "PERSON"),)] * 50 for person in people]
    assert len(pids(starts)) == 1


def test_one_warning_tells_that_a_script_is_not_read(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-20."""
    recogniser = make()
    assert recogniser.recognise(["我喜欢喝绿茶", "مرحبا", "🎈🎈", "ありがとう"]) == [()] * 4
    recogniser.recognise(["我喜欢喝绿茶"])
    assert len(caplog.records) == 1


def test_after_close_a_call_starts_a_new_child(make: Make, starts: Path) -> None:
    recogniser = make()
    recogniser.recognise(["Mara"])
    recogniser.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pids(starts)[0], 0)
    assert recogniser.recognise(["Mara"]) == [MARA]
