"""`python -m askback`."""

from askback.cli.main import main

main()
