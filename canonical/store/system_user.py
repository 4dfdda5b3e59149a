"""Which system user runs the embedded Postgres, and how a program is started as that user."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from canonical.errors import StoreNotStartedError

NAME = "gnomon"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Nothing of our environment reaches Postgres: PGDATA, PGHOST or a locale would change what it does.
ENVIRONMENT = {"PATH": SYSTEM_PATH, "LC_ALL": "C"}
# As the server's user with leave to pass through folders that are closed to it (a state folder
# under /root, a virtual environment there). The alternative, opening those folders to everyone,
# would change what isn't ours. access(2), with which Postgres's programs look for each other, heeds
# a capability of a normal user only where a change of the user is no reason to drop it.
# docs/adr/0001.
PASS_THROUGH = (
    "--securebits=+no_setuid_fixup",
    "--inh-caps=+dac_override",
    "--ambient-caps=+dac_override",
)


@dataclass(frozen=True, slots=True)
class SystemUser:
    """Whom programs run as. `uid` is None where that is simply this process's own user."""

    uid: int | None = None
    gid: int | None = None
    prefix: tuple[str, ...] = ()  # what changes the user, where Python's own way is not enough

    def own(self, path: Path) -> None:
        """Make the file or folder belong to the user."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def run(self, argv: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        """Run a program to its end and return what it said, on both streams together."""
        return subprocess.run(  # noqa: S603 - our own binaries, no shell
            [*self.prefix, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            env=ENVIRONMENT,
            user=None if self.prefix else self.uid,
            group=None if self.prefix else self.gid,
            extra_groups=None if self.prefix or self.uid is None else (),
        )

    def spawn(self, argv: Sequence[str | Path], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own: a Ctrl-C in our terminal doesn't reach it."""
        return subprocess.Popen(  # noqa: S603 - our own binaries, no shell
            [*self.prefix, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
            user=None if self.prefix else self.uid,
            group=None if self.prefix else self.gid,
            extra_groups=None if self.prefix or self.uid is None else (),
        )


def system_user(folder: Path, binary: Path) -> SystemUser:
    """Return whom Postgres runs as: ourselves, or, as it refuses root, a user without rights.

    Whom the folder's data belongs to goes on owning it; new data is the user `gnomon`'s, which is
    made when missing. The user can enter `folder` and run `binary`.
    Raises: StoreNotStartedError, when there is no way to have such a user.
    """
    if os.geteuid() != 0:
        return SystemUser()
    entry = _owner(folder / "data") or _named()
    plain = SystemUser(entry.pw_uid, entry.pw_gid)
    if _reaches(plain, folder, binary):
        return plain
    setpriv = shutil.which("setpriv", path=SYSTEM_PATH)
    if setpriv is not None:
        ids = (f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups")
        able = SystemUser(entry.pw_uid, entry.pw_gid, (setpriv, *ids, *PASS_THROUGH, "--"))
        if _reaches(able, folder, binary):
            return able
    raise StoreNotStartedError(
        f"Postgres refuses to run as root, and the user {entry.pw_name} can't reach {folder} or "
        f"{binary}: start as a normal user, or use folders that every user can pass through"
    )


def _owner(data: Path) -> pwd.struct_passwd | None:
    try:
        owner = pwd.getpwuid(data.stat().st_uid)
    except FileNotFoundError:
        return None
    except KeyError:
        raise StoreNotStartedError(
            f"{data} belongs to a user without a name, and Postgres runs only as its data's owner: "
            "give that user a name, or change the owner"
        ) from None
    if owner.pw_uid == 0:
        raise StoreNotStartedError(
            f"{data} belongs to root, and Postgres refuses to run as root: give it to the user "
            f"{NAME} again, with all that is in it"
        )
    return owner


def _named() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(NAME)
    except KeyError:
        pass
    useradd = shutil.which("useradd", path=SYSTEM_PATH)
    said = "there is no useradd"
    if useradd is not None:
        options = ("--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
        said = SystemUser().run([useradd, *options, NAME]).stdout.strip()
    try:
        return pwd.getpwnam(NAME)
    except KeyError:
        raise StoreNotStartedError(
            f"Postgres refuses to run as root, and the system user {NAME} can't be made ({said}): "
            "make it, or start as a normal user"
        ) from None


def _reaches(user: SystemUser, folder: Path, binary: Path) -> bool:
    script = '"$0" --version >/dev/null 2>&1 && cd "$1"'
    return user.run(["/bin/sh", "-c", script, binary, folder]).returncode == 0
