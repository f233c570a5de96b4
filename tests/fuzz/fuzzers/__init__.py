"""The fuzzers, a module each, as `fuzz.fuzzer` describes them."""
