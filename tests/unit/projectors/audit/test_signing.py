"""Signatures of heads."""

from pathlib import Path

from projectors.audit.signing import KEY_BYTES, Signer


def test_a_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    first, second = Signer.at(path), Signer.at(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == KEY_BYTES
    assert first.key_id == second.key_id
    assert second.verifies(b"head", first.sign(b"head"))


def test_another_key_or_another_head_does_not_verify(tmp_path: Path) -> None:
    ours, theirs = Signer.at(tmp_path / "ours"), Signer.at(tmp_path / "theirs")
    assert ours.key_id != theirs.key_id
    assert not ours.verifies(b"head", theirs.sign(b"head"))
    assert not ours.verifies(b"head", ours.sign(b"heae"))


def test_a_key_is_not_told_by_its_name(tmp_path: Path) -> None:
    signer = Signer.at(tmp_path / "key")
    assert (tmp_path / "key").read_bytes().hex() not in signer.key_id
    assert len(signer.key_id) == 16
