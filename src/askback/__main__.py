"""`python -m askback`."""

import sys

# Python puts the working directory first, where anybody's repository may hold a module with the name of one of ours.
if not sys.flags.safe_path:
    del sys.path[0]

from askback.cli.main import main

main()
