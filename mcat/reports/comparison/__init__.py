"""The report that compares many runs: which variant earns more, and how sure is that?"""
