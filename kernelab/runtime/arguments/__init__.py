"""The arguments of a launch: checked, converted, flattened and packed."""
