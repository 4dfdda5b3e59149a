"""What only a web server refuses: bodies, media types, methods, slow uploads, too many at once."""

from canonical.errors import GnomonError, RejectedError, TransientError


class MalformedBodyError(RejectedError):
    """The body is not what its media type says."""

    code = "malformed_body"
    hint = "Send one JSON value in UTF-8; the message names the place."
    status = 400

    def __init__(self, problem: str, field: str = "body") -> None:
        """Say what is wrong, and where."""
        super().__init__(f"{field}: {problem}")
        self.field = field


class UnsupportedMediaTypeError(RejectedError):
    """The body's media type is not taken here."""

    code = "unsupported_media_type"
    hint = "Send the media type that the message names, in UTF-8, without a content coding."
    status = 415

    def __init__(self, found: str, allowed: str) -> None:
        """Say what was sent and what is allowed."""
        super().__init__(f"Content-Type: is {found[:80]!r}; allowed: {allowed}")
        self.field = "Content-Type"


class NoSuchRouteError(RejectedError):
    """There is nothing at this path."""

    code = "no_such_route"
    hint = "See /openapi.json for what there is."
    status = 404


class MethodNotAllowedError(RejectedError):
    """The path is there, but not for this method."""

    code = "method_not_allowed"
    hint = "Use one of the methods in the Allow header."
    status = 405


class UploadTooSlowError(RejectedError):
    """The rest of the request didn't come in time."""

    code = "upload_too_slow"
    hint = "Send a request without long pauses; a repeated mutation_id has no second effect."
    status = 408


class UploadBrokenError(RejectedError):
    """The client went away before the end of the body; nobody reads this answer."""

    code = "upload_broken"
    hint = "Send it again; a repeated mutation_id has no second effect."
    status = 400


class OverloadedError(TransientError):
    """As many requests of this kind are at work as the server takes at once."""

    code = "overloaded"
    hint = "Try again; a repeated mutation_id has no second effect."


class InternalError(GnomonError):
    """A fault of the server, which stands in its log."""

    code = "internal"
    hint = "Look into the server's log; a repeated mutation_id has no second effect."
