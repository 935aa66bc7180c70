"""Operations composed of others: norms, rotations, rigid motions, decompositions, random numbers."""
