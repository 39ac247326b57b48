"""The simulator behind ``cad simulate`` and ``sample_data``: prostates whose truth is known."""

from cad.evidence.phantom.simulator import latent_auc, simulate

__all__ = ["latent_auc", "simulate"]
