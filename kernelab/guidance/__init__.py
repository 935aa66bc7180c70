"""Migration advice: names that users know from other libraries, with what to write instead."""
