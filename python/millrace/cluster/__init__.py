"""Everything that has ranks: messages, membership, failure detection, partitions, remote slots, output by several nodes."""
