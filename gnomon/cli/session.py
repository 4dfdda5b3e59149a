"""One run of a command: where its server is, how it prints, and how it ends."""

import dataclasses
import signal
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canonical.errors import GnomonError
from gnomon.cli import failures, options
from gnomon.cli.failures import CommandError
from gnomon.cli.screen import Screen

if TYPE_CHECKING:
    from gnomon.cli.client import Client
    from gnomon.settings import Settings


@dataclasses.dataclass(frozen=True)
class Output:
    """How a command that talks to no server prints."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for programs.", show_default=False)
    ] = False

    @cached_property
    def screen(self) -> Screen:
        """What is printed on."""
        return Screen(as_json=self.as_json)

    @cached_property
    def settings(self) -> "Settings":
        """The settings of this process."""
        return read_settings()

    def close(self) -> None:
        """Close the connection to a server, if the command opened one."""
        if (client := vars(self).get("client")) is not None:
            client.close()


@dataclasses.dataclass(frozen=True)
class StoreOutput(Output):
    """How a command that opens the store itself names it and prints."""

    state: Annotated[
        Path | None,
        typer.Option(help="State folder of the store; GNOMON_STATE.", show_default="~/.gnomon"),
    ] = None

    @cached_property
    def settings(self) -> "Settings":  # type: ignore[explicit-override]  # new in Python 3.12
        """The settings of this process, with the folder that is named put above them."""
        return read_settings() if self.state is None else read_settings(state=self.state)


@dataclasses.dataclass(frozen=True)
class Session(Output):
    """How a command that talks to a server reaches it and prints."""

    url: Annotated[
        str | None,
        typer.Option(
            help="Address of the server; GNOMON_URL.", show_default="http://127.0.0.1:7377"
        ),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(help="API key; better in GNOMON_KEY, which `ps` doesn't show."),
    ] = None

    @cached_property
    def client(self) -> "Client":
        """The server."""
        from gnomon.cli.client import Client  # noqa: PLC0415 - httpx takes 0.2 s

        return Client(self._address(), self._secret())

    def _address(self) -> str:
        given = self.url or self.settings.url
        if given is not None:
            return given
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.settings.host, self.settings.host)  # noqa: S104 - not bound here
        return f"http://{host}:{self.settings.port}"

    def _secret(self) -> str | None:
        if self.key is not None:
            return self.key
        return None if self.settings.key is None else self.settings.key.get_secret_value()


def read_settings(*, environment: bool = True, **given: object) -> "Settings":
    """Read the settings; `given` go before the environment, which may be left out.

    Raises: CommandError, which names the setting that can't be read.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - pydantic takes 0.2 s

    from gnomon.settings import Settings  # noqa: PLC0415

    # No variable's name holds an equals sign, so none has this prefix.
    apart = {} if environment else {"_env_prefix": "=", "_env_file": None}
    try:
        return Settings(**apart, **given)  # type: ignore[arg-type]  # pydantic checks it
    except OSError as exc:  # a file that a GNOMON_…_FILE names
        raise CommandError(
            "bad_setting",
            f"{exc.filename}: {exc.strerror}",
            "Correct the GNOMON_…_FILE variable that names it, or the file's rights.",
            failures.Exit.USAGE,
        ) from None
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        name = "GNOMON_" + "_".join(str(part) for part in first["loc"]).upper()
        hint = "Correct the environment variable, the line in .env or the option."
        raise CommandError(
            "bad_setting",
            f"{name}: {first['msg'].removeprefix('Value error, ')}",
            hint,
            failures.Exit.USAGE,
        ) from None


def command(app: typer.Typer, name: str | None = None) -> Callable[..., Callable[..., None]]:
    """Register a function as a command; one of its parameters is an Output or a Session.

    Its groups of options are expanded, and an error of ours ends it with code, message and hint.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        def call(**values: Any) -> None:
            _hear_interrupts()
            output = next(v for v in values.values() if isinstance(v, Output))
            try:
                function(**values)
            except (CommandError, GnomonError) as exc:
                error = exc if isinstance(exc, CommandError) else failures.of(exc)
                output.screen.failure(error)
                raise typer.Exit(error.exit) from None
            finally:
                output.close()

        return app.command(name)(options.expanded(function, call))

    return register


def _hear_interrupts() -> None:
    """Let a Ctrl-C be a KeyboardInterrupt again; loading, the process just ended at one."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
