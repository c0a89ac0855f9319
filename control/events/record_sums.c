#include "control/events/record_sums.h"

#include "control/state/options.h"
#include "device/system/files/regular_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* BEHIND_BYTES: where the event of the checkpoint is searched, which comes once it is durable. */
enum { LINE_BYTES_MAX = 16 * 1024, BEHIND_BYTES = 64 * 1024 };

static bool is_event(const json_t *line, const char *name)
{
    const char *found = json_string_value(json_object_get(line, "event"));
    return found != NULL && strcmp(found, name) == 0;
}

static double real_of(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key)); /* 0 if it is absent */
}

static int64_t integer_of(const json_t *line, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(line, key));
}

/* The event of a checkpoint from which the run has continued was cut off; run.resumed names it. */
static bool continues_from_one(const json_t *line)
{
    const char *from = json_string_value(json_object_get(line, "checkpoint"));
    return is_event(line, "run.resumed") && from != NULL && strstr(from, "snapshot") == NULL &&
           strcmp(from, FL_RESUME_START) != 0;
}

static void add_line(const json_t *line, fl_record_sums *sums)
{
    sums->n_written += is_event(line, "checkpoint.written") || continues_from_one(line);
    sums->n_failed += is_event(line, "checkpoint.failed");
    if (is_event(line, "run.recovered") || is_event(line, "run.returned")) {
        sums->without_training_s = real_of(line, "without_training_ms") * 1e-3;
    }
}

static void add_own(const json_t *line, int64_t step, fl_record_sums *sums)
{
    if (is_event(line, "checkpoint.written") && integer_of(line, "step") == step) {
        sums->bytes = integer_of(line, "bytes");
        sums->linked_bytes = integer_of(line, "linked_bytes");
        sums->seconds =
            (real_of(line, "copy_ms") + real_of(line, "write_ms") + real_of(line, "commit_ms")) *
            1e-3;
    }
}

/* Most lines are of other events, and long ones are. */
static json_t *read_object(const char *text, size_t n)
{
    bool wanted = strstr(text, "\"event\": \"checkpoint.") != NULL ||
                  strstr(text, "\"event\": \"run.re") != NULL;
    return wanted && n > 0 && text[n - 1] == '\n' ? json_loadb(text, n, 0, NULL) : NULL;
}

static void read_lines(FILE *file, const fl_runfiles_place *place, fl_record_sums *sums)
{
    char text[LINE_BYTES_MAX];
    int64_t at = 0;
    while (at < place->events_bytes + BEHIND_BYTES && fgets(text, sizeof text, file) != NULL) {
        json_t *line = read_object(text, strlen(text));
        if (line != NULL && at < place->events_bytes) {
            add_line(line, sums);
        } else if (line != NULL) {
            add_own(line, place->step, sums);
        }
        json_decref(line);
        at = ftello(file);
    }
}

void fl_record_sums_read(int dir_fd, const fl_runfiles_place *place, fl_record_sums *out)
{
    int fd = fl_regular_file_open(dir_fd, fl_runfile_name(FL_RUNFILE_EVENTS), NULL);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    *out = (fl_record_sums){.n_written = 1};
    if (file != NULL) {
        read_lines(file, place, out);
        fclose(file);
    } else if (fd >= 0) {
        close(fd);
    }
}
