"""Profiles of hypothesis: `make fuzz` asks for many more inputs than the tests."""

from hypothesis import HealthCheck, settings

# With their variants, and over all targets of test_fuzz.py, this is more than 100,000 inputs.
FUZZ_EXAMPLES = 900
settings.register_profile(
    "fuzz",
    max_examples=FUZZ_EXAMPLES,
    derandomize=False,  # other inputs every time; a failure prints how to repeat it
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
