"""Other people's trainers and trackers: callbacks that record into a run, sinks that mirror the store outwards.

Each module needs the library that it is named after and is imported by its full name; nothing here is imported by the
rest of the package.
"""
