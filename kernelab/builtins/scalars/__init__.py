"""Operations on numbers: arithmetic, functions, conversions."""
