"""Simulate MRI of prostates whose truth is known, for ``cad simulate`` and ``sample_data``."""

from cad.evidence.phantom.simulator import latent_auc, simulate

__all__ = ["latent_auc", "simulate"]
