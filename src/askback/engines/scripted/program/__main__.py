"""Where the program starts: by this file's path, in a Python that sees nothing of the user's."""

import sys


def _main() -> int:
    # Last, so that of all that lies there only our own package can be meant.
    sys.path.append(__file__.rpartition("/askback/")[0])
    from askback.engines.scripted.program.play import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
