"""``python -m softmargin``."""

import sys

from softmargin.cli import main

if __name__ == "__main__":
    sys.exit(main())
