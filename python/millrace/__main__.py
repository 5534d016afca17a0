"""``python -m millrace``, and what the command ``millrace`` calls."""

import os
import signal

# Until there is somebody to catch KeyboardInterrupt, an interrupt is a quiet end, as for other programs.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from millrace.launch import heart

heart.begin(os.environ)  # before the rest is imported

from millrace.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
