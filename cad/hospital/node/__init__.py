"""Run a hospital node: a service to which studies come by DICOM, and which sends results back.

:mod:`cad.hospital.node.receiver` and :mod:`cad.hospital.node.watch` put arriving instances into
:mod:`cad.hospital.node.inbox`. :mod:`cad.hospital.node.queue` stores the state of every study on
disk. :mod:`cad.hospital.node.service` moves studies on, by :mod:`cad.hospital.node.compute` and
:mod:`cad.hospital.node.send`. :mod:`cad.hospital.node.status` shows the states.
"""
