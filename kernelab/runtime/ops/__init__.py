"""Operations on whole arrays, which are launches of kernels."""
