"""Run the command ``cad`` when Python is started as ``python -m cad.cli``."""

from cad.cli import main

main()
