"""A user's mistake, and how a tool reports it: one line on stderr and exit status 2, never a traceback."""

import argparse
import functools
import os
import sys


class UserError(Exception):
    """What is wrong, where, and what to do: the message is shown as it stands."""


def command(main):
    """Decorate a tool's `main(argv=None)`: a UserError, or what the system says of a file, becomes one line and exit
    status 2; Ctrl-C exits with 130, and so, without a word, does a reader of the output that went away."""

    @functools.wraps(main)
    def run(argv=None):
        try:
            return main(argv)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not tried again at exit
            return 130
        except OSError as error:
            print(f"error: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
            return 130

    return run


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, like every other mistake, instead of a usage text."""

    def error(self, message):
        raise UserError(f"{message} (see --help)")
