"""`python -m glmv` is the `glmv` command."""

import sys

from glmv.cli import main

sys.exit(main())
