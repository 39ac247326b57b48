"""The hospital node: a study comes by DICOM, its result goes back, and nobody types a command.

:mod:`cad.node.receiver` and :mod:`cad.node.watch` put what arrives into :mod:`cad.node.inbox`;
:mod:`cad.node.queue` says on disk how far every study is; :mod:`cad.node.service` moves them on by
:mod:`cad.node.compute` and :mod:`cad.node.send`, and :mod:`cad.node.status` shows it.
"""
