"""Real nodes in network namespaces, joined by a switch of our own that loses, delays, doubles and cuts."""
