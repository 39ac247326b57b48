"""Provide rankers: learners of an order, supervised and semi-supervised ([W14])."""
