"""Learners and the policies they make; nothing is imported until it is asked for."""
