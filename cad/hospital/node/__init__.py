"""The hospital node: a study comes by DICOM, its result goes back, and nobody types a command.

:mod:`cad.hospital.node.receiver` and :mod:`cad.hospital.node.watch` put what arrives into
:mod:`cad.hospital.node.inbox`; :mod:`cad.hospital.node.queue` says on disk how far every study is;
:mod:`cad.hospital.node.service` moves them on by :mod:`cad.hospital.node.compute` and
:mod:`cad.hospital.node.send`, and :mod:`cad.hospital.node.status` shows it.
"""
