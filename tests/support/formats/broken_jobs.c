#include "support/formats/broken_jobs.h"

#include "launcher/job/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void expect_refusal(const char *text, size_t size, const char *set, const char *message)
{
    fl_job before, job;
    fl_job_defaults(&before);
    job = before;
    fl_status status = fl_job_parse("job.yaml", text, size, &set, set == NULL ? 0 : 1, &job);
    if (status != FL_EINVAL || strcmp(fl_errmsg(), message) != 0) {
        fail_msg("for\n%s%s\nexpected %s\ngot (%s)  %s", text, set == NULL ? "" : set, message,
                 fl_status_text(status), fl_errmsg());
    }
    assert_memory_equal(&job, &before, sizeof job);
}
