"""The job in the words in which it is described, one file a stage.

A stage is a function from values to values and the only writer of its artefact
(:data:`cad.run_folder.folder.WRITERS`). Data flows down: none opens another's file to change it.
"""
