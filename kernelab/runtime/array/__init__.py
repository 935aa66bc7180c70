"""The class `array`: layout, views, copies, gradients, exchange with other libraries."""
