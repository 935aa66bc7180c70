"""What the installed NumPy does that an older one did not."""

import numpy as np

DLPACK_IS_WRITABLE = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
"""NumPy 2.0 gives arrays that cannot be written for what it takes by DLPack."""
