"""What host code makes and calls: arrays, structs, words of the language."""
