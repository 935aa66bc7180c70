"""Operations on vectors and matrices, component by component."""
