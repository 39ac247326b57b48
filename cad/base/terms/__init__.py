"""The words of the field: modalities, sectors, text of results. Nothing is computed here."""
