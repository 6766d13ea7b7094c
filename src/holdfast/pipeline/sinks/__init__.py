"""Tables become jobs: rows are read as jobs (`rows.py`) and added by the writers that Spark calls (`writer.py`)."""
