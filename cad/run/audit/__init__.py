"""Records of what was done to whom: audit trail, removal, withdrawal."""
