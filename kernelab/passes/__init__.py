"""Functions from IR to IR, or from IR to facts.

Passes know the IR and nothing of the table: what an operation means arrives on `Let.op`.
"""
