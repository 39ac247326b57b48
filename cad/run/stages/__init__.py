"""The stages of a run, one module each: load, extract, aggregate, validate, train, predict, emit.

A stage is a function from values to values, and the only one that writes its files in the run
folder (:data:`cad.folders.run_folder.folder.WRITERS`). No stage changes a file of another.
"""
