"""Every deliberate error says in which family it is, and what to do next."""

from collections.abc import Iterator

import pytest

from canonical import errors
from canonical.errors import GnomonError, HaltError, PoisonError, RejectedError, TransientError

FAMILIES = (RejectedError, TransientError, PoisonError, HaltError)


def every(base: type[GnomonError] = GnomonError) -> Iterator[type[GnomonError]]:
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from every(kind)


@pytest.mark.parametrize("kind", list(every()))
def test_an_error_is_of_one_family(kind: type[GnomonError]) -> None:
    assert len([family for family in FAMILIES if issubclass(kind, family)]) == 1


@pytest.mark.parametrize("kind", list(every()))
def test_an_error_says_what_to_do(kind: type[GnomonError]) -> None:
    assert kind.hint.endswith(".")
    assert (400 <= kind.status < 500) is issubclass(kind, RejectedError)
    assert (kind.status == 503) is issubclass(kind, TransientError)


def test_a_code_is_of_one_error() -> None:
    codes = [kind.code for kind in every()]
    assert len(set(codes)) == len(codes)


def test_the_tree_in_the_docstring_is_the_tree_of_the_code() -> None:
    drawn = {word for word in (errors.__doc__ or "").split() if word.endswith("Error")}
    assert drawn == {"GnomonError", *(kind.__name__ for kind in every())}


def test_errors_with_fields_say_them() -> None:
    assert "5" in str(errors.VersionConflictError(4, 5))
    assert "position 7 expected, found 9" in str(errors.PositionGapError(3, 7, 9))
    assert "process 12" in str(errors.StateInUseError("/x", "12"))
    assert "by a process" in str(errors.StateInUseError("/x", ""))
