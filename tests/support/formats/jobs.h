/* Jobs from texts and back, for tests. Anything that goes wrong fails the test. */
#ifndef FL_TESTS_SUPPORT_FORMATS_JOBS_H
#define FL_TESTS_SUPPORT_FORMATS_JOBS_H

#include "launcher/job/job.h"

fl_job parsed_job(const char *text);

/* As a job file has it, and loaded from there. */
fl_job written_and_loaded_job(const fl_job *job);

/* The same values in all fields, wherever they come from. */
void assert_same_job(const fl_job *a, const fl_job *b);

#endif
