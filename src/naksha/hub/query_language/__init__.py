"""The language of the REST API's query strings, parsed into plain data: no I/O, no SQL."""
