"""What can be asked on the command line, one module a subject; each has an `app` of its commands.

A module is loaded when one of its commands is called (see `cli.COMMANDS`), so it imports what computes
inside the functions.
"""
