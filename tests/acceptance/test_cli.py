"""The command line as its users run it: processes, exit codes, a real server."""

import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from canonical.store.embedded import EmbeddedPostgres
from gnomon.cli.upload import PART_LINES
from tests.support.builders import until
from tests.support.command import Ran, gnomon, quick
from tests.support.holders import pids_of
from tests.support.server import Up

MEMORYBANK = Path("gnomon/data/memorybank/conversations.jsonl")
UNKNOWN = "01997f0c-8a5e-7cc1-9f0e-3b7d5c1a2e44"
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One server for the module; each test has a user of its own."""
    with Up(tmp_path_factory.mktemp("cli") / "state") as up:
        yield up
        assert up.stop() == 0


@pytest.fixture
def user() -> str:
    return f"user-{secrets.token_hex(4)}"


@pytest.fixture
def url(server: Up) -> tuple[str, str]:
    return ("--url", server.url)


def test_a_memory_is_added_found_changed_and_deleted(url: tuple[str, str], user: str) -> None:
    scope = (*url, "--user", user, "--json")
    written = gnomon("add", "Mara is allergic to walnuts", *scope)
    assert written.code == 0, written.err
    memory_id = written.document["id"]
    found = gnomon("search", "walnuts", *scope).document
    assert [hit["id"] for hit in found["items"]] == [memory_id]
    changed = gnomon("update", memory_id, "--text", "Mara eats walnuts", *url, "--json")
    assert changed.document["version"] == 2
    after = ("--after", changed.document["position"])
    again = gnomon("search", "allergic walnuts", *scope, *after).document
    assert [hit["text"] for hit in again["items"]] == ["Mara eats walnuts"]
    history = gnomon("history", memory_id, *url, "--json").document["items"]
    assert [(v["version"], v["op"]) for v in history] == [(1, "add"), (2, "update")]
    assert gnomon("delete", memory_id, *url, "--json").document["status"] == "deleted"
    assert gnomon("search", "walnuts", *scope).document["items"] == []
    gone = gnomon("get", memory_id, *url, "--json")
    assert (gone.code, gone.error["code"]) == (1, "not_found")
    assert gnomon("get", memory_id, "--deleted", *url, "--json").document["tombstone"]


@pytest.mark.parametrize("verb", ["get", "history", "delete", "update"])
def test_an_id_that_is_none_is_told_from_one_that_is_unknown(
    url: tuple[str, str], verb: str
) -> None:
    """A-01: never an empty success, on every verb."""
    more = ("--text", "x") if verb == "update" else ()
    unknown = quick(verb, UNKNOWN, *more, *url, "--json")
    assert (unknown.code, unknown.error["code"], unknown.out) == (1, "not_found", "")
    for wrong in ("GPK0F14H", "../x", "%00"):
        refused = quick(verb, wrong, *more, *url, "--json")
        assert (refused.code, refused.error["code"], refused.out) == (1, "invalid_input", "")
        assert refused.error["hint"]


def test_a_scope_is_deleted_only_when_it_is_named_and_meant(
    url: tuple[str, str], user: str
) -> None:
    for text in ("one", "two"):
        quick("add", text, "--user", user, *url)
    assert quick("delete", "--all", *url).code == 2
    assert quick("delete", "--user", user, *url).code == 2
    assert quick("delete", UNKNOWN, "--user", user, *url).code == 2
    assert quick("delete", *url).code == 2
    unsure = quick("delete", "--user", user, "--all", *url)  # nobody there to be asked
    assert unsure.code == 2
    assert "--yes" in unsure.err
    assert len(quick("search", "one two", "--user", user, *url, "--json").document["items"]) == 2
    gone = quick("delete", "--user", user, "--all", "--yes", *url, "--json")
    assert (gone.document["count"], gone.document["replayed"]) == (2, False)


def test_texts_come_from_stdin_as_well_and_bad_ones_are_refused_by_field(
    url: tuple[str, str], user: str
) -> None:
    scope = ("--user", user, *url, "--json")
    assert gnomon("add", "-", *scope, stdin="我喜欢喝绿茶\n".encode()).code == 0
    found = gnomon("search", "绿茶", *scope).document["items"]
    assert [hit["text"] for hit in found] == ["我喜欢喝绿茶"]
    bad = gnomon("add", "-", *scope, stdin=b"broken \xff text")
    assert (bad.code, bad.error["code"]) == (2, "usage")
    assert "not UTF-8: byte 7 is 0xff" in bad.error["message"]
    bad = gnomon("add", "a\udcff", *scope)
    assert (bad.code, bad.error["code"], bad.error["field"]) == (1, "invalid_input", "text")
    assert gnomon("add", "x", "--metadata", "{", *scope).code == 2


def memory_lines(user: str, count: int) -> list[str]:
    return [json.dumps({"text": f"note {n}", "user_id": user}) for n in range(count)]


def test_an_import_writes_down_what_it_refused_and_adds_nothing_when_run_again(
    url: tuple[str, str], user: str, tmp_path: Path
) -> None:
    """A-06: with --wait the end is told; W-12: a resend has no second effect."""
    lines = memory_lines(user, PART_LINES + 5)
    lines[3] = "not json"
    lines[PART_LINES + 2] = json.dumps({"text": "whose?"})
    lines[PART_LINES + 3] = ""
    path = tmp_path / "notes.jsonl"
    path.write_text("\n".join(lines) + "\n")
    first = quick("import", str(path), "--wait", *url, "--json")
    assert first.code == 1
    counts = {name: first.document[name] for name in ("lines", "written", "refused", "blank")}
    total = PART_LINES + 5
    assert counts == {"lines": total, "written": total - 3, "refused": 2, "blank": 1}
    rejects = [json.loads(one) for one in Path(first.document["rejects"]).read_text().splitlines()]
    assert [(r["line"], r["input"]) for r in rejects] == [
        (4, "not json"),
        (PART_LINES + 3, '{"text": "whose?"}'),
    ]
    assert all(r["message"] and r["hint"] for r in rejects)
    again = quick("import", str(path), *url, "--json")
    assert again.document["written"] == 0
    assert again.document["replayed"] == total - 3
    assert again.document["position"] == first.document["position"]


def test_after_waiting_every_projection_has_the_import(
    server: Up, url: tuple[str, str], user: str, tmp_path: Path
) -> None:
    """Nothing else writes now, so no projection may lag when --wait has returned."""
    path = tmp_path / "notes.jsonl"
    path.write_text("\n".join(memory_lines(user, 300)))
    assert quick("import", str(path), "--wait", *url).code == 0
    assert set(server.lags().values()) == {0}
    assert set(server.lags()) == {"vector", "keyword", "entity", "audit"}


def test_waiting_ends_at_once_when_a_projection_is_paused(
    server: Up, url: tuple[str, str], user: str, tmp_path: Path
) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("\n".join(memory_lines(user, 50)))
    server.client.post("/v1/projections/keyword:pause")
    try:
        waited = quick("import", str(path), "--wait", *url, "--json")
    finally:
        server.client.post("/v1/projections/keyword:resume")
    assert (waited.code, waited.error["code"]) == (5, "paused")
    assert quick("import", str(path), "--wait", *url).code == 0


LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [{"speaker": "Ann", "dia_id": "D1:1", "text": "I moved to Lisbon"}],
    },
}


def test_files_of_other_programs_are_imported(url: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([LOCOMO]))
    locomo = quick("import", str(path), "--format", "locomo", *url, "--json")
    assert (locomo.code, locomo.document["written"]) == (0, 1)
    found = quick("search", "Lisbon", "--user", "conv-1", *url, "--json").document["items"]
    assert found[0]["text"] == "Ann: I moved to Lisbon"
    bank = quick("import", str(MEMORYBANK), "--format", "memorybank", *url, "--json")
    assert (bank.code, bank.document["written"]) == (0, 517)
    wrong = quick("import", str(MEMORYBANK), "--format", "locomo", *url, "--json")
    assert (wrong.code, wrong.error["code"]) == (1, "invalid_input")


def test_explain_shows_each_leg(url: tuple[str, str], user: str) -> None:
    quick("add", "Mara lives in Lisbon", "--user", user, *url)
    shown = quick("search", "Lisbon", "--user", user, "--explain", *url)
    assert shown.code == 0
    for said in ("vector ", "keyword ", "relevance 1.00"):
        assert said in shown.out
    assert "Mara lives in Lisbon" in shown.out


def test_a_misspelt_scope_is_told_from_an_empty_answer(url: tuple[str, str]) -> None:
    shown = quick("search", "anything", "--user", "nobody-at-all", *url)
    assert shown.code == 0
    assert "no memories" in shown.out


def test_a_scope_is_listed_page_by_page(url: tuple[str, str], user: str) -> None:
    for n in range(3):
        quick("add", f"note {n}", "--user", user, *url)
    listed = quick("list", "--user", user, *url, "--json").document
    assert sorted(one["text"] for one in listed["items"]) == ["note 0", "note 1", "note 2"]
    assert listed["next_cursor"] is None
    some = quick("list", "--user", user, "--limit", "2", *url)
    assert (some.out.count("note "), "more than 2" in some.err) == (2, True)
    none = quick("list", "--user", f"{user}x", *url)
    assert (none.code, none.out.strip()) == (0, "No memories.")


def test_a_command_without_a_scope_names_the_options(url: tuple[str, str]) -> None:
    for command in (("add", "x"), ("search", "x"), ("list",)):
        ran = quick(*command, *url, "--json")
        assert (ran.code, ran.error["code"]) == (2, "usage")
        assert "--user" in ran.error["hint"]


def test_an_import_does_not_take_a_user_that_would_change_nothing(
    url: tuple[str, str], tmp_path: Path
) -> None:
    exchange = {"user": "Emily", "date": "2023-05-01", "query": "q", "response": "r"}
    (tmp_path / "x.jsonl").write_text(json.dumps(exchange))
    ran = quick(
        "import", str(tmp_path / "x.jsonl"), "--format", "memorybank", "--user", "u", *url, "--json"
    )
    assert (ran.code, ran.error["code"]) == (2, "usage")


def test_a_misspelt_store_is_not_an_empty_one(tmp_path: Path) -> None:
    for command in (("keys", "list"), ("keys", "revoke", "x"), ("audit", "verify")):
        ran = quick(*command, "--state", str(tmp_path / "typo"), "--json")
        assert (ran.code, ran.error["code"]) == (1, "no_store")
    assert not (tmp_path / "typo").exists()


def test_a_watched_status_goes_through_a_pipe(url: tuple[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "gnomon.cli", "status", "--watch", *url],
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        seen = 0
        while seen < 2:  # tables, one below the other
            seen += "keyword" in watching.stdout.readline()
        watching.kill()


def test_status_names_every_projection(url: tuple[str, str]) -> None:
    shown = quick("status", *url)
    assert shown.code == 0
    for name in ("vector", "keyword", "entity", "audit"):
        assert name in shown.out
    items = quick("status", *url, "--json").document["items"]
    assert {one["name"] for one in items} == {"vector", "keyword", "entity", "audit"}


def test_status_is_watched_until_it_is_told_to_stop(server: Up) -> None:
    command = [sys.executable, "-m", "gnomon.cli", "status", "--watch", "--json"]
    with subprocess.Popen([*command, "--url", server.url], stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        for _ in range(2):
            assert json.loads(watching.stdout.readline())["items"]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130


def test_nothing_is_parked_on_a_good_day(url: tuple[str, str]) -> None:
    assert quick("park", "list", *url, "--json").document == {"items": []}
    assert quick("park", "redrive", *url, "--json").document["count"] == 0
    unknown = quick("park", "list", "--projection", "nonsense", *url, "--json")
    assert (unknown.code, unknown.error["code"]) == (1, "not_found")


def test_the_audit_is_verified_beside_the_running_server(server: Up, user: str) -> None:
    quick("add", "Mara plays the viola", "--user", user, "--url", server.url)
    until(lambda: server.lags()["audit"] == 0, "the audit has it")
    env = {"GNOMON_STATE": str(server.state)}
    verified = quick("audit", "verify", "--json", env=env)
    assert verified.code == 0, verified.err
    assert verified.document["ok"]
    assert verified.document["entries"] > 0


def test_exported_heads_are_compared_with_later_ones(server: Up, user: str, tmp_path: Path) -> None:
    """What holds is exported; a head that is not reproduced ends it with 1 and exports nothing."""
    quick("add", "Mara plays the viola", "--user", user, "--url", server.url)
    until(lambda: server.lags()["audit"] == 0, "the audit has it")
    env, file = {"GNOMON_STATE": str(server.state)}, tmp_path / "heads.json"
    assert quick("audit", "verify", "--export", str(file), env=env).code == 0
    kept = json.loads(file.read_text())
    quick("add", "Mara plays the cello", "--user", user, "--url", server.url)
    again = quick("audit", "verify", "--heads", str(file), "--json", env=env)
    assert again.code == 0, again.err
    assert again.document["exported_heads"] == len(kept["heads"]) > 0
    kept["heads"][0]["hash"] = "0" * 64
    file.write_text(json.dumps(kept))
    arguments = ("--heads", str(file), "--export", str(tmp_path / "new.json"), "--json")
    forged = quick("audit", "verify", *arguments, env=env)
    assert (forged.code, forged.error["code"]) == (1, "chain_broken")
    said = {one["problem"] for one in forged.document["problems"]}
    assert said == {"the hash is not the one that was exported"}
    assert not (tmp_path / "new.json").exists()


def test_a_second_server_on_the_folder_is_refused_by_name(server: Up, user: str) -> None:
    """W-19: the refusal names the process that runs, and that one goes on undisturbed."""
    second = gnomon("up", "--state", str(server.state), "--port", "0", "--no-env", "--json")
    assert (second.code, second.error["code"], second.out) == (1, "state_in_use", "")
    assert str(server.process.pid) in second.error["message"]
    assert gnomon("add", "still here", "--user", user, "--url", server.url).code == 0


def test_a_port_in_use_is_said_before_anything_starts(server: Up, tmp_path: Path) -> None:
    port = server.url.rsplit(":", 1)[1]
    state = tmp_path / "other"
    second = gnomon("up", "--state", str(state), "--port", port, "--no-env", "--json")
    assert (second.code, second.error["code"]) == (1, "cannot_listen")
    assert not (state / "postgres").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("add", "x", "--user", "u"),
        ("search", "x", "--user", "u"),
        ("get", UNKNOWN),
        ("status",),
        ("park", "list"),
        ("import", str(MEMORYBANK), "--format", "memorybank"),
    ],
    ids=lambda command: command[0],
)
def test_without_a_server_each_command_says_how_to_start_one(command: tuple[str, ...]) -> None:
    told = quick(*command, "--url", NOBODY, "--json")
    assert (told.code, told.error["code"], told.out) == (3, "server_unreachable", "")
    assert "gnomon up" in told.error["hint"]


def plain(ran: Ran) -> bool:
    return re.search(r"\x1b\[|Traceback", ran.out + ran.err) is None


def test_output_that_is_no_terminal_has_no_colours_and_errors_no_traceback(
    url: tuple[str, str], user: str
) -> None:
    forced = {"FORCE_COLOR": "1", "NO_COLOR": "1"}
    for env in ({}, forced):
        for command in (("status", *url), ("get", "nope", *url), ("get", UNKNOWN, "--url", NOBODY)):
            assert plain(gnomon(*command, env=env)), command
    markup = gnomon("add", "[bold]not markup[/bold] [/]", "--user", user, *url, "--json")
    shown = gnomon("get", markup.document["id"], *url)
    assert "[bold]not markup[/bold] [/]" in shown.out


HEAVY = {
    *("spacy", "tantivy", "qdrant_edge", "uvicorn", "fastapi", "numpy", "sqlalchemy", "alembic")
}
LOADED = """
import sys, atexit
atexit.register(lambda: sys.stderr.write("LOADED " + " ".join(sys.modules) + chr(10)))
from gnomon.cli.main import run
run()
"""


@pytest.mark.parametrize(
    ("arguments", "more"),
    [(["--help"], ["httpx", "pydantic", "rich"]), (["status", "--url", NOBODY, "--json"], [])],
    ids=["help", "client"],
)
def test_a_command_loads_only_what_it_uses(arguments: list[str], more: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=False
    )
    loaded = set(ran.stderr.rpartition("LOADED ")[2].split())
    assert "gnomon.cli.main" in loaded
    assert loaded.isdisjoint([*HEAVY, *more])


def test_the_version_is_an_option_as_well() -> None:
    ran = quick("--version")
    assert (ran.code, ran.out) == (0, f"gnomon {version('gnomon')}\n")


def test_keys_close_the_server_and_open_it_to_whoever_has_one(tmp_path: Path) -> None:
    """S: made beside the running server; rights and tenant hold; a revoked one is refused."""
    with Up(tmp_path / "state") as up:
        env = {"GNOMON_STATE": str(up.state), "GNOMON_URL": up.url}
        assert up.announced["open"] is True
        made = quick("keys", "create", "reader", "--right", "read", "--json", env=env).document
        assert made["key"].startswith("gn_")
        shut = _eventually(lambda: quick("search", "x", "--user", "u", "--json", env=env))
        assert shut.error["code"] == "unauthenticated"
        keyed = {**env, "GNOMON_KEY": made["key"]}
        assert quick("search", "x", "--user", "u", env=keyed).code == 0
        refused = quick("add", "x", "--user", "u", "--json", env=keyed)
        assert (refused.code, refused.error["code"]) == (1, "forbidden")
        assert quick("keys", "revoke", made["id"], env=env).code == 0
        gone = _eventually(lambda: quick("search", "x", "--user", "u", "--json", env=keyed))
        assert gone.error["code"] == "unauthenticated"
        assert quick("keys", "revoke", made["id"], "--json", env=env).error["code"] == "not_found"
        assert up.stop() == 0
    listed = quick("keys", "list", "--json", env=env)  # and without a server
    (one,) = listed.document["items"]
    assert (one["name"], one["rights"], bool(one["revoked_at"])) == ("reader", ["read"], True)
    assert "key" not in one
    assert made["key"] not in listed.out
    with Up(tmp_path / "state") as up:  # the only key is revoked: no door opens by that
        assert up.announced["open"] is False
        assert up.client.get("/v1/memories", params={"user_id": "u"}).status_code == 401
        assert up.stop() == 0
    assert pids_of(tmp_path) == []
    assert quick("keys", "create", "x", "--right", "everything", env=env).code == 2


def _eventually(run: Any) -> Ran:
    """Repeat a command until it fails: a server looks for new and revoked keys every 2 seconds."""
    until = time.monotonic() + 20
    while not (ran := run()).code:
        assert time.monotonic() < until, "the key still opens"
        threading.Event().wait(0.1)
    assert isinstance(ran, Ran)
    return ran


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_told_to_stop_ends_well_and_takes_everything_with_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    up = Up(tmp_path / "state")
    up.process.send_signal(number)
    assert up.process.wait(60) == 0
    up.close()
    assert pids_of(tmp_path) == []


@pytest.mark.parametrize("made", ["lock", "postgres/data", "keyword"])
def test_a_server_that_is_told_to_stop_while_it_starts_leaves_nothing_running(
    tmp_path: Path, made: str
) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "gnomon.cli", "up", "--no-env", "--port", "0"]
    with subprocess.Popen(
        [*command, "--state", str(state)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as up:
        until = time.monotonic() + 60
        while not (state / made).exists():
            assert time.monotonic() < until
            assert up.poll() is None
            threading.Event().wait(0.005)
        up.send_signal(signal.SIGTERM)
        _, said = up.communicate(timeout=60)
    assert (up.returncode, b"Traceback" in said) == (0, False), said.decode()
    assert pids_of(tmp_path) == []


def interrupted(up: subprocess.Popen[bytes]) -> int:
    """Press Ctrl-C again and again until it ends, and return its code."""
    until = time.monotonic() + 60
    while up.poll() is None:
        assert time.monotonic() < until
        up.send_signal(signal.SIGINT)
        threading.Event().wait(0.01)
    return up.returncode


@pytest.mark.parametrize("made", ["lock", "postgres/data.new", "postgres/data", "keyword", "up"])
def test_ctrl_c_again_and_again_ends_a_server_as_well_as_once(tmp_path: Path, made: str) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "gnomon.cli", "up", "--no-env", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, "--state", str(state)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as up:
        if made == "up":
            assert up.stdout is not None
            assert up.stdout.readline()
        else:
            until((state / made).exists, made)
        code, (_, said) = interrupted(up), up.communicate()
    assert (code, b"Traceback" in said) == (0, False), said.decode()
    assert pids_of(tmp_path) == []


def test_ctrl_c_again_and_again_cuts_a_request_off_after_its_grace(tmp_path: Path) -> None:
    body = b"POST /v1/memories:bulk HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
    with Up(tmp_path / "state") as up, socket.socket() as client:
        client.connect(("127.0.0.1", httpx.URL(up.url).port))
        client.sendall(body + b"Content-Type: application/x-ndjson\r\n\r\n{")
        up.lags()  # answered after the other one was taken up
        assert interrupted(up.process) == 0
    assert (tmp_path / "up.log").read_text().count("Traceback") == 0
    assert pids_of(tmp_path) == []


INTERRUPTED = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from gnomon.cli.__main__ import run
run()
"""


