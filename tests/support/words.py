"""What the JupyterLab extension highlights, `extension/src/lab/words.json`: options, types and operations.

Write it again with ``python -m tests.support.words > extension/src/lab/words.json``.
"""

import json

from kernelab.frontend.meaning.annotations import DIMENSIONS
from kernelab.frontend.meaning.meanings import TypeRef
from kernelab.frontend.meaning.name_lookup import PREFIXES, language
from kernelab.jupyter.magics import OPTIONS


def page() -> str:
    """The words of the language as JSON, sorted."""
    words = language()
    types = {word for word, meaning in words.items() if isinstance(meaning, TypeRef)} | DIMENSIONS.keys()
    listed = {"prefixes": PREFIXES, "options": OPTIONS, "types": types, "operations": words.keys() - types}
    return json.dumps({kind: sorted(of_kind) for kind, of_kind in listed.items()}, indent=2) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
