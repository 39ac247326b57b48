"""Run the stages, each in its own module: load, extract, aggregate, validate, train, predict, emit.

A stage is a step of a run: a function that takes the results of earlier stages and returns its own.
Each file of the run folder is written by one module only
(:data:`cad.folders.run_folder.folder.WRITERS`).
"""
