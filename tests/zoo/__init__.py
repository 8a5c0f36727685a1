"""Models of real libraries, small and with random weights, that tests and benchmarks share."""
