"""Let ``python -m cad`` be the command."""

from cad.cli import main

if __name__ == "__main__":
    main()
