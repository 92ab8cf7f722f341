"""The entry point of the program. It is started by the path of this file, in an isolated Python."""

import sys


def _main() -> int:
    # With the parent folder on the path, `program` is a top-level package: importing it as a part of Askback would also
    # import the engine, which takes longer than most turns. Appended last, so that it shadows nothing.
    sys.path.append(__file__.rsplit("/", 2)[0])
    from program.play import main  # type: ignore[import-not-found]

    return int(main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(_main())
