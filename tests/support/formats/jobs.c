#include "support/formats/jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

fl_job parsed_job(const char *text)
{
    fl_job job;
    fl_status status = fl_job_parse("job.yaml", text, strlen(text), NULL, 0, &job);
    if (status != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return job;
}

void assert_same_job(const fl_job *a, const fl_job *b)
{
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        char left[FL_FIELD_VALUE_MAX], right[FL_FIELD_VALUE_MAX];
        fl_field_format(fl_schema_field(i), a, left);
        fl_field_format(fl_schema_field(i), b, right);
        assert_string_equal(left, right);
    }
    assert_memory_equal(a, b, offsetof(fl_job, origins)); /* all values, and nothing behind them */
}

fl_job written_and_loaded_job(const fl_job *job)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    assert_int_equal(fl_job_write(job, stream), FL_OK);
    fclose(stream);
    fl_job again;
    if (fl_job_parse("written", text, size, NULL, 0, &again) != FL_OK) {
        fail_msg("%s in\n%s", fl_errmsg(), text);
    }
    free(text);
    return again;
}
