"""Words, errors, files, processes and settings: what every floor above stands on."""
