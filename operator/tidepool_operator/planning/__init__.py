"""Decisions, as pure functions of what is known: who lends to whom, how much, and what is to change for it."""
