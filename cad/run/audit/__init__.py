"""Record in an audit trail what was predicted and sent, and withdraw a patient's data."""
