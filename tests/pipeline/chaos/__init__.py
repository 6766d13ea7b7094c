"""The pipeline under faults: `make chaos-pipeline`. Read __main__ for the story, app for the driver that dies."""
