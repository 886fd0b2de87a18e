"""What a run was worth: answers matched, texts compared, intervals put on every figure. Only here is gold read."""
