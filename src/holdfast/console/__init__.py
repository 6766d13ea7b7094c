"""The console: pages about queues, jobs, workers and nodes, served by the gateway to a person's browser."""
