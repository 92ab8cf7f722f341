"""`python -m askback`."""

import sys

# Python puts the working directory first, where a repository may contain a module with the name of one that we import.
if not sys.flags.safe_path:
    del sys.path[0]

from askback.cli.main import main

main()
