/* frostline check-model: the layers of a job's model against finite differences and the rules of
 * the C API.
 *
 *     for each layer and the loss: fork ──> child: fl_check_model ──(results, one a write)──>
 * parent
 *
 * A layer that crashes or does not return takes only its child with it: the check that it had begun
 * is the one that failed. */
#include "control/events/json.h"
#include "device/system/alloc.h"
#include "device/system/child.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/job_context.h"
#include "launcher/job/text/number.h"

#include <frostline/check.h>

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_S = 60, TIMEOUT_MAX_S = 86400 };

/* What a child writes: results, and at its end how the call itself went. */
typedef struct message {
    bool ends;
    fl_status status;
    fl_check_result result; /* text: the message of a status other than FL_OK */
} message;
_Static_assert(sizeof(message) <= PIPE_BUF, "a message is written whole");

typedef struct checking {
    const fl_job_context *job;
    fl_check_options options;
    int timeout_s;
    fl_json *json;  /* NULL: for people */
    int name_width; /* of the longest name of a layer */
    int n_checks, n_failed;
    fl_check_result *failed; /* [n_failed], for the end of the output */
} checking;

/* ---- output ---- */

static const char *state_text(fl_check_state state)
{
    return state == FL_CHECK_PASSED ? "ok" : state == FL_CHECK_FAILED ? "FAILED" : "-";
}

static void print_line(const fl_check_result *r, int n_layers, int name_width)
{
    char layer[24] = "loss", error[32] = "";
    if (r->layer < n_layers) {
        snprintf(layer, sizeof layer, "layer %d", r->layer);
    }
    if (r->state == FL_CHECK_PASSED && !isnan(r->error)) {
        snprintf(error, sizeof error, "error %.1e", r->error);
    }
    const char *text = error[0] == '\0' ? r->text : error;
    printf("%-9s %-*s %-16s %-24s ", layer, name_width, r->layer_name, r->kind, r->name);
    printf(text[0] == '\0' ? "%s\n" : "%-6s  %s\n", state_text(r->state), text);
}

static void put_json(fl_json *j, const fl_check_result *r, int n_layers)
{
    fl_json_object(j, NULL);
    fl_json_integer(j, "layer", r->layer);
    fl_json_bool(j, "is_loss", r->layer == n_layers);
    fl_json_text(j, "name", r->layer_name);
    fl_json_text(j, "kind", r->kind);
    fl_json_text(j, "check", r->name);
    fl_json_text(j, "state",
                 r->state == FL_CHECK_PASSED   ? "passed"
                 : r->state == FL_CHECK_FAILED ? "failed"
                                               : "skipped");
    fl_json_real(j, "error", r->error);
    fl_json_text(j, "text", r->text);
    fl_json_close(j, '}');
}

static fl_status keep_failed(checking *c, const fl_check_result *r)
{
    size_t n = (size_t)c->n_failed, size = sizeof *r;
    void *larger = c->failed;
    FL_TRY(fl_realloc(&larger, n * size, (n + 1) * size));
    c->failed = larger;
    c->failed[c->n_failed++] = *r;
    return FL_OK;
}

static fl_status show_result(checking *c, const fl_check_result *r)
{
    int n_layers = fl_model_n_layers(c->job->model);
    c->n_checks += r->state != FL_CHECK_SKIPPED;
    if (r->state == FL_CHECK_FAILED) {
        FL_TRY(keep_failed(c, r));
    }
    if (c->json != NULL) {
        put_json(c->json, r, n_layers);
    } else {
        print_line(r, n_layers, c->name_width);
        fflush(stdout);
    }
    return FL_OK;
}

/* The lines of failed checks once more: the first ones may have left the screen. */
static void show_count(const checking *c)
{
    if (c->n_failed > 0) {
        printf("\nfailed:\n");
    }
    for (int i = 0; i < c->n_failed; i++) {
        print_line(&c->failed[i], fl_model_n_layers(c->job->model), c->name_width);
    }
    printf("%d of %d checks failed\n", c->n_failed, c->n_checks);
}

/* ---- the child ---- */

static void send_message(int fd, const message *m)
{
    if (write(fd, m, sizeof *m) != (ssize_t)sizeof *m) {
        _exit(FL_EXIT_DEFECT); /* the parent no longer reads */
    }
}

static void send_result(void *context, const fl_check_result *result)
{
    message m = {.result = *result};
    send_message(*(int *)context, &m);
}

