"""Perfusion: from dynamic signal to kinetic parameters."""
