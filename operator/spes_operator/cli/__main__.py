"""`python -m spes_operator.cli` is `spes`."""

import sys

from spes_operator.cli import main

sys.exit(main())
