"""The exceptions and warnings of the library.

Every message says in one line what was found, what was expected and what to do. The command line prints it and exits
with the code of the class.
"""


class ClickharvestError(Exception):
    """Base of everything the library raises on purpose."""

    exit_code = 1


class InputError(ClickharvestError, ValueError):
    """The input cannot be used as given: a missing column, a malformed value, an unreadable file."""

    exit_code = 2


class NotFittedError(InputError, AttributeError):
    """An attribute that `fit` learns was read before `fit`; like scikit-learn's error of this name."""


class EngineError(ClickharvestError, RuntimeError):
    """The engine (DuckDB, Spark) is missing, misconfigured or failed while running a valid query."""

    exit_code = 2


class NotIdentifiedError(ClickharvestError):
    """The log has no information on the quantity, so there is no number to return."""

    exit_code = 3


class ClickharvestWarning(UserWarning):
    """Base of the library's warnings; the command line prints each once, as one line on standard error."""


class HarvestWarning(ClickharvestWarning):
    """Part of the log was left out or looks unlike what the options say; the result is still valid."""


class ConvergenceWarning(ClickharvestWarning):
    """A fit did not reach its optimum; the message says what to try."""
