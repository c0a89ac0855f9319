# Tests that fork workers, and tests of more than a few seconds. All others are unit tests.
set(FL_TESTS_MULTIPROC
  test_commands
  test_freezing
  test_head
  test_net
  test_group
  test_group_faults
  test_message
  test_plans_agree
  test_profile
  test_steps
  test_transition_faults
  test_transitions
)
set(FL_TESTS_SLOW
  test_churn
)
