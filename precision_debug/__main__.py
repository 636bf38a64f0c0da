"""python -m precision_debug"""

import sys

from precision_debug.cli import main

sys.exit(main())
