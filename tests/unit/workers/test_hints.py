import ast
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from workers import celery_app, tasks
from workers.hints import Hints

WORKERS = Path(tasks.__file__).parent
# What would make a message more than a hint.
WITHHELD = {
    *("eta", "countdown", "autoretry_for", "max_retries", "retry_backoff", "acks_late"),
    *("chain", "chord", "group", "signature", "apply_async", "delay", "link", "link_error"),
}


class Counts:
    def __init__(self) -> None:
        self.held: Counter[str] = Counter()

    def hinted(self, outcome: str, count: int = 1) -> None:
        self.held[outcome] += count


class Broker:
    """Takes hints until it fails."""

    def __init__(self, fails_after: int = 1_000) -> None:
        self.sent: list[tuple[str, int, int]] = []
        self.fails_after = fails_after

    def send(self, projection: str, generation: int, shard: int) -> None:
        if len(self.sent) >= self.fails_after:
            raise ConnectionError("away")
        self.sent.append((projection, generation, shard))


def hints(broker: Broker, counts: Counts, **serving: int) -> Hints:
    return Hints(broker.send, lambda: serving, counts)


def test_shards_are_hinted_at_once_however_often_they_were_written_to() -> None:
    broker, counts = Broker(), Counts()
    sender = hints(broker, counts, vector=3, audit=1)
    for shard in (7, 2, 7, 7):
        sender.hint([shard])
    sender.send_pending()
    sender.send_pending()
    assert broker.sent == [("vector", 3, 2), ("vector", 3, 7), ("audit", 1, 2), ("audit", 1, 7)]
    assert counts.held == {"sent": 4}


def test_a_broker_that_fails_is_counted_and_raises_nothing() -> None:
    broker, counts = Broker(fails_after=1), Counts()
    sender = hints(broker, counts, vector=3)
    sender.hint([1, 2, 3])
    sender.send_pending()
    assert counts.held == {"sent": 1, "lost": 2}
    broker.fails_after = 1_000
    sender.hint([4])
    sender.send_pending()
    assert broker.sent[-1] == ("vector", 3, 4)


@pytest.mark.parametrize("path", sorted(WORKERS.glob("*.py")), ids=lambda path: path.name)
def test_nothing_makes_a_message_more_than_a_hint(path: Path) -> None:
    """O-13, O-25: no ETA, no retries, no chains, no late acknowledgement."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword):
            assert node.arg not in WITHHELD - {"max_retries"}, f"{path.name}:{node.value.lineno}"
        elif isinstance(node, ast.Attribute):
            assert node.attr not in WITHHELD, f"{path.name}:{node.lineno}"


def test_the_application_keeps_and_repeats_nothing() -> None:
    conf = celery_app.build_app("redis://127.0.0.1:1/0", socket=timedelta(1)).conf
    assert (conf.task_acks_late, conf.task_ignore_result, conf.task_publish_retry) == (
        False,
        True,
        False,
    )
    assert conf.result_backend is None
    assert conf.worker_pool == "solo"


def test_a_hint_is_below_a_kilobyte_and_has_three_small_arguments() -> None:
    """E-22."""
    app = celery_app.build_app("memory://", socket=timedelta(1))
    tasks.register(app, Counts())
    app.finalize()
    message = app.amqp.as_task_v2(
        "0" * 36, celery_app.PROJECT, ("keyword", 2**31, 15), {}, expires=30
    )
    assert len(repr(message)) < 1_500
    assert message.body[0] == ("keyword", 2**31, 15)
