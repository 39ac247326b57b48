"""The papers' tables, the public cohorts, and the simulator."""
