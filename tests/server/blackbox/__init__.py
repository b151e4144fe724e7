"""The server as external clients see it: their libraries, invalid input, and misbehaviour."""
