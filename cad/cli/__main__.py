"""Let ``python -m cad.cli`` be the command."""

from cad.cli import main

main()
