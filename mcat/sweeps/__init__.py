"""Many runs, and what became of them: plans, the folders of sweeps, and what starts runs.

A plan says which runs there shall be. Each has a folder of its own, and that folder is the only
truth about it: whoever looks at it, on whatever machine, sees the same state. Engines only start
commands, so a killed driver, a dead node and a full disk are all mended by looking again.
"""
