"""What others offer: brokers and task libraries that `bench.clients` measures beside ours."""
