"""The pipeline under faults: `make show PART=pipeline ONLY=chaos`.

Read __main__ for the story, app for the driver that dies.
"""
