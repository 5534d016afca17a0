"""``python -m millrace``, and what the command ``millrace`` calls."""

import _signal  # type: ignore[import-not-found]  # what `signal` is made of: no file is read for it
import os

# Until there is somebody to catch KeyboardInterrupt, an interrupt is a quiet end, as for other programs. No other file is
# read before: a traceback would be all that a user sees of a quick Ctrl-C.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc

# Imports make many objects and no garbage; a run turns collection on again.
gc.disable()

from millrace.host.python_launch import move_user_modules_last  # noqa: E402

move_user_modules_last(os.environ)  # before anything is imported that may be there, too

from millrace.launch import heartbeat  # noqa: E402

heartbeat.start_heartbeat(os.environ)  # before the rest is imported

from millrace.cli import main  # noqa: E402

gc.freeze()  # nor is it garbage at the end

if __name__ == "__main__":
    main()
