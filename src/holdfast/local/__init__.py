"""A whole Holdfast on one machine: `holdfast up` starts nodes, gateway, a sample application and the data pipeline."""
