/* What tests of whole runs share: a folder, a job's fields, and what a run must leave. */
#ifndef FL_TESTS_SUPPORT_RUNS_RUNS_H
#define FL_TESTS_SUPPORT_RUNS_RUNS_H

#include "support/folder.h"

#include <frostline.h>

#include <sys/types.h>

/* In a process of the test's own: say what went wrong, and end it. */
void must(fl_status status);

/* One field of a job, which must be right. */
void set(fl_job *job, const char *path, int value);

/* devices.kind as FL_TEST_DEVICE of the environment has it, and autodp.transport as
 * FL_TEST_TRANSPORT; without them, as they are. */
void set_test_device(fl_job *job);

/* From here on this process prints nothing on standard output. */
void hush(void);

/* A new, empty folder, and away with it: fixtures of cmocka, which take no notice of `state`. One
 * at a time. */
extern char root[FOLDER_SIZE];
int make_root(void **state);
int remove_root(void **state);

/* Wait for a child, which must exit with 0. */
void check_ended_well(pid_t child);

/* The run in `dir` used each of n_samples once in each of n_epochs, by its ledger. */
void check_exactly_once(const char *dir, int64_t n_epochs, int64_t n_samples);

#endif
