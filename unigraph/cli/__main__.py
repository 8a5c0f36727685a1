"""``python -m unigraph.cli``."""

import sys

from . import main

sys.exit(main())
