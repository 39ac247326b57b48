"""Run reader studies: pages on which readers score, and the collection of their answers."""
