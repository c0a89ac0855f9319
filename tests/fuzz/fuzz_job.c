/* Any bytes for a job file: no crash, no message without a place, and what is accepted can be
 * written and read back. A first line "#set PATH=VALUE" becomes an override. */
#include "launcher/job/job.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char prefix[] = "#set ";
enum { PREFIX = sizeof prefix - 1, OVERRIDE_MAX = 512 };

/* Returns how many overrides the first line holds, 0 or 1. */
static int take_override(const char *text, size_t size, char override[OVERRIDE_MAX])
{
    if (size < PREFIX || memcmp(text, prefix, PREFIX) != 0) {
        return 0;
    }
    size_t n = 0;
    while (n < OVERRIDE_MAX - 1 && PREFIX + n < size && text[PREFIX + n] != '\n') {
        override[n] = text[PREFIX + n];
        n++;
    }
    override[n] = '\0';
    return 1;
}

static void check_round_trip(const fl_job *job)
{
    char *written = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&written, &size);
    if (stream == NULL) {
        return;
    }
    fl_job again;
    fl_status status = fl_job_write(job, stream);
    fclose(stream);
    if (status != FL_OK || fl_job_parse("again", written, size, NULL, 0, &again) != FL_OK ||
        memcmp(job, &again, offsetof(fl_job, origins)) != 0) {
        fprintf(stderr, "%s\n%s\n", fl_errmsg(), written);
        abort();
    }
    free(written);
}

/* A message is one line of printable text that begins with a place. */
static void check_message(const char *message)
{
    bool placed = strncmp(message, "fuzz:", 5) == 0 || strncmp(message, "--set ", 6) == 0;
    for (const unsigned char *c = (const unsigned char *)message; *c != '\0' && placed; c++) {
        placed = *c >= 0x20 && *c != 0x7F;
    }
    if (!placed) {
        fprintf(stderr, "%s\n", message);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char override[OVERRIDE_MAX];
    const char *overrides[] = {override};
    fl_job job;
    int n = take_override((const char *)data, size, override);
    if (fl_job_parse("fuzz", (const char *)data, size, overrides, n, &job) == FL_OK) {
        check_round_trip(&job);
    } else {
        check_message(fl_errmsg());
    }
    return 0;
}
