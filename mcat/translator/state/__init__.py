"""Machines with different states: the state maps of Appendix E."""
