"""The records of tapes and transforms: programs, launches, adjoint buffers."""
