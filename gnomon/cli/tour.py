"""The steps of `gnomon demo`: each does something, shows it, and checks what was promised."""

import time
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any, Final

from canonical.domain import positions
from gnomon.cli import formats, screen, search, status, upload, waiting
from gnomon.cli.answers import Found, Memory
from gnomon.cli.client import Client
from gnomon.cli.failures import CommandError, Exit, unmet
from gnomon.cli.formats import Format
from gnomon.cli.screen import Screen
from gnomon.cli.upload import Tally
from gnomon.cli.waiting import Patience

if TYPE_CHECKING:
    from gnomon.cli.demo import Running

DATA: Final = files("gnomon") / "data" / "memorybank" / "conversations.jsonl"
RECORDS: Final = 517
PROJECT_S: Final = 90.0
CUT: Final = 110
INDEXES: Final = ("vector", "keyword", "entity")


class Tour:
    """A guided tour of a running, empty server."""

    def __init__(self, shown: Screen, server: "Running") -> None:
        """Prepare; nothing happens yet."""
        self._screen, self._server = shown, server
        self._client = Client(server.url)
        self._checked: list[str] = []
        self._step = 0

    def take(self) -> list[str]:
        """Walk through all steps and return what was checked.

        Raises: CommandError, when something is not as it was promised.
        """
        try:
            return self._walk()
        finally:
            self._client.close()

    def _walk(self) -> list[str]:
        self._say(f"A server with empty indexes, in a folder of its own ({self._server.url}).")
        self._import()
        self._search_english()
        self._search_chinese()
        self._stay_in_scope()
        self._read_a_write_at_once()
        self._update()
        self._delete()
        self._show_status()
        self._verify_audit()
        return self._checked

    def _import(self) -> None:
        self._heading("Import real conversations, English and Chinese, and wait for every index")
        self._command("gnomon import conversations.jsonl --format memorybank --wait")
        began = time.monotonic()
        tally = self._send()
        committed = time.monotonic()
        self._wait(tally.token())
        done = time.monotonic()
        self._check(tally.written == RECORDS, f"{RECORDS} memories written", tally)
        self._say(
            f"{tally.written} memories committed in {committed - began:.2f} s, in all four "
            f"projections {done - committed:.1f} s later."
        )
        again = self._send()
        self._check(
            (again.written, again.replayed) == (0, RECORDS), "no second effect of a resend", again
        )
        self._say("The same import once more: nothing written, every line answered as before.")

    def _search_english(self) -> None:
        self._heading("Search")
        found = self._search("Where did she see cherry blossoms?", "Emily", explain=True)
        self._expect(found, "Green Meadow Park", "the park with the cherry blossoms")

    def _search_chinese(self) -> None:
        found = self._search("品茶", "张曼婷", explain=True)
        hit = self._expect(found, "弹钢琴和品茶", "the Chinese memory with these characters")
        legs = hit["explain"]["legs"]
        self._check("keyword" in legs, "found by the keyword leg", sorted(legs))
        found = self._search("震撼的演唱会", "李雪", explain=False)
        self._expect(found, "周杰伦的演唱会", "whose concert it was")

    def _stay_in_scope(self) -> None:
        self._heading("The same question in another user's scope")
        found = self._search("Where did she see cherry blossoms?", "Frank", explain=False)
        users = {hit["user_id"] for hit in found["items"]}
        self._check(users <= {"Frank"}, "only Frank's own memories", users)

    def _read_a_write_at_once(self) -> None:
        self._heading("Read your writes, with every index standing still")
        for name in INDEXES:
            self._client.steer(name, "pause")
        text = "Emily is allergic to walnuts."
        self._command(f'gnomon add "{text}" --user Emily')
        write = self._client.add({"text": text, "user_id": "Emily"})
        found = self._search("Which nuts is she allergic to?", "Emily", after=write["position"])
        hit = self._expect(found, text, "a write that no index has yet")
        self._check(bool(hit["explain"]["tail"]), "it came from the canonical tail", hit["explain"])
        for name in INDEXES:
            self._client.steer(name, "resume")
        self._wait(write["position"])

    def _update(self) -> None:
        self._heading("Change a memory: its old text is not found any more")
        memory = self._one("zucchini broccoli", "Emily", "zucchini")
        text = "I usually pair steamed sea bass with asparagus."
        self._command(f'gnomon update {memory["id"]} --text "{text}"')
        write = self._client.update(memory["id"], {"text": text})
        for when in ("at once", "when all indexes have it"):
            self._gone("zucchini or broccoli", "zucchini", write["position"], when)
            found = self._ask("asparagus", "Emily", after=write["position"])
            self._check(_holds(found, text), f"the new text is found, {when}", _texts(found))
            self._wait(write["position"])
        self._command(f"gnomon history {memory['id']}")
        versions = self._client.history(memory["id"])["items"]
        rows = [(v["version"], v["op"], v["at"], _cut(v["text"])) for v in versions]
        self._print(screen.table(("version", "what", "at", "text"), rows))
        self._check([v["version"] for v in versions] == [1, 2], "two versions in its history", rows)

    def _delete(self) -> None:
        self._heading("Delete a memory: it is not found any more")
        memory = self._one("Taxi Driver art film", "Emily", '"Taxi Driver"')
        self._command(f"gnomon delete {memory['id']}")
        write = self._client.delete(memory["id"], {"why": "the tour asked for it"})
        for when in ("at once", "when all indexes have it"):
            self._gone("art film Taxi Driver", '"Taxi Driver"', write["position"], when)
            self._wait(write["position"])
        self._check(self._is_unknown(memory["id"]), "a deleted memory answers 404", memory["id"])

    def _show_status(self) -> None:
        self._heading("How far the projections are")
        self._command("gnomon status")
        found = self._client.projections()
        self._print(status.table(found))

    def _verify_audit(self) -> None:
        from gnomon.cli import audit  # noqa: PLC0415 - reads the store itself
        from gnomon.cli.session import read_settings  # noqa: PLC0415

        self._heading("Verify the audit chain")
        self._command("gnomon audit verify")
        verified = audit.verified(read_settings(environment=False, state=self._server.state))
        self._say(audit.sentence(verified))
        self._check(verified["ok"], "an unbroken audit chain", verified)

    def _send(self) -> Tally:
        with as_file(DATA) as path:
            name = upload.import_id(path, Format.MEMORYBANK, {})
            cut = upload.parts(formats.lines(path, Format.MEMORYBANK, {}))
            *_, tally = upload.send(self._client, name, cut, self._refuse_reject)
        return tally

    def _refuse_reject(self, reject: dict[str, Any]) -> None:
        self._check(ok=False, expected="no line refused", seen=reject)

    def _wait(self, token: str | None) -> None:
        assert token is not None
        for _ in waiting.wait(self._client, positions.from_token(token), Patience(PROJECT_S)):
            pass

    def _search(
        self, query: str, user: str, *, explain: bool = True, after: str | None = None
    ) -> Found:
        """Search, and show the command with the best three hits."""
        options = " --explain" if explain else ""
        position = "" if after is None else f" --after {after[:8]}…"
        self._command(f'gnomon search "{query}" --user {user}{options}{position}')
        found = self._ask(query, user, after=after)
        short: Found = {**found, "items": [_short(hit) for hit in found["items"][:3]]}
        for part in search.shown(short, width=self._screen.out.width):
            self._print(part)
        return found

    def _ask(self, query: str, user: str, *, after: str | None = None) -> Found:
        position = {} if after is None else {"after": after}
        return self._client.search(
            {"query": query, "user_id": user, "top_k": 10, "explain": True, **position}
        )

    def _expect(self, found: Found, text: str, what: str) -> Memory:
        hits = [hit for hit in found["items"][:3] if text in hit["text"]]
        self._check(bool(hits), f"among the first three: {what}", _texts(found))
        return hits[0]

    def _one(self, query: str, user: str, text: str) -> Memory:
        return self._expect(self._ask(query, user), text, f"the memory that says {text}")

    def _gone(self, query: str, text: str, after: str, when: str) -> None:
        found = self._ask(query, "Emily", after=after)
        self._check(not _holds(found, text), f"{text} is not found, {when}", _texts(found))

    def _is_unknown(self, memory_id: str) -> bool:
        try:
            self._client.get(memory_id)
        except CommandError as exc:
            return exc.code == "not_found" and exc.exit is Exit.REFUSED
        return False

    def _check(self, ok: bool, expected: str, seen: object) -> None:  # noqa: FBT001 - reads well
        if not ok:
            raise unmet(expected, str(seen))
        self._checked.append(expected)
        self._print(f"  [green]✓[/green] {expected}")

    def _heading(self, text: str) -> None:
        self._step += 1
        self._print(f"\n[bold]{self._step}. {text}[/bold]")

    def _command(self, text: str) -> None:
        if not self._screen.as_json:
            self._screen.out.print(f"$ {text}", style="cyan", markup=False)

    def _say(self, text: str) -> None:
        self._print(text)

    def _print(self, shown: Any) -> None:
        if not self._screen.as_json:
            self._screen.out.print(shown)


def _holds(found: Found, text: str) -> bool:
    return any(text in hit["text"] for hit in found["items"])


def _texts(found: Found) -> list[str]:
    return [_cut(hit["text"]) for hit in found["items"]]


def _short(hit: Memory) -> Memory:
    return {**hit, "text": _cut(hit["text"])}


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CUT else line[: CUT - 1] + "…"
