"""Imports the modules that `import kernelab` needs with garbage collection paused.

What is imported stays, so there is none; but the many new objects would have Python look for it again and
again, which took a fifth of the time.
"""

import gc
from importlib import import_module

_collects = gc.isenabled()
gc.disable()
try:
    for _name in ("func", "views", "autodiff.checks.rule_check"):
        import_module(f"kernelab.{_name}")  # which load nearly all others
finally:
    if _collects:
        gc.enable()
