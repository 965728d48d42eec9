"""`python -m verify`: the same as `attnproof`, also from an uninstalled source tree."""

import sys

from verify.cli import main

sys.exit(main())
