"""What users are told: phases, conditions and figures, derived from what was decided and what came of it."""
