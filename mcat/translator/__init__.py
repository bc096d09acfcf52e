"""Finding, on a changed machine, the action with the same effect as on the old one.

Works from arrays alone: nothing here imports a simulator.
"""
