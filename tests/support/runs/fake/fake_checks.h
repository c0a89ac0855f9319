/* What a fake run (support/runs/fake/fake_run.h) must leave. What is not so fails the test. */
#ifndef FL_TESTS_SUPPORT_RUNS_FAKE_FAKE_CHECKS_H
#define FL_TESTS_SUPPORT_RUNS_FAKE_FAKE_CHECKS_H

#include "support/runs/fake/fake_run.h"

/* `part` is in `text`, or in a file of the run. */
void assert_contains(const char *text, const char *part);
void assert_file_contains(const fake_run *run, const char *file, const char *part);

/* All workers have ended, and only the files of a run are left. */
void assert_nothing_left(const fake_run *run);

/* events.jsonl is lines of JSON, in the order of time, among them these [n] in this order. */
void check_events_file(const fake_run *run, const char *const *names, int n);

/* Run it to its end; what became of it. */
fake_outcome play(fake_run *run);

#endif
