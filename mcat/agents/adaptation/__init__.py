"""Which policy does a changed machine need, given logs, a source policy and a few real steps?"""