_Noreturn static void check_in_child(const checking *c, int layer, int fd)
{
    fl_check_options options = c->options;
    int n_failed = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    options.layer = layer;
    options.seen = send_result;
    options.context = &fd;
    message m = {.ends = true};
    m.status = fl_check_model(c->job->model, &c->job->dataset, &options, &n_failed);
    if (m.status != FL_OK) {
        snprintf(m.result.text, sizeof m.result.text, "%s", fl_errmsg());
    }
    send_message(fd, &m);
    _exit(FL_EXIT_DONE);
}

/* ---- the parent ---- */

/* The next message; false at the child's end, and (*late) where none came in time. */
static bool read_message(const checking *c, int fd, message *m, bool *late)
{
    struct pollfd in = {.fd = fd, .events = POLLIN};
    int ready = poll(&in, 1, c->timeout_s * 1000);
    while (ready < 0 && errno == EINTR) {
        ready = poll(&in, 1, c->timeout_s * 1000);
    }
    *late = ready == 0;
    return ready > 0 && read(fd, m, sizeof *m) == (ssize_t)sizeof *m;
}

/* The check that was begun last never ended. */
static fl_status show_end(checking *c, fl_check_result *begun, bool late, int wait_status)
{
    begun->state = FL_CHECK_FAILED;
    begun->error = (double)NAN;
    if (late) {
        snprintf(begun->text, sizeof begun->text, "it does not return within %d s", c->timeout_s);
    } else if (WIFSIGNALED(wait_status)) {
        snprintf(begun->text, sizeof begun->text, "it was killed by signal %d (%s)",
                 WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    } else {
        snprintf(begun->text, sizeof begun->text, "it ended the process with exit code %d",
                 WEXITSTATUS(wait_status));
    }
    return show_result(c, begun);
}

static fl_status follow_child(checking *c, pid_t child, int fd)
{
    message m = {.ends = false};
    fl_check_result begun = {.state = FL_CHECK_PASSED};
    bool late = false;
    int wait_status = 0;
    fl_status status = FL_OK;
    while (status == FL_OK && !m.ends && read_message(c, fd, &m, &late)) {
        if (!m.ends && m.result.state == FL_CHECK_BEGUN) {
            begun = m.result;
        } else if (!m.ends) {
            begun.state = FL_CHECK_PASSED;
            status = show_result(c, &m.result);
        }
    }
    if (late || status != FL_OK) {
        kill(child, SIGKILL);
    }
    bool ended = fl_child_await(child, c->timeout_s * 1000, &wait_status);
    FL_TRY(status);
    if (m.ends) {
        return m.status == FL_OK ? FL_OK : fl_fail(m.status, "%s", m.result.text);
    }
    if (begun.state != FL_CHECK_BEGUN) {
        return fl_fail(FL_EINTERNAL,
                       "the process that checks a layer ended before its first check");
    }
    return show_end(c, &begun, late || !ended, wait_status);
}

static fl_status check_layer(checking *c, int layer)
{
    int ends[2];
    fflush(stdout);
    if (pipe(ends) != 0) {
        return fl_fail(FL_EIO, "pipe: %s", strerror(errno));
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        check_in_child(c, layer, ends[1]);
    }
    close(ends[1]);
    fl_status status =
        child < 0 ? fl_fail(FL_EIO, "fork: %s", strerror(errno)) : follow_child(c, child, ends[0]);
    close(ends[0]);
    return status;
}

static fl_status check_layers(checking *c)
{
    int n_layers = fl_model_n_layers(c->job->model);
    if (c->options.layer >= 0) {
        return check_layer(c, c->options.layer);
    }
    for (int i = 0; i <= n_layers; i++) { /* the last is the loss */
        FL_TRY(check_layer(c, i));
    }
    return FL_OK;
}

/* ---- the command ---- */

static fl_status read_count(const fl_args *args, const char *name, int least, int most, int *out)
{
    const char *text = fl_args_value(args, name);
    int64_t value = 0;
    if (text == NULL) {
        return FL_OK;
    }
    if (!fl_read_integer(text, &value) || value < least || value > most) {
        return fl_fail(FL_EINVAL, "%s: found %.64s, allowed: %d to %d", name, text, least, most);
    }
    *out = (int)value;
    return FL_OK;
}

/* --layer: a number, or the name of a layer. */
static fl_status read_layer(const fl_args *args, const fl_model *model, int *out)
{
    const char *text = fl_args_value(args, "--layer");
    int n_layers = fl_model_n_layers(model);
    int64_t value = 0;
    if (text == NULL) {
        return FL_OK;
    }
    if (!fl_read_integer(text, &value)) {
        value = fl_model_find_layer(model, text);
    }
    if (value < 0 || value > n_layers) {
        return fl_fail(FL_EINVAL, "--layer: found %.64s, allowed: 0 to %d, or the name of a layer",
                       text, n_layers);
    }
    *out = (int)value;
    return FL_OK;
}

static int widest_name(const fl_model *model)
{
    size_t width = 0;
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        size_t n = strlen(fl_model_layer_name(model, i));
        width = n > width ? n : width;
    }
    return (int)width;
}

