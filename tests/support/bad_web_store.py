"""Ways to be wrong while objects are stored by STOW-RS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from bad_web import (
    _JSON,
    Reply,
    Server,
    _hooked,
    behaviour,
    listed,
    outcome,
    stored_uids,
)
from misbehaving import PATIENT

# --- STOW-RS -------------------------------------------------------------------------------------


def _stowing(
    name: str, answer: Callable[[list[str]], Reply], keep: bool, expect: str = "refused"
) -> None:
    def script(server: Server) -> None:
        def store(request: Any) -> Reply:
            uids = stored_uids(request)
            if keep:
                server.truth.kept.update(dict.fromkeys(uids, PATIENT))
            return answer(uids)

        server.store = store

    script.__name__ = name
    behaviour("store", expect)(script)


_stowing("store_honestly", lambda uids: (200, _JSON, outcome(uids)), True, "done")
_stowing("store_with_202", lambda uids: (202, _JSON, outcome(uids)), True, "done")
_stowing("store_lists_failures", lambda uids: (200, _JSON, outcome([], uids)), False)
_stowing("store_lists_failures_with_202", lambda uids: (202, _JSON, outcome([], uids)), False)
_stowing("store_lists_failures_with_409", lambda uids: (409, _JSON, outcome([], uids)), False)
_stowing("store_lists_both", lambda uids: (200, _JSON, outcome(uids, uids)), False)
_stowing("store_lists_another", lambda uids: (200, _JSON, outcome(["1.2.3"])), False)
_stowing("store_says_yes_and_keeps_nothing", lambda uids: (200, _JSON, outcome(uids)), False)
_stowing("store_says_nothing", lambda uids: (200, _JSON, b"{}"), False)
_stowing("store_lists_in_no_type", lambda uids: (200, "text/plain", outcome(uids)), False)
_stowing("store_answers_a_list", lambda uids: (200, _JSON, b"[" + outcome(uids) + b"]"), False)
_stowing(
    "store_answers_xml_bomb",
    lambda uids: (
        200,
        "application/dicom+xml",
        b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><a>&b;</a>',
    ),
    False,
)
_hooked("proof_says_500", "instances", (500, "text/plain", b""), "store")
_hooked("proof_lists_nothing", "instances", (204, _JSON, b""), "store")
_hooked("proof_lists_another", "instances", listed({"00080018": ("UI", "1.2.3")}), "store")
_hooked("store_for_another_patient", "studies", lambda request: None, "store")


@behaviour("store")
def store_for_a_stranger(server: Server) -> None:
    study = server.truth.study[0].StudyInstanceUID
    reply = listed({"00100020": ("LO", "P-002"), "0020000D": ("UI", study)})
    server.studies = lambda request: reply


@behaviour("store")
def store_where_the_study_is_there_twice(server: Server) -> None:
    study = server.truth.study[0].StudyInstanceUID
    one = {"00100020": ("LO", PATIENT), "0020000D": ("UI", study)}
    server.studies = lambda request: listed(one, one)


@behaviour("store")
def store_refuses_the_second(server: Server) -> None:
    def store(request: Any) -> Reply:
        return (503, "text/plain", b"") if server.truth.kept else server.honest_store(request)

    server.store = store


@behaviour("store")
def store_keeps_and_closes(server: Server) -> None:
    def store(request: Any) -> None:
        server.honest_store(request)
        request.connection.shutdown(socket.SHUT_RDWR)

    server.store = store
