"""Chat with a model on this computer: `scribe.chat()`, as on a board, in real MicroPython.

MicroPython runs behind a pseudo-terminal, as a board does behind a serial line: every key goes to it, so Ctrl-C stops
the story and not this tool (or the `make` that started it), and the arrow keys bring back earlier openings. Ctrl-C goes
as a byte, which the prompt looks for after each token: as a signal, it would make MicroPython on a computer jump out of
whatever it is doing, and now and then that is an allocation, after which it hangs.
"""

import json
import os
import select
import signal
import sys

from tools.errors import Parser, UserError, command
from tools.micropython import PATH, ROOT, heap_bytes, micropython
from tools.story import find_model, heap_for

SCRIPT = ROOT / "tools" / "on_device" / "chat.py"
ENOUGH = 3  # times Ctrl-C without a sign of life, and MicroPython is ended
SPARE = 1 << 20  # heap for the conversation, beside what the model needs


def parser():
    p = Parser(prog="python -m tools.chat", description=__doc__.splitlines()[0])
    p.add_argument("--model", default="tales", help="name of a model in weights/, or a path (default: %(default)s)")
    p.add_argument("--heap", type=heap_bytes, help="MicroPython's heap, such as 300k or 8m (default: enough)")
    return p


def serial_like(terminal, interrupts=False):
    """Make a terminal pass bytes on as they are, like a serial line. `interrupts`: Ctrl-C signals its program."""
    import termios

    mode = termios.tcgetattr(terminal)
    mode[0] = mode[1] = 0
    mode[3] = termios.ISIG | termios.NOFLSH if interrupts else 0
    for key in (termios.VQUIT, termios.VSUSP):
        mode[6][key] = b"\0"
    termios.tcsetattr(terminal, termios.TCSANOW, mode)


def carry(user, board):
    """Carry bytes between the user's terminal and the board's until the board's program ends. Returns True where it
    does not, and the user has had ENOUGH of it."""
    watched = [user, board]
    unanswered = 0
    while unanswered < ENOUGH:
        ready, _, _ = select.select(watched, [], [])
        if board in ready:
            try:
                data = os.read(board, 4096)
            except OSError:  # how Linux says that the program ended
                return False
            if not data:
                return False
            unanswered = 0
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]
        if user in ready:
            data = os.read(user, 4096)
            if not data:
                watched.remove(user)
                data = b"\x04"
            unanswered += data.count(b"\x03")
            while data:
                data = data[os.write(board, data) :]
    return True


def in_terminal(arguments, environment):
    """Run MicroPython behind a pseudo-terminal of its own; returns its exit status."""
    import pty
    import termios
    import tty

    user = sys.stdin.fileno()
    before = termios.tcgetattr(user)
    pid, board = pty.fork()
    if not pid:
        serial_like(0)
        os.execve(arguments[0], arguments, environment)
    try:
        tty.setraw(user)
        mode = termios.tcgetattr(user)
        mode[1] = before[1]  # a line feed still goes to the first column
        termios.tcsetattr(user, termios.TCSANOW, mode)
        if carry(user, board):
            os.kill(pid, signal.SIGKILL)
    finally:
        termios.tcsetattr(user, termios.TCSADRAIN, before)
        os.close(board)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status


@command
def main(argv=None):
    args = parser().parse_args(argv)
    path = find_model(args.model)
    terminal = sys.stdin.isatty() and os.name == "posix"
    arguments = [micropython(), "-X", f"heapsize={args.heap or heap_for(path) + SPARE}", str(SCRIPT)]
    request = json.dumps({"path": str(path), "raw": terminal})
    environment = {**os.environ, "MICROPYPATH": PATH, "SCRIBE_CHAT": request}
    sys.stdout.flush()
    if not terminal:
        os.execve(arguments[0], arguments, environment)
    status = in_terminal(arguments, environment)
    if status == -signal.SIGKILL:
        raise UserError(f"MicroPython did not answer Ctrl-C {ENOUGH} times, so it was ended")
    if status < 0:
        raise UserError(f"MicroPython crashed (signal {-status})")
    return status


if __name__ == "__main__":
    sys.exit(main())
