"""The entry point of the program. It is started by the path of this file, in an isolated Python."""

import sys


def _main() -> int:
    # The folder above this one makes `program` a separate package: importing it as a part of Askback would import the
    # engine as well, which takes longer than most turns. Last in the path, so that it hides nothing.
    sys.path.append(__file__.rsplit("/", 2)[0])
    from program.play import main  # type: ignore[import-not-found]

    return int(main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(_main())
