"""The parts of a run with ranks: messages, membership, failure detection, partitions, remote slots, parallel output."""
