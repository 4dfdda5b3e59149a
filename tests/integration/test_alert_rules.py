"""The alert rules in Prometheus's own hands, where promtool is there."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

PLACE: Final = Path(__file__).resolve().parents[2] / "deploy" / "observability"
PROMTOOL: Final = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on the path")
@pytest.mark.parametrize("asked", [("check", "alerts.yaml"), ("test", "alerts.test.yaml")])
def test_the_rules_are_sound_and_fire_when_they_must(asked: tuple[str, str]) -> None:
    assert PROMTOOL is not None
    verb, file = asked
    ran = subprocess.run(
        [PROMTOOL, verb, "rules", file], cwd=PLACE, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