def test_ctrl_c_before_a_command_has_begun_ends_it_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "up", "--state", str(tmp_path), "--port", "0"]
    ran = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, b"", b"")


def test_a_forged_audit_entry_ends_verification_with_1(tmp_path: Path) -> None:
    env = {"GNOMON_STATE": str(tmp_path / "state")}
    with Up(tmp_path / "state") as up:
        for text in ("first", "second"):
            quick("add", text, "--user", "u", "--url", up.url)
        path = tmp_path / "more.jsonl"
        path.write_text("\n".join(memory_lines("u", 20)))
        assert quick("import", str(path), "--wait", "--url", up.url).code == 0
        assert up.stop() == 0
    file = tmp_path / "heads.json"
    assert quick("audit", "verify", "--export", str(file), env=env).code == 0
    forge(up, "audit_head", "true")
    newest = "(shard, pos) IN (SELECT shard, max(pos) FROM audit GROUP BY shard)"
    forge(up, "memory_version", newest)
    forge(up, "audit", newest)
    assert quick("audit", "verify", env=env).code == 0, "by itself, it looks well"
    compared = quick("audit", "verify", "--heads", str(file), "--json", env=env)
    assert compared.code == 1
    said = {one["problem"] for one in compared.document["problems"]}
    assert said == {"the entry that was exported is gone"}
    forge(up, "audit", "pos = 1")
    verified = quick("audit", "verify", "--json", env=env)
    assert verified.code == 1, verified.err
    assert verified.document["ok"] is False
    assert verified.document["problems"]
    assert verified.error["code"] == "chain_broken"


