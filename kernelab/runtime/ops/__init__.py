"""Operations on whole arrays, implemented as launches of kernels."""
