/* The worker of a fake run (support/runs/fake/fake_run.h). */
#ifndef FL_TESTS_SUPPORT_RUNS_FAKE_FAKE_WORKER_H
#define FL_TESTS_SUPPORT_RUNS_FAKE_FAKE_WORKER_H

#include "control/state/birth.h"

/* For fl_controller_options: context is the fake_run. Returns the exit code. */
int fake_worker_main(void *context, const fl_worker_birth *birth, const char *endpoint);

#endif
