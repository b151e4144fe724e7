"""Built-in event handlers. A connector names one of these or one of another distribution.

A handler is one module, with its configuration in the docstring; `stored`, `views` and `writes`
have what is larger than a module or shared by several handlers.
"""
