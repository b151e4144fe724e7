"""Jobs of the data pipeline as objects of the hub: submitted, run out of process by one instance at
a time, watched, cancelled and removed."""
