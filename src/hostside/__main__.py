"""`python -m hostside`."""

import sys

from hostside.cli.main import main

sys.exit(main())
