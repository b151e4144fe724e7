"""The layers around the application: access log, CORS, authentication, admission, timeouts, bodies.

Code that applies to every request, whatever its route, belongs here.
"""
