"""Elements and components that an expression reads or an assignment writes."""
