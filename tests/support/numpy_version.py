"""What the NumPy that runs here can do, for tests that need it."""

import numpy as np

# In older versions of NumPy a view that `np.from_dlpack` makes refuses writes.
DLPACK_IS_WRITABLE = np.from_dlpack(np.zeros(1)).flags.writeable
