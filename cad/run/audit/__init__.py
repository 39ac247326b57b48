"""Keep records of patients' studies: the audit trail, and withdrawal of a patient."""
