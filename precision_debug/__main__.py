"""python -m precision_debug"""

import sys

try:
    from precision_debug.cli import main

    status = main()
except KeyboardInterrupt:  # before main() could say so itself: imports take a moment
    sys.stderr.write("precision_debug: interrupted\n")
    status = 3
sys.exit(status)
