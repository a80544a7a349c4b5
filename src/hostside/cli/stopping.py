"""How a command ends that did not succeed: one line that says what, one that says what to do, and an exit code."""

import errno
import os
import sys

from hostside.cli.output import note, plain, print_json
from hostside.errors import ConfigError, HostsideError, RegistrationError, ToolFailed, ToolRefused

DONE, FAILED, USAGE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130
DEBUG = "HOSTSIDE_DEBUG"
_DEFAULT_REMEDY = "Run `hostside doctor`: it checks the state folder, the store and what runs need."


class CommandFailed(HostsideError):
    """A command cannot do what it was asked to. `code` is a stable word."""

    def __init__(self, code: str, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


def not_found(what: str, name: str, *, remedy: str) -> CommandFailed:
    """Return the end of a command whose object does not exist."""
    return CommandFailed("not_found", f"there is no {what} {name}.", remedy=remedy)


def exit_code_of(error: BaseException, *, as_json: bool) -> int:
    """Show why a command ended, and return its exit code. Ctrl-C and a reader that has left are quiet."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        _forget_output()
        return FAILED
    if hasattr(error, "exit_code"):  # what the command line's framework raises
        return _usage(error, as_json=as_json)
    if not isinstance(error, Exception) or os.environ.get(DEBUG):
        raise error
    code, message, remedy = _explained(error)
    return stop(code, message, remedy, as_json=as_json, exit_code=_exit_code(error))


def stop(code: str, message: str, remedy: str, *, as_json: bool, exit_code: int) -> int:
    """Print the error, with `--json` on standard output too, and return `exit_code`."""
    note(plain(f"error: {message}"))
    note(plain(f"  try: {remedy}"))
    if as_json:
        print_json({"ok": False, "error": {"code": code, "message": message, "remedy": remedy}})
    return exit_code


def _explained(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, ConfigError | CommandFailed):
        return error.code, error.message, error.remedy
    if isinstance(error, ToolRefused | ToolFailed):
        return error.code.value, str(error), error.remedy or _DEFAULT_REMEDY
    if isinstance(error, RegistrationError):
        return "invalid_tool", str(error), "This is a bug of the tool that is named; report it to its author."
    if isinstance(error, HostsideError):
        return "failed", str(error), getattr(error, "remedy", "") or _DEFAULT_REMEDY
    # Its text may hold anything, so only its kind is shown.
    return "internal_error", f"{type(error).__name__} inside hostside", f"Set {DEBUG}=1 to see where, and report it."


def _exit_code(error: Exception) -> int:
    if isinstance(error, ConfigError):
        return USAGE
    return REFUSED if isinstance(error, ToolRefused) else FAILED


def _usage(error: BaseException, *, as_json: bool) -> int:
    exit_code = int(getattr(error, "exit_code", FAILED))
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        note(message)
        return exit_code
    command = "hostside" if context is None else context.command_path
    return stop("usage", message, f"{command} --help", as_json=as_json, exit_code=exit_code)


def _forget_output() -> None:
    """Point standard output at nothing, so that what is still buffered fails no second time at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
