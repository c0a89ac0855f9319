#include "launcher/cli/use_args.h"

#include "launcher/cli/job_context.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *volatile unfinished; /* a file to remove */

/* Until workers run there is nothing to end but this process. */
static void end_process(int number)
{
    (void)number;
    if (unfinished != NULL) {
        unlink(unfinished);
    }
    _exit(FL_EXIT_STOPPED);
}

void fl_use_unlink_at_signal(const char *path)
{
    unfinished = path == NULL || path[0] == '\0' ? NULL : path;
}

fl_status fl_use_open_args(const fl_args *args, bool predicts, fl_use *out)
{
    const char *overrides[FL_ARGS_MAX + 1], *data = fl_args_value(args, "--data");
    const char *split = fl_args_value(args, "--split");
    char data_path[FL_TEXT_MAX + 16];
    fl_use_request request = {.model = args->operand,
                              .checkpoint = fl_args_value(args, "--checkpoint"),
                              .job = args->n_operands > 1 ? args->operands[1] : NULL,
                              .overrides = overrides,
                              .predicts = predicts};
    if (args->n_operands > 2) {
        return fl_fail(FL_EINVAL, "unexpected %.64s; allowed: MODEL [JOB.yaml]", args->operands[2]);
    }
    if (split != NULL) {
        FL_TRY(fl_use_split_parse(split, &request.split));
    }
    for (int i = 0; i < args->n_given; i++) {
        if (strcmp(args->given[i].option->name, "--set") == 0) {
            overrides[request.n_overrides++] = args->given[i].value;
        }
    }
    if (data != NULL) {
        if (snprintf(data_path, sizeof data_path, "data.path=%s", data) >= (int)sizeof data_path) {
            return fl_fail(FL_EINVAL, "--data: found a path of %zu bytes, allowed: at most %d",
                           strlen(data), FL_TEXT_MAX - 1);
        }
        overrides[request.n_overrides++] = data_path;
    }
    signal(SIGTERM, end_process);
    signal(SIGINT, end_process);
    fl_status status = fl_use_open(&request, out);
    if (status == FL_OK) {
        fl_use_say_choice(&out->saved);
    }
    return status;
}

void fl_use_say_choice(const fl_saved_model *saved)
{
    size_t n = strlen(saved->note);
    if (n > 0) {
        fl_complain("%.*s", (int)n - 1, saved->note); /* without the last newline */
    }
}

int fl_use_finish(fl_status status)
{
    return fl_job_context_finish(status);
}
