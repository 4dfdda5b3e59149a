"""Which names are kept."""

import pytest

from inference import names
from inference.protocols import Name


@pytest.mark.parametrize(
    ("text", "label", "kept"),
    [
        ("Mara Lind", "PERSON", True),
        ("Łódź", "GPE", True),
        ("42", "CARDINAL", False),
        ("May 3", "DATE", False),
        ("5 dollars", "MONEY", False),
        ("X", "ORG", False),
        ("x" * 101, "ORG", False),
        ("x" * 100, "ORG", True),
        ("1 - 2", "ORG", False),
        ("🎈🎈", "ORG", False),
        ("小明 Mara", "PERSON", False),
    ],
)
def test_what_is_kept(text: str, label: str, *, kept: bool) -> None:
    assert bool(names.keep([(text, label)], only_latin=True)) is kept


def test_a_model_of_another_script_keeps_its_names() -> None:
    assert names.keep([("小明", "PERSON")], only_latin=False) == (Name("小明", "PERSON"),)


def test_white_space_inside_a_name_is_one_space() -> None:
    assert names.keep([(" Mara\n\tLind ", "PERSON")], only_latin=True) == (
        Name("Mara Lind", "PERSON"),
    )
