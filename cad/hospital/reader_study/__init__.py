"""Run reader studies: write pages on which readers score, and collect the readers' answers."""
