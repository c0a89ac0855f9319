# Tests that fork workers, and tests of more than a few seconds. All others are unit tests.
set(FL_TESTS_MULTIPROC
)
set(FL_TESTS_SLOW
)
