"""``python -m millrace``."""

import os

from millrace.launch import heart

heart.begin(os.environ)  # before the rest is imported

from millrace.cli import main  # noqa: E402

main()
