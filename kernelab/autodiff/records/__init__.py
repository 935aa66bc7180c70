"""What a tape and a transform remember of launches: programs, records, adjoint buffers."""
