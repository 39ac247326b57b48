"""Provide rankers, which learn to order rows, from labelled rows alone or also from unlabelled rows
([W14]).
"""
