#include "launcher/run/model/plugin_call.h"

#include "device/errors/failure.h"
#include "launcher/job/job.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FAILED = 3, STACK_BYTES = 64 << 10 }; /* FAILED: see docs/exit-codes.md */

static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

enum { N_CRASHES = sizeof crashes / sizeof *crashes };

/* For the signal handler alone, which gets no argument of ours. */
static const char *crash_text;

static void write_text(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* Only async-signal-safe calls: the crash may be inside malloc. */
static void end_crashed(int number)
{
    write_text(crash_text);
    write_text(number == SIGSEGV  ? "SIGSEGV"
               : number == SIGBUS ? "SIGBUS"
               : number == SIGFPE ? "SIGFPE"
               : number == SIGILL ? "SIGILL"
                                  : "SIGABRT");
    write_text("\n");
    _exit(FAILED);
}

/* The message of a crash, but for the signal. Leaves fl_errmsg() empty: neither this message nor an
 * earlier one is the plugin's. */
static fl_status prepare_text(const fl_job *job, const char *what, char *text, size_t size)
{
    fl_status crash = fl_fail_field(FL_EFAILED, FL_FIELDS("model.plugin"),
                                    "%s: %s was killed by signal ", job->model.plugin, what);
    crash = fl_job_locate(job, crash);
    snprintf(text, size, "%s", crash == FL_OK ? "" : fl_errmsg());
    return fl_fail(FL_OK, "%s", "");
}

typedef struct crash_guard {
    char text[FL_FAILURE_TEXT_MAX + 64];
    struct sigaction before[N_CRASHES];
    stack_t usual;
} crash_guard;

/* From here to lift_guard, a crash ends the process with a message that begins with `what`. */
static fl_status set_guard(crash_guard *guard, const fl_job *job, const char *what)
{
    static char stack[STACK_BYTES]; /* a recursion without end leaves none of the usual one */
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = end_crashed, .sa_flags = SA_ONSTACK};
    FL_TRY(prepare_text(job, what, guard->text, sizeof guard->text));
    crash_text = guard->text;
    sigaltstack(&own, &guard->usual);
    for (int i = 0; i < N_CRASHES; i++) {
        sigaction(crashes[i], &action, &guard->before[i]);
    }
    return FL_OK;
}

static void lift_guard(const crash_guard *guard)
{
    for (int i = 0; i < N_CRASHES; i++) {
        sigaction(crashes[i], &guard->before[i], NULL);
    }
    sigaltstack(&guard->usual, NULL);
    crash_text = NULL;
}

fl_status fl_plugin_load(const fl_job *job, const char *path, void **handle)
{
    crash_guard guard;
    FL_TRY(set_guard(&guard, job, "loading it"));
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    lift_guard(&guard);
    return *handle != NULL ? FL_OK : fl_fail(FL_EINVAL, "%s", dlerror());
}

fl_status fl_plugin_call(fl_plugin_entry *create, const fl_job *job, fl_model **model,
                         fl_dataset *dataset)
{
    crash_guard guard;
    FL_TRY(set_guard(&guard, job, "its create function"));
    fl_status status = create(job, model, dataset);
    lift_guard(&guard);
    return status;
}
