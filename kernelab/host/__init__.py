"""Values of the language on the host: numbers, vectors and matrices of NumPy, and their provenance.

Importing this package lets the types be called.
"""

from kernelab.host.making import install

install()
