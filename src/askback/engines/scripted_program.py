"""The program behind the engine `scripted`: started by its path, in a Python that sees nothing of the user's.

What it does is in `scripted_player`, so that it is compiled once and not at every start.
"""

import sys


def _main() -> int:
    # Behind the standard library: of our own folder only `askback` is meant to be found.
    sys.path.append(__file__.rpartition("/askback/")[0])
    from askback.engines.scripted_player.play import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
