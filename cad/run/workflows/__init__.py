"""Provide workflows beside the main one: import, check, compare, suggest, maps, outlines,
delivery.
"""