def forge(up: Up, table: str, where: str) -> None:
    """Remove rows as whoever has the whole database can."""
    with (
        EmbeddedPostgres(up.state / "postgres") as postgres,
        psycopg.connect(postgres.url(database="gnomon")) as conn,
    ):
        conn.execute("SET session_replication_role = replica")
        assert conn.execute(f"DELETE FROM {table} WHERE {where}").rowcount > 0


def test_the_demo_keeps_its_promises_and_leaves_nothing(tmp_path: Path) -> None:
    ran = gnomon("demo", "--json", env={"TMPDIR": str(tmp_path), "GNOMON_POSTGRES_URL": "nonsense"})
    assert ran.code == 0, ran.err
    assert ran.document["ok"]
    assert len(ran.document["checked"]) >= 18
    assert ran.document["seconds"] < 120
    assert list(tmp_path.iterdir()) == []
    assert pids_of(tmp_path) == []


def test_a_demo_that_is_killed_takes_its_server_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gnomon.cli", "demo"]
    env = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as demo:
        assert demo.stdout is not None
        assert b"in a folder of its own" in demo.stdout.readline()
        demo.kill()
    servers = pids_of(tmp_path)
    for pid in servers:
        _wait_for_end(pid)
    assert servers
    assert pids_of(tmp_path) == []


def _wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60)[0], f"process {pid} still runs"
    finally:
        os.close(descriptor)
