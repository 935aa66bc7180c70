"""The IPython extension: ``%load_ext kernelab`` and its undoing.

The only package that may import IPython and the notebook's libraries.
"""

from IPython.core.interactiveshell import InteractiveShell

from kernelab.jupyter.extension import Extension

_NAME = "_kernelab_extension"


def load(shell: InteractiveShell) -> None:
    """Give a shell the magic, completion and inspection; a shell that has them stays as it is."""
    if getattr(shell, _NAME, None) is None:
        extension = Extension(shell)
        extension.install()
        setattr(shell, _NAME, extension)


def unload(shell: InteractiveShell) -> None:
    """Take away everything that `load` gave."""
    extension: Extension | None = getattr(shell, _NAME, None)
    if extension is not None:
        extension.remove()
        setattr(shell, _NAME, None)
