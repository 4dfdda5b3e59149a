"""Options that several commands share: declared once, given to a command as one value."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from gnomon.cli.failures import CommandError, Exit


@dataclasses.dataclass(frozen=True)
class ScopeOptions:
    """Whose memories: the ids that must be equal; one that is not named is free."""

    user: Annotated[
        str | None, typer.Option("--user", "-u", help="The user the memory belongs to.")
    ] = None
    agent: Annotated[str | None, typer.Option("--agent", help="The agent it belongs to.")] = None
    run: Annotated[str | None, typer.Option("--run", help="The run it belongs to.")] = None

    def ids(self) -> dict[str, str]:
        """Return the ids that are named, by their names in the HTTP API."""
        named = {"user_id": self.user, "agent_id": self.agent, "run_id": self.run}
        return {name: value for name, value in named.items() if value is not None}

    def required(self) -> dict[str, str]:
        """Return the ids that are named.

        Raises: CommandError, when there is none.
        """
        if not (ids := self.ids()):
            said = "No scope is named: whose memories?"
            hint = "Give at least one of --user, --agent and --run."
            raise CommandError("usage", said, hint, Exit.USAGE)
        return ids


@dataclasses.dataclass(frozen=True)
class TimeOptions:
    """When a memory is true and when it goes."""

    valid_from: Annotated[
        str | None,
        typer.Option(help="True from this time on, such as 2026-03-01T09:00:00+01:00."),
    ] = None
    valid_to: Annotated[str | None, typer.Option(help="True until this time.")] = None
    expires_at: Annotated[str | None, typer.Option(help="Hidden from this time on.")] = None

    def fields(self) -> dict[str, str]:
        """Return the times that are named."""
        return {name: value for name, value in vars(self).items() if value is not None}


def expanded(command: Callable[..., None], call: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function that takes groups of options; typer runs `call(**values)`.

    Each parameter whose type is a dataclass becomes one option for each of its fields.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}

    @wraps(command)
    def called(**given: Any) -> None:
        call(**_gathered(given, groups))

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += _options(groups[name]) if name in groups else [_one(parameter, hints[name])]
    vars(called)["__signature__"] = inspect.Signature(parameters)  # what typer reads, and the hints
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def _gathered(given: Mapping[str, Any], groups: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(given)
    for name, group in groups.items():
        fields = [field.name for field in dataclasses.fields(group)]
        values[name] = group(**{field: values.pop(field) for field in fields})
    return values


def _one(parameter: inspect.Parameter, hint: Any) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint)


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name])
        for field in dataclasses.fields(group)
    ]