static fl_status read_tolerance(const fl_args *args, double *out)
{
    const char *text = fl_args_value(args, "--tolerance");
    size_t length = 0;
    double value = 0;
    if (text == NULL) {
        return FL_OK;
    }
    if (!fl_read_number(text, &value, &length) || text[length] != '\0' || !(value > 0) ||
        !(value < 1)) {
        return fl_fail(FL_EINVAL, "--tolerance: found %.64s, allowed: a number above 0 and below 1",
                       text);
    }
    *out = value;
    return FL_OK;
}

static fl_status read_options(const fl_args *args, checking *c)
{
    int seed = 0;
    c->options = fl_check_defaults();
    c->timeout_s = TIMEOUT_S;
    c->name_width = widest_name(c->job->model);
    FL_TRY(read_layer(args, c->job->model, &c->options.layer));
    FL_TRY(read_count(args, "--samples", 2, FL_CHECK_SAMPLES_MAX, &c->options.n_samples));
    FL_TRY(read_count(args, "--seed", 0, INT32_MAX, &seed));
    FL_TRY(read_count(args, "--timeout", 1, TIMEOUT_MAX_S, &c->timeout_s));
    c->options.seed = (uint64_t)seed;
    return read_tolerance(args, &c->options.tolerance);
}

static fl_status show_checks(const fl_args *args, checking *c)
{
    fl_json json = {0};
    FL_TRY(read_options(args, c));
    c->json = fl_args_has(args, "--json") ? &json : NULL;
    fl_json_array(&json, NULL);
    fl_status status = check_layers(c);
    fl_json_close(&json, ']');
    fl_json_newline(&json);
    if (status == FL_OK && json.broken) {
        status = fl_fail(FL_ENOMEM, "no memory for what is to be printed");
    } else if (status == FL_OK && c->json != NULL) {
        fwrite(json.text, 1, json.n, stdout);
    } else if (status == FL_OK) {
        show_count(c);
    }
    fl_json_fini(&json);
    c->json = NULL;
    return status;
}

static int run_check_model(const fl_args *args)
{
    fl_job_context job = {0};
    checking c = {.job = &job};
    fl_status status = fl_job_context_init(args, &job);
    if (status == FL_OK) {
        status = show_checks(args, &c);
    }
    fl_free(c.failed);
    fl_job_context_fini(&job);
    int code = fl_job_context_finish(status);
    return code == FL_EXIT_DONE && c.n_failed > 0 ? FL_EXIT_FAILED : code;
}

const fl_cli_command fl_cli_command_check_model = {
    .name = "check-model",
    .operand = "JOB.yaml",
    .summary = "Check each layer of a job's model: gradients, memory, batching.",
    .details = "Compares the gradients that each layer's backward gives with finite differences\n"
               "of its forward, and checks the rules of the C API: memory within what was asked\n"
               "for, nothing else written, the same result however samples are batched, no\n"
               "dropout in evaluation. One line for each layer and tensor. Ends with 3 if a\n"
               "check failed.\n\n"
               "  frostline check-model job.yaml --layer blocks.2.attn\n\n"
               "docs/layers.md explains each check and how to fix what it finds.\n",
    .options = {{"--layer", 0, "LAYER", "only this one: a name, or a number from 0"},
                {"--samples", 0, "N", "samples of a micro-batch, 2 to 64; default 4"},
                {"--tolerance", 0, "X", "largest relative error of a gradient; default 1e-3"},
                {"--seed", 0, "N", "of parameters, activations and directions; default 0"},
                {"--timeout", 0, "SECONDS", "the longest that one check may take; default 60"},
                {"--set", 0, "PATH=VALUE",
                 "override a field, as in --set data.path=DIR; repeatable"},
                {"--json", 0, NULL, "print JSON, for programs"}},
    .exit_codes = {{FL_EXIT_FAILED, "a check failed"}},
    .run = run_check_model,
};
