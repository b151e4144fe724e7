"""The layers around the application: access log, CORS, authentication, admission, timeouts, bodies.

What holds for every request, whatever its route, belongs here.
"""
